"""The output of commands: kept within limits, converted to text, and filtered."""
