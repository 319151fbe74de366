"""What tests of plugins need: models from ONNX text, comparison by named tolerances, fake providers."""
