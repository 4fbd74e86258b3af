"""This process: its options, its log, and how it handles unexpected errors."""
