"""What the operators of ai.onnx.ml become."""
