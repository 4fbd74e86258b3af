"""Filters output with RE2. A helper process handles the patterns that RE2 refuses."""
