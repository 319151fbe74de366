"""Kernels for plugin authors (provisional): the marker, the registry, and running a graph by kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from ort_core.custom_ops.cuda_launch import CudaParameter, cuda_parameters, plan_launch, refuse_pointers
    from ort_core.kernels.device_kernel import CudaSource, DeviceKernel, DeviceKernels, Launch, LaunchRequest
    from ort_core.kernels.evaluation_context import EvaluationContext, RunnableBody
    from ort_core.kernels.evaluator import BoundGraph, evaluate_node
    from ort_core.kernels.kernel import (
        KernelContext,
        KernelSpec,
        RunGuard,
        SubgraphRunner,
        Unguarded,
        bound_outputs,
        is_shared,
        kernel,
        may_stop,
    )
    from ort_core.kernels.observer import Observer
    from ort_core.kernels.preconditions.conditions import Conditions
    from ort_core.kernels.preconditions.table import find_precondition
    from ort_core.kernels.reference.machine_learning.tree_batches import TreeBatch, tree_models
    from ort_core.kernels.reference.machine_learning.tree_ensemble import (
        BranchMode,
        TreeEnsemble,
        TreeShares,
        starts_of,
    )
    from ort_core.kernels.reference.machine_learning.tree_nodes import TreeModel, tree_model
    from ort_core.kernels.reference_registry import reference_kernels
    from ort_core.kernels.region_work import RegionWork
    from ort_core.kernels.registry import KernelRegistry
    from ort_core.kernels.weight_quantizers import (
        quantize_matmul_2bits,
        quantize_matmul_4bits,
        quantize_matmul_8bits,
        quantize_matmul_bnb4,
        quantize_qdq_matmul_2bits,
        quantize_qdq_matmul_4bits,
    )
    from ort_core.tensors.runtime_value import RuntimeValue, Scope

__all__ = [
    "BoundGraph", "BranchMode", "Conditions", "CudaParameter", "CudaSource", "DeviceKernel", "DeviceKernels",
    "EvaluationContext", "KernelContext", "KernelRegistry", "KernelSpec", "Launch", "LaunchRequest", "Observer",
    "RegionWork", "RunGuard", "RunnableBody", "RuntimeValue", "Scope", "SubgraphRunner", "TreeBatch", "TreeEnsemble",
    "TreeModel", "TreeShares", "Unguarded", "bound_outputs", "cuda_parameters", "evaluate_node", "find_precondition",
    "is_shared", "kernel", "may_stop", "plan_launch", "quantize_matmul_2bits", "quantize_matmul_4bits",
    "quantize_matmul_8bits", "quantize_matmul_bnb4", "quantize_qdq_matmul_2bits", "quantize_qdq_matmul_4bits",
    "reference_kernels", "refuse_pointers", "starts_of", "tree_model", "tree_models",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(  # no plugin pays for names that it does not use
    __name__,
    {
        "ort_core.custom_ops.cuda_launch": ("CudaParameter", "cuda_parameters", "plan_launch", "refuse_pointers"),
        "ort_core.kernels.device_kernel": ("CudaSource", "DeviceKernel", "DeviceKernels", "Launch", "LaunchRequest"),
        "ort_core.kernels.evaluation_context": ("EvaluationContext", "RunnableBody"),
        "ort_core.kernels.evaluator": ("BoundGraph", "evaluate_node"),
        "ort_core.kernels.kernel": (
            "KernelContext", "KernelSpec", "RunGuard", "SubgraphRunner", "Unguarded", "bound_outputs", "is_shared",
            "kernel", "may_stop",
        ),
        "ort_core.kernels.observer": ("Observer",),
        "ort_core.kernels.preconditions.conditions": ("Conditions",),
        "ort_core.kernels.preconditions.table": ("find_precondition",),
        "ort_core.kernels.reference.machine_learning.tree_batches": ("TreeBatch", "tree_models"),
        "ort_core.kernels.reference.machine_learning.tree_ensemble": (
            "BranchMode", "TreeEnsemble", "TreeShares", "starts_of",
        ),
        "ort_core.kernels.reference.machine_learning.tree_nodes": ("TreeModel", "tree_model"),
        "ort_core.kernels.reference_registry": ("reference_kernels",),
        "ort_core.kernels.region_work": ("RegionWork",),
        "ort_core.kernels.registry": ("KernelRegistry",),
        "ort_core.kernels.weight_quantizers": (
            "quantize_matmul_2bits", "quantize_matmul_4bits", "quantize_matmul_8bits", "quantize_matmul_bnb4",
            "quantize_qdq_matmul_2bits", "quantize_qdq_matmul_4bits",
        ),
        "ort_core.tensors.runtime_value": ("RuntimeValue", "Scope"),
    },
)  # fmt: skip
