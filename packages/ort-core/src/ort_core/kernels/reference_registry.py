"""The reference registry: every numpy kernel of ``kernels/reference``, from one literal list of families."""

from __future__ import annotations

import functools
import importlib

from ort_core.kernels.registry import KernelRegistry

FAMILIES: tuple[str, ...] = ()


@functools.cache
def reference_kernels() -> KernelRegistry:
    """Return the registry of all reference kernels (built once; not to be changed, extend a copy)."""
    package = "ort_core.kernels.reference"
    return KernelRegistry.of(importlib.import_module(f"{package}.{family}") for family in FAMILIES)
