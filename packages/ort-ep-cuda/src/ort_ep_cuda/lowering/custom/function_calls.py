"""Users' functions over arrays of the device (CuPy's): how a node becomes a call, and what the call does.

A function makes its own results, so sizes must be known before: they are copied to where the program wants them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ort_core.plugin import EPFail
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.kernels import EvaluationContext, KernelContext, RunGuard, Unguarded
from ort_ep_cuda.lowering.custom.output_sizes import output_shape, refuse_sizes, runtime_attributes
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.program import FunctionCall, KernelFunction
from ort_ep_cuda.lowering.values.views import TensorView
from ort_ep_cuda.lowering.writing.preamble import COMPUTED

FUNCTION_TYPES = COMPUTED - {DataType.BFLOAT16}
"""Element types of arrays that CuPy has in every version."""

MakeArray = Callable[[TensorView, int], Any]  # Any: an array of the device


def refuse_function(node: Node) -> str | None:
    """Return why a function over device arrays cannot run a node, ``None`` where it can."""
    return refuse_sizes(node)


def lower_function(function: KernelFunction, context: EvaluationContext, facts: LoweredNode) -> None:
    """Add the call."""
    node, builder = facts.node, facts.builder
    told = KernelContext(
        node.op_type, node.domain, facts.opset, node.name, tuple(value is not None for value in node.outputs),
        tuple(None if value is None else value.type for value in node.outputs), builder.state(node), Unguarded(),
        context.seed, context.num_threads,
    )  # fmt: skip
    inputs = tuple(None if value is None else builder.dense(value) for value in node.inputs)
    outs = tuple(None if v is None else builder.result(v, output_shape(facts, v)) for v in node.outputs)
    builder.add(FunctionCall(function, runtime_attributes(node), told, inputs, outs))


def run_call(
    step: FunctionCall,
    inputs: Sequence[int | None],
    outs: Sequence[int | None],
    array: MakeArray,
    guard: RunGuard,
) -> None:
    """Call the function and copy its results.

    Args:
        step: the call.
        inputs: addresses.
        outs: addresses.
        array: gives the device's array at an address.
        guard: of this run.

    Raises:
        OrtError: the function failed, or its results do not fit what was planned.
    """
    given = [None if v is None or a is None else array(v, a) for v, a in zip(step.inputs, inputs, strict=True)]
    results = step.function(*given, ctx=replace(step.context, guard=guard), **step.attributes)
    for index, (result, view, address) in enumerate(zip(results, step.outs, outs, strict=True)):
        if view is None or address is None:
            continue
        if result is None or result.shape != view.shape or result.dtype != view.dtype.numpy:
            found = "nothing" if result is None else f"{result.dtype}{list(result.shape)}"
            raise EPFail(
                f"the CUDA kernel of {step.operator} (node {step.context.node_name!r}) returned {found} for output "
                f"{index}, expected {view.dtype.numpy}{list(view.shape)}: what its shape function says must hold"
            )
        array(view, address)[...] = result
