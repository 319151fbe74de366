"""Matrix products and convolutions, by the library or by generated kernels."""
