"""LLaMA: a decoder with its caches, for one exporter or as onnxruntime's graphs name its inputs."""
