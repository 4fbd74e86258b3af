"""The shells: what runs, what has run, and what belongs together."""
