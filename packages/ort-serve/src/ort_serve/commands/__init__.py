"""Subcommands of ``ort`` that this package brings."""
