"""Implements the command line: its options and its subcommands."""
