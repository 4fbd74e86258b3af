"""Input for commands: pseudo-terminals, pipes that stay open, and the bytes written to them."""
