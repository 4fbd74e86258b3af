"""Asks the kernel about a command's processes: what they wait for, and where they listen."""
