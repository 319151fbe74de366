"""onnxruntime's module names for unchanged programs."""
