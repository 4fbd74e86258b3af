"""Shows what a person would see on a command's terminal."""
