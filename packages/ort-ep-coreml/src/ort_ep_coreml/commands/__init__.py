"""Subcommands of ``ort``."""
