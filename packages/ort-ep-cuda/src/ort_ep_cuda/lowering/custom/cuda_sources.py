"""Users' kernels in CUDA C++: a node becomes one launch, held against the kernel's own parameters before it runs."""

from __future__ import annotations

import hashlib

import numpy as np

from ort_core.plugin.ir import Node
from ort_core.plugin.kernels import CudaSource, EvaluationContext, LaunchRequest, plan_launch, refuse_pointers
from ort_core.plugin.ops import OpSchema, ParameterOption
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.custom.output_sizes import output_shape, refuse_sizes, runtime_attributes
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.program import Argument, Kernel, Launch, Pointer

_NULL = np.uint64(0)


def refuse_source(kernel: CudaSource, context: EvaluationContext, node: Node) -> str | None:
    """Return why a source cannot run a node, ``None`` where it can."""
    num_inputs, num_outputs = _counts(node, context)
    if len(list(node.present_outputs())) != num_outputs:
        return (
            f"its CUDA kernel writes {num_outputs} outputs, of which the node has {len(list(node.present_outputs()))}"
        )
    inputs = [*node.inputs, *[None] * (num_inputs - len(node.inputs))]
    dtypes = [None if value is None else element_type(value) for value in (*inputs, *node.outputs)]
    return refuse_pointers(kernel, dtypes) or refuse_sizes(node)


def lower_source(kernel: CudaSource, context: EvaluationContext, facts: LoweredNode) -> None:
    """Add the launch; there is none where the kernel's own rule gives no blocks."""
    node, builder = facts.node, facts.builder
    num_inputs, _ = _counts(node, context)
    inputs = [None if value is None else builder.dense(value) for value in node.inputs]
    inputs += [None] * (num_inputs - len(inputs))
    outs = [builder.result(value, output_shape(facts, value)) for value in node.present_outputs()]
    request = LaunchRequest(
        tuple(None if view is None else view.shape for view in inputs),
        tuple(view.shape for view in outs),
        runtime_attributes(node),
    )
    dtypes = [None if view is None else view.dtype for view in (*inputs, *outs)]
    launch = plan_launch(kernel, node.describe(), request, dtypes)
    if launch is None:
        return
    arguments: tuple[Argument, ...] = (
        *(_NULL if view is None else Pointer.of(view) for view in (*inputs, *outs)),
        *map(_argument, launch.arguments),
    )
    reads, writes = tuple(v.buffer for v in inputs if v is not None), tuple(v.buffer for v in outs)
    builder.add(
        Launch(_named(kernel, f"{node.domain}::{node.op_type}"), launch.grid, launch.block, arguments, reads, writes)
    )


def _counts(node: Node, context: EvaluationContext) -> tuple[int, int]:
    """Return how many inputs and outputs the kernel has pointers for: those that the operator declares."""
    schema = context.schemas.find(node.domain, node.op_type, context.opset_of(node))
    if not isinstance(schema, OpSchema):
        return len(node.inputs), len(node.outputs)
    found = []
    for parameters, given in ((schema.inputs, node.inputs), (schema.outputs, node.outputs)):
        is_fixed = all(each.option is not ParameterOption.VARIADIC for each in parameters)
        found.append(len(parameters) if is_fixed else len(given))
    return found[0], found[1]


def _named(kernel: CudaSource, operator: str) -> Kernel:
    digest = hashlib.sha256(kernel.source.encode()).hexdigest()[:16]
    return Kernel(f"{kernel.entry}_{digest}", kernel.source, kernel.entry, operator)


def _argument(value: np.generic | float | bool) -> np.generic:
    """Return an argument as the numpy scalar of the width in which it is passed."""
    if isinstance(value, np.generic):
        return value
    if isinstance(value, bool):
        return np.bool_(value)
    return np.int64(value) if isinstance(value, int) else np.float64(value)
