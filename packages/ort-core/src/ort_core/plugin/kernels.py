"""Kernels for plugin authors (provisional): the marker, the registry, and running a graph by kernels."""

from __future__ import annotations

from ort_core.custom_ops.cuda_launch import CudaParameter, cuda_parameters, plan_launch, refuse_pointers
from ort_core.kernels.device_kernel import CudaSource, DeviceKernel, DeviceKernels, Launch, LaunchRequest
from ort_core.kernels.evaluator import (
    BoundGraph,
    EvaluationContext,
    Observer,
    RunnableBody,
    RuntimeValue,
    Scope,
)
from ort_core.kernels.kernel import KernelContext, KernelSpec, RunGuard, SubgraphRunner, Unguarded, kernel
from ort_core.kernels.reference.tree_ensemble import BranchMode, TreeEnsemble
from ort_core.kernels.reference.tree_nodes import TreeModel, tree_model
from ort_core.kernels.reference_registry import reference_kernels
from ort_core.kernels.region_work import RegionWork
from ort_core.kernels.registry import KernelRegistry

__all__ = [
    "BoundGraph",
    "BranchMode",
    "CudaParameter",
    "CudaSource",
    "DeviceKernel",
    "DeviceKernels",
    "EvaluationContext",
    "KernelContext",
    "KernelRegistry",
    "KernelSpec",
    "Launch",
    "LaunchRequest",
    "Observer",
    "RegionWork",
    "RunGuard",
    "RunnableBody",
    "RuntimeValue",
    "Scope",
    "SubgraphRunner",
    "TreeEnsemble",
    "TreeModel",
    "Unguarded",
    "cuda_parameters",
    "kernel",
    "plan_launch",
    "reference_kernels",
    "refuse_pointers",
    "tree_model",
]
