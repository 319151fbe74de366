"""Arithmetic, logic, activations and casts, element by element; sums along an axis, losses and optimizers."""
