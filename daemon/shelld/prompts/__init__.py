"""What a command waits for: proved by the kernel, whatever its output looks like."""
