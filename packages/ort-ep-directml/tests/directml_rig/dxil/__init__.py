"""Shaders in DXIL, compiled for the processor that runs the tests."""
