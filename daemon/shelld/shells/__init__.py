"""Owns the shells. A shell is a command that runs or has run, or a spare shell."""
