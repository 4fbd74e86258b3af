"""Lasting daemons: where their sockets are, and what is said on them. See `handshake`."""
