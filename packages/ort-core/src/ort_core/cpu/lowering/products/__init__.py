"""Matrix products: arguments, panels, packed weights, quantized operands."""
