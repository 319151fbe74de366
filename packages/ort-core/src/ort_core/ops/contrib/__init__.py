"""Schemas of onnxruntime's own operators as compact text, one file per family; read by ``ops.contrib_schemas``."""
