"""Runs helper processes.

They are programs of shelld for work that could harm or delay the daemon.
"""
