"""Subcommands of ``ort genai``."""
