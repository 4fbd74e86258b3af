"""Manages this process: its options, its log, and its handling of unexpected errors."""
