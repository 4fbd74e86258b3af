"""Shows the screen that a person would see on a command's terminal."""
