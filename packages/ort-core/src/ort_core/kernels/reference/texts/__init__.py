"""Strings, n-grams and hashes."""
