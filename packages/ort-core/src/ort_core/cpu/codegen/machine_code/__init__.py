"""Targets, compilation, linking and the cache of compiled modules."""
