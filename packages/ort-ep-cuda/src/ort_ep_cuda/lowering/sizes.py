"""Sizes: nodes that compute small vectors out of shapes are evaluated on the host while a program is built.

They are claimed with the nodes around them, so that a graph which computes its shapes stays in one piece; fusions write
more of them. Others that a host must compute are left to the CPU.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ort_core.plugin import EPFail, Rejection
from ort_core.plugin.claims import SHAPE_READERS, SIZE_ARITHMETIC, results_beforehand
from ort_core.plugin.ir import Graph, Node, Value
from ort_core.plugin.kernels import EvaluationContext
from ort_ep_cuda.lowering.builder import ProgramBuilder
from ort_ep_cuda.lowering.views import Shape

_ON_DEVICE = frozenset({"CastLike", "Pow", "Reciprocal", "ReduceMin", "Split"})  # no exporter makes sizes by these
_OF_NUMBERS = SIZE_ARITHMETIC - _ON_DEVICE
_OF_ROWS = frozenset({"ConstantOfShape", "Expand"})  # those whose results may be large: only where they have one axis
SIZE_OPERATORS = SHAPE_READERS | _OF_NUMBERS | _OF_ROWS
"""Operators that may compute sizes: their results are as small as what they read, Range's as long as one size."""


def computes_sizes(node: Node, builder: ProgramBuilder) -> bool:
    """Return whether all that a node reads is known, and something of it is no constant."""
    if node.domain:
        return False
    if node.op_type in SHAPE_READERS:
        return True
    inputs = list(node.present_inputs())
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

    results = results_beforehand(node, context, content, sizes, SIZE_OPERATORS)
    if isinstance(results, Rejection):
        raise EPFail(f"{node.describe()} computes sizes and cannot be evaluated on the host: {results.reason}")
    builder.known.update(results)


def inputs_of_sizes(graph: Graph, wanted: Iterable[Value]) -> frozenset[Value]:
    """Return the values that decide some others through nodes that compute sizes, those others included."""
    found = set(wanted)
    for node in reversed(list(graph)):
        if node.domain or node.op_type not in _OF_NUMBERS | _OF_ROWS or not found & set(node.present_outputs()):
            continue
        found |= {value for value in node.present_inputs() if value.constant is None}
    return frozenset(found)
