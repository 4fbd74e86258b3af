"""Helper processes: programs of ours for work that could harm the daemon or hold it up."""
