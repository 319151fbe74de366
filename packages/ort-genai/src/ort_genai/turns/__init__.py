"""onnxruntime-genai's engine: requests of several turns, stepped by the caller, told by events."""
