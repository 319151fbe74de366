"""Folded parts: what the body of an operator computes of constants alone becomes a constant, read when it is needed.

    codes -> Cast -> Sub -> Mul -> Transpose -> MatMul    ->    weights -> MatMul

For engines that take weights as they are multiplied, and compute nothing that no run changes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from ort_core.errors import Fail
from ort_core.ir.constants import Constant
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.subgraph import copy_node
from ort_core.ir.types import TensorType
from ort_core.ir.values import Value
from ort_core.kernels.evaluation_context import EvaluationContext
from ort_core.kernels.evaluator import evaluate_node
from ort_core.ops.shape_arithmetic import fixed_sizes

FOLDED = frozenset({
    "Add", "Cast", "Concat", "Div", "Expand", "Gather", "Identity", "Mod", "Mul", "Reshape", "Slice", "Squeeze", "Sub",
    "Transpose", "Unsqueeze",
})  # fmt: skip
"""What bodies make weights by; each has one result, which its inputs alone decide."""


def fold_parts(graph: Graph, parts: Sequence[Node], context: EvaluationContext) -> list[Node]:
    """Replace parts that compute of constants alone by constants of the graph, and return the others, in order.

    Args:
        graph: of the parts; editable.
        parts: nodes in topological order.
        context: of the model.
    """
    left = []
    for part in parts:
        constant = _constant_of(graph, part, context)
        if constant is None:
            left.append(part)
            continue
        inputs = dict.fromkeys(part.present_inputs())
        part.output.replace_uses(graph.new_constant(constant, part.output.name), outputs=True)
        graph.remove(part)
        drop_unread(graph, inputs)
    return left


def drop_unread(graph: Graph, values: Sequence[Value] | dict[Value, None]) -> None:
    """Take those of some values out of a graph that are constants which nobody reads any more."""
    for value in values:
        if value.constant is not None and value.graph is graph and not value.use_count and not value.is_graph_output:
            graph.remove_initializer(value)


def _constant_of(graph: Graph, part: Node, context: EvaluationContext) -> Constant | None:
    """Return what a part computes, ``None`` of one that is computed in a run, or whose size is not known."""
    kind = None if part.domain or part.op_type not in FOLDED else part.output.type
    sizes = fixed_sizes(kind.shape) if isinstance(kind, TensorType) and kind.shape is not None else None
    if sizes is None or not isinstance(kind, TensorType) or not part.inputs:
        return None
    given = [None if value is None else graph.fixed_constant(value) for value in part.inputs]
    if any(value is not None and found is None for value, found in zip(part.inputs, given, strict=True)):
        return None
    alone = copy_node(part, {value: Value(value.name, value.type) for value in part.present_inputs()})
    return Constant(kind.dtype, sizes, functools.partial(_computed, alone, given, context))


def _computed(node: Node, given: Sequence[Constant | None], context: EvaluationContext) -> np.ndarray:
    results = evaluate_node(node, [None if each is None else each.array() for each in given], context)
    if isinstance(results, Rejection) or not isinstance(results[0], np.ndarray):
        raise Fail(f"{node.describe()} cannot be computed of its constants: {results}")
    return np.ascontiguousarray(results[0])
