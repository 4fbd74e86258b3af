"""What a caller can wait for: that a running command asks, listens, is quiet, or writes a line."""
