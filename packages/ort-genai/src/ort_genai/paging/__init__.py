"""Caches in blocks: a decoder's graph that reads sequences packed one behind the other, and who holds which blocks."""
