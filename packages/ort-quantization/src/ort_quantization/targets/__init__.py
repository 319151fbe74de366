"""The search behind ``quantize_to_target``: layers, schemes, times, noise, and the choice among them."""
