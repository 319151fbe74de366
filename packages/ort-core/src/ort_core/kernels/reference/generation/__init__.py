"""Searches for sequences of tokens: beam search, greedy search and sampling."""
