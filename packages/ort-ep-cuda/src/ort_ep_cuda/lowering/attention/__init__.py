"""Attention: one call of the library, or kernels of its own."""
