"""Helper processes: programs of shelld for work that could harm or delay the daemon."""
