"""Attention and recurrent layers: their steps, cells and gates."""
