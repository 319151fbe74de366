"""SmallBranches: an If whose branches make a few numbers becomes these numbers, of which Where takes one.

    y = If(c) <then { a = Add(x, 1) }, else { b = Identity(x) }>      ->      a = Add(x, 1);  y = Where(c, a, x)

Exporters write ``while a and n < 64`` so: a condition inside of a loop, whose rounds could not be native. (Of truths
there is no Where everywhere: And and Or choose.) Both branches are computed then, which takes less time than the
decision. So they may only hold operators that cannot fail, over values whose sizes are known and small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.subgraph import inline
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value
from ort_core.passes.base import Pass, PassContext, PassRecordState

_NAME = "small branch"
_BRANCHES = ("then_branch", "else_branch")
_TOTAL = frozenset(
    {
        "Abs", "Add", "And", "Cast", "Equal", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max",
        "Min", "Mul", "Neg", "Not", "Or", "Sub", "Where", "Xor",
    }
)  # fmt: skip  # they have a result for all elements of all types that they take
_CHOSEN = frozenset(
    DataType[name] for name in ("FLOAT", "DOUBLE", "FLOAT16", "INT8", "INT32", "INT64", "UINT8", "UINT32", "BOOL")
)  # what other runtimes choose from, too: models are saved behind this pass
MAX_NODES = 8  # of a branch: as many take less time than one step of Python
MAX_ELEMENTS = 64  # of each value
CHOICE_SINCE = 9  # opset that has Where


class SmallBranches(Pass):
    """Compute both branches of an If and choose."""

    name = "SmallBranches"
    after = ("ConstantFolding",)

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Look at every If."""
        for graph in context.graphs_with(("If",)):
            for node in [each for each in context.nodes_of(graph, ("If",)) if each.domain == ""]:
                objection = _objection(node, context.opset(node))
                if objection is None:
                    _choose(graph, node)
                    record.changed(_NAME)
                else:
                    record.refused(_NAME, objection, node)


def _objection(node: Node, opset: int) -> Rejection | None:
    """Return why an If stays one."""
    condition, branches = node.input(0), [node.attributes[name].graphs()[0] for name in _BRANCHES]
    if any(len(branch.outputs) != len(node.outputs) for branch in branches):
        return Rejection("a branch has another number of results", node)
    if opset < CHOICE_SINCE:
        return Rejection(f"there is no Where before opset {CHOICE_SINCE}", node)
    if condition is None or _elements(condition) != 1 or not all(_is_cheap(branch) for branch in branches):
        return Rejection(
            "a branch has other operators than arithmetic with a few numbers, or the condition no size", node
        )
    for index in range(len(node.outputs)):
        first, second = (branch.outputs[index] for branch in branches)
        if first.type != second.type or (first.rank or 0) < (condition.rank or 0):
            return Rejection("what branches return has other types or shapes", node)
        if not isinstance(first.type, TensorType) or first.type.dtype not in _CHOSEN:
            return Rejection("what branches return has a type that few runtimes choose from", node)
    return None


def _is_cheap(branch: Graph) -> bool:
    nodes = branch.nodes
    if len(nodes) > MAX_NODES or any(each.domain or each.op_type not in _TOTAL for each in nodes):
        return False
    values = [value for each in nodes for value in (*each.present_inputs(), *each.present_outputs())]
    return all(0 < _elements(value) <= MAX_ELEMENTS for value in (*values, *branch.outputs))


def _elements(value: Value) -> int:
    """Return how many elements a tensor has, 0 where nobody knows or where they are no numbers."""
    known = value.type
    if not isinstance(known, TensorType) or known.dtype in (DataType.STRING, DataType.UNDEFINED) or known.shape is None:
        return 0
    sizes = [size for size in known.shape if isinstance(size, int)]
    return math.prod(sizes) if len(sizes) == len(known.shape) else 0


def _choose(graph: Graph, node: Node) -> None:
    """Put the nodes of both branches in front of an If, and a choice in the place of each of its results."""
    condition = node.input(0)
    assert condition is not None
    first, second = (inline(graph, node, node.attributes[name].graphs()[0], {}) for name in _BRANCHES)
    results = [None if value is None else node.detach_output(place) for place, value in enumerate(node.outputs)]

    def place(op_type: str, inputs: Sequence[Value], result: Value | None = None) -> Value:
        name = graph.fresh_name(f"{node.name}/{op_type}" if node.name else op_type)
        made = result or Value(graph.fresh_name(f"{name}_out0"))
        return graph.insert_before(node, Node(op_type, inputs, [made], name=name, opset=node.opset)).output

    for result, taken, other in zip(results, first, second, strict=False):
        if result is None:
            continue
        if isinstance(taken.type, TensorType) and taken.type.dtype is DataType.BOOL:
            yes, no = place("And", [condition, taken]), place("And", [place("Not", [condition]), other])
            place("Or", [yes, no], result)
        else:
            place("Where", [condition, taken, other], result)
    graph.remove(node)
