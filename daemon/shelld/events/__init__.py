"""Sends events of shells to clients that subscribe."""
