"""The only importer of onnx: models, tensors, schemas and text in and out of the IR."""
