"""From ONNX nodes to DirectML's operators, as plain data; without a library."""
