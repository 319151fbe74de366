"""The writers of quantised operators, one family a file; ``ort_quantization.registry`` lists them."""
