"""The static and the dynamic quantizer, and what both write: scales, tensors and nodes."""
