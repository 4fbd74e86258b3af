"""Lasting daemons: where their sockets are, and the messages on these sockets. See `handshake`."""
