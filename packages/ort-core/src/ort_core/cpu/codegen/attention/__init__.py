"""Attention, rotary embeddings and caches of keys and values."""
