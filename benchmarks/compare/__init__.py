"""Compare shelld with other ways to run a command, in one interleaved run of the same questions.

``python -m compare`` (`make bench`, `make bench-peers`) asks the questions; `compare.report` turns
the answers into the page and the plot of the documents.
"""
