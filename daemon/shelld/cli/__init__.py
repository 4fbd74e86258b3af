"""The command line: options and subcommands."""
