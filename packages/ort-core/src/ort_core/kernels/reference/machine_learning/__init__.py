"""The operators of ai.onnx.ml: trees, support vector machines, linear models, features and maps."""
