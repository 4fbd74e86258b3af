"""Compare shelld with other ways to run a command, by asking all of them the same questions in
turns.

``python -m compare`` (`make bench`, `make bench-peers`) asks the questions; `compare.report` turns
the answers into the page and the plot of the documents.
"""
