"""Function bodies of the operators that onnxruntime has beyond ONNX: what each computes, in operators of ai.onnx."""
