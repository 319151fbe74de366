"""Models in half floats: types, tensors, values, and where casts stand."""
