"""Products and convolutions of integers of 8 and 4 bits, and ranges of dynamic quantization."""
