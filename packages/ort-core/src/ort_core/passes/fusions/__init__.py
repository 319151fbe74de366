"""The fusions of the extended level: several operators become one that onnxruntime has beyond the standard."""
