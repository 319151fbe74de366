"""Tools of models' files: onnxruntime.tools' functions, classes and command lines, over the doors of ort-core."""

__version__ = "0.1.0"
