"""shelld compared with other ways to run a command: the same questions, in one interleaved run.

``python -m compare`` (`make bench`, `make bench-peers`) asks the questions; `compare.report` turns
the answers into the page and the plot of the documents.
"""
