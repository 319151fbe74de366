"""RowsOfRounds: a slice that takes row number i in round number i of a Loop is a Gather.

    Loop(n, c) { r = Slice(x, [i], [i + 1], [0]) }, n the length of x     ->     Loop(n, c) { r = Gather(x, [i]) }

Programs write ``x[i : i + 1]``. How long such a slice is, nobody can tell before a run; a Gather gives one row. A slice
beyond the end would give none, where a Gather fails: so no round may come behind the last row.
"""

from __future__ import annotations

from ort_core.frozen import frozen
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.values import Value
from ort_core.ops.unknown_dims import is_unknown
from ort_core.passes.base import Pass, PassContext, PassRecordState
from ort_core.passes.gather_strided_slices import element_of, integers_of
from ort_core.passes.loop_edits import BACKWARD_SINCE
from ort_core.rewrite.patch import GraphPatch

_NAME = "row of a round"


@frozen
class _Row:
    """What a slice takes: a row of data along an axis."""

    data: Value
    axis: int


class RowsOfRounds(Pass):
    """Write slices of one row, numbered as the round is, as Gather."""

    name = "RowsOfRounds"
    after = ("ConstantFolding",)
    before = ("StackedSequences",)

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Look at every Slice in the body of a Loop."""
        if not {"Loop", "Slice"} <= context.op_types():
            return
        for graph in context.graphs_with(("Slice",)):
            loop = graph.owner
            if loop is None or loop.domain or loop.op_type != "Loop" or not graph.inputs:
                continue
            for node in [each for each in context.nodes_of(graph, ("Slice",)) if each.domain == ""]:
                found = _row_of(context, loop, graph, node)
                if isinstance(found, Rejection):
                    record.refused(_NAME, found, node)
                    continue
                patch = GraphPatch(context.model, node)
                patch.replace(node.output, patch.op("Gather", [found.data, node.input(1)], {"axis": found.axis}))
                patch.remove(node)
                objection = patch.apply()
                if objection is None:
                    _forget_unknown_sizes(graph)
                    record.changed(_NAME)
                else:
                    record.refused(_NAME, objection, node)


def _row_of(context: PassContext, loop: Node, body: Graph, node: Node) -> _Row | Rejection:
    """Return the row that a slice takes, or why it takes others."""
    data, start, axes = node.input(0), node.input(1), integers_of(node.input(3))
    if context.opset(node) < BACKWARD_SINCE or data is None or data.rank is None or start is None or start.rank != 1:
        return Rejection("its bounds are no operands, or its data has no known rank", node)
    if axes is None or len(axes) != 1 or (node.input(4) is not None and integers_of(node.input(4)) != (1,)):
        return Rejection("it has several axes, or steps", node)
    number = body.inputs[0]
    if element_of(start, 0) is not number or not _is_next(element_of(node.input(2), 0), number):
        return Rejection("it is not the row with the number of the round", node)
    axis = axes[0] % max(1, data.rank)
    if not _are_rows(context, loop.input(0), data, axis):
        return Rejection("there may be more rounds than rows", node)
    return _Row(data, axis)


def _forget_unknown_sizes(body: Graph) -> None:
    """Let types be inferred anew that have the size of the slice, which nobody knew, or one that comes from it."""
    for node in body:
        for value in node.present_outputs():
            if any(map(is_unknown, value.shape or ())):
                value.type = None


def _is_next(end: object, number: Value) -> bool:
    """Return whether a value is the number of the round and one."""
    node = end.producer if isinstance(end, Value) else None
    if node is None or node.domain or node.op_type != "Add":
        return False
    first, second = node.input(0), node.input(1)
    other = second if first is number else first if second is number else None
    return other is not None and integers_of(other) == (1,)


def _are_rows(context: PassContext, rounds: Value | None, data: Value, axis: int) -> bool:
    """Return whether data has a row for each of at most so many rounds."""
    known = None if rounds is None else (context.values or {}).get(rounds)
    size = data.shape[axis] if data.shape is not None else None
    if rounds is not None and rounds.constant is not None:
        known = rounds.constant.array() if not rounds.is_graph_input else None
    if known is None or known.size != 1 or size is None:
        return False
    most = known.reshape(-1)[0]
    return bool(most == size) or (isinstance(size, int) and not hasattr(most, "symbols") and bool(most <= size))
