"""The only importer of ``onnx``: load, save, text, schemas, and adapters to onnx's own interfaces."""
