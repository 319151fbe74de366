"""Loop nests: elementwise, over rows, reductions, scans, and tensors made of sizes."""
