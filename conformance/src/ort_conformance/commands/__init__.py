"""The subcommands that this package adds to ``ort``; a module each."""
