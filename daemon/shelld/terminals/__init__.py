"""Input for commands: pseudo-terminals, pipes that stay open, and what is written to them."""
