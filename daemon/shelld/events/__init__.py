"""Events of shells, for clients that subscribe."""
