"""TensorRT and TensorRT-RTX as execution providers of ort-core: engines for NVIDIA GPUs, built of claims."""

__version__ = "0.1.0.dev0"
