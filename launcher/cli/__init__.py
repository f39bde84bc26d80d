"""The command line: ddprun and its subcommands."""
