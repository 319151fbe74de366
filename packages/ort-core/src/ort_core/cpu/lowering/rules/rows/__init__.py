"""What softmax, normalizations and reductions become."""
