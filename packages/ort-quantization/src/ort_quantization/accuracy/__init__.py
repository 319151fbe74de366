"""Methods that make a quantized model lose less."""
