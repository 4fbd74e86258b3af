"""Keeps the output of commands within limits, converts it to text, and filters it."""
