"""Compare shelld with other ways to run a command. All of them get the same questions, and take
turns.

``python -m compare`` (`make bench`, `make bench-peers`) asks the questions; `compare.report` turns
the answers into the page and the plot in the documents.
"""
