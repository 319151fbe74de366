"""The writers of quantized operators, one family a file; ``ort_quantization.registry`` lists them."""
