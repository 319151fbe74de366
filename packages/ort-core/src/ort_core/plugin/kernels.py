"""Kernels for plugin authors (provisional): the marker, the registry, and running a graph by kernels."""

from __future__ import annotations

from ort_core.kernels.evaluator import BoundGraph, EvaluationContext, RuntimeValue
from ort_core.kernels.kernel import KernelContext, KernelSpec, RunGuard, SubgraphRunner, Unguarded, kernel
from ort_core.kernels.reference_registry import reference_kernels
from ort_core.kernels.region_work import RegionWork
from ort_core.kernels.registry import KernelRegistry

__all__ = [
    "BoundGraph",
    "EvaluationContext",
    "KernelContext",
    "KernelRegistry",
    "KernelSpec",
    "RegionWork",
    "RunGuard",
    "RuntimeValue",
    "SubgraphRunner",
    "Unguarded",
    "kernel",
    "reference_kernels",
]
