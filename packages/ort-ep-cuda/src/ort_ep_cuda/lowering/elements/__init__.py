"""Operators over elements, rows and windows."""
