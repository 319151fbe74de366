"""Attention in its many forms, with its masks, caches and positions, and recurrences in its place."""
