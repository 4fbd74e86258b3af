"""Sessions: the state that a command leaves, and how the next command starts from it."""
