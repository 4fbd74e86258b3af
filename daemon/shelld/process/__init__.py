"""This process: its start, its options, its log, and what becomes of unexpected errors."""
