"""What a person calls: the options of the command line, and the subcommands."""
