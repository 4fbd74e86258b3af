"""Defines where lasting daemons have their sockets, and the messages on these sockets."""
