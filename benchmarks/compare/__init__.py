"""shelld beside other ways to run a command: the same questions, in one run, interleaved.

``python -m compare`` (`make bench`, `make bench-peers`) asks them; `compare.report` makes of the
answers the page and the plot of the documents.
"""
