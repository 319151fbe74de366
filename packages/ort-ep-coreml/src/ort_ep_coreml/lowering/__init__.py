"""From ONNX nodes to operations of MIL, the language of Core ML programs; without coremltools."""
