"""What the kernel tells of a command: its processes, what they wait for, where they listen."""
