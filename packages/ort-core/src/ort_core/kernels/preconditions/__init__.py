"""What operators require of the shapes of their inputs, stated once for kernels and for compiled code."""
