"""ort-core: ONNX models on any hardware, with onnxruntime's names and signatures."""

__version__ = "0.1.0"  # the one version of the repository: package builds read this line
