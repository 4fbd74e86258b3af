"""Asks the kernel what the processes of a command wait for, and where they listen."""
