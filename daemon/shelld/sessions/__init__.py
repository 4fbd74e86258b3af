"""Sessions keep the state that a command leaves, and start the next command from this state."""
