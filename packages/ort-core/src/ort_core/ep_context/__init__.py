"""Compiled models: partitions as their providers store them, in EPContext nodes of an ONNX model."""
