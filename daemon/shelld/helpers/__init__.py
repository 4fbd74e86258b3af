"""Runs helper processes.

A helper process runs a program of shelld. It does work that could harm or delay the daemon.
"""
