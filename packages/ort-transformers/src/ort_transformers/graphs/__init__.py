"""What the classes of onnxruntime's models are made of: nodes, paths and values of a graph."""
