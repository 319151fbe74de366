"""Stable Diffusion: the ONNX models of a pipeline of diffusers, fused and in float16."""
