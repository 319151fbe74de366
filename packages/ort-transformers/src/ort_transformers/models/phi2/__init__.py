"""Phi-2: a decoder with its caches, in the forms that CPUs and GPUs run."""
