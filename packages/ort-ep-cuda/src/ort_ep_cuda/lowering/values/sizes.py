"""Sizes: nodes that compute small vectors out of shapes are evaluated on the host while a program is built.

They are claimed with the nodes around them, so that a graph which computes its shapes stays in one piece; fusions write
more of them. Others that a host must compute are left to the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ort_core.plugin import EPFail, Rejection
from ort_core.plugin.claims import SHAPE_READERS, SIZE_ARITHMETIC, results_beforehand
from ort_core.plugin.ir import Graph, Node, Value
from ort_core.plugin.kernels import EvaluationContext
from ort_ep_cuda.lowering.builder import ProgramBuilder, element_type
from ort_ep_cuda.lowering.values.growing import grows
from ort_ep_cuda.lowering.values.growing_values import as_numbers, has_growing, result_of, shape_of
from ort_ep_cuda.lowering.values.views import Shape

_ON_DEVICE = frozenset({"CastLike", "Pow", "Reciprocal", "ReduceMin", "Split"})  # no exporter makes sizes by these
_OF_NUMBERS = SIZE_ARITHMETIC - _ON_DEVICE
_OF_ROWS = frozenset({"ConstantOfShape", "Expand"})  # those whose results may be large: only where they have one axis
SIZE_OPERATORS = SHAPE_READERS | _OF_NUMBERS | _OF_ROWS
"""Operators that may compute sizes: their results are as small as what they read, Range's as long as one size."""


_OF_LENGTH = _OF_ROWS | {"Range"}  # on the device where their length grows


def computes_sizes(node: Node, builder: ProgramBuilder) -> bool:
    """Return whether all that a node reads is known, and something of it is not a constant."""
    if node.domain:
        return False
    if node.op_type in SHAPE_READERS:
        return True
    inputs = list(node.present_inputs())
    if node.op_type in _OF_LENGTH and any(has_growing(builder.known.get(value)) for value in inputs):
        return False
    is_known = all(value in builder.known or value.constant is not None for value in inputs)
    is_small = node.op_type in _OF_NUMBERS or (node.op_type in _OF_ROWS and node.output.rank in (0, 1))
    return is_small and is_known and any(value in builder.known for value in inputs)


def define_sizes(node: Node, context: EvaluationContext, builder: ProgramBuilder) -> None:
    """Evaluate a node by its numpy kernel."""

    def content(value: Value) -> np.ndarray | None:
        found = builder.known.get(value)
        return value.constant.array() if found is None and value.constant is not None else found

    def sizes(value: Value) -> Shape:
        found = content(value)
        return builder.tensor(value).shape if found is None else found.shape

    growing = _by_formula(node, content, sizes)
    if growing is not None:
        builder.known[node.output] = growing
        return

    def numeric_content(value: Value) -> np.ndarray | None:
        return as_numbers(content(value), element_type(value))

    results = results_beforehand(node, context, numeric_content, sizes, SIZE_OPERATORS)
    if isinstance(results, Rejection):
        raise EPFail(f"{node.describe()} computes sizes and cannot be evaluated on the host: {results.reason}")
    builder.known.update(results)


def _by_formula(
    node: Node, content: Callable[[Value], np.ndarray | None], sizes: Callable[[Value], Shape]
) -> np.ndarray | None:
    """Return what a node makes of sizes that grow; ``None`` where it reads none, or more than formulas tell."""
    if node.op_type in SHAPE_READERS:
        shape = sizes(node.inputs[0])  # type: ignore[arg-type]  # it has one input
        found = shape_of(node, shape) if any(grows(size) for size in shape) else None
    else:
        inputs = [None if value is None else content(value) for value in node.inputs]
        found = result_of(node, inputs) if any(has_growing(array) for array in inputs) else None
    if found is None or has_growing(found):
        return found
    return as_numbers(found, element_type(node.output))


def inputs_of_sizes(graph: Graph, wanted: Iterable[Value]) -> frozenset[Value]:
    """Return the values that decide some others through nodes that compute sizes, those others included."""
    found = set(wanted)
    for node in reversed(list(graph)):
        if node.domain or node.op_type not in _OF_NUMBERS | _OF_ROWS or not found & set(node.present_outputs()):
            continue
        found |= {value for value in node.present_inputs() if value.constant is None}
    return frozenset(found)
