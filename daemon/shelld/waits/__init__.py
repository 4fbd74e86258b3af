"""Waits until a running command asks for input, listens, is quiet, or writes a line."""
