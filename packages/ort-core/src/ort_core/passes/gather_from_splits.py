"""ElementsOfSplits: an element of a list of all rows of a tensor is gathered from the tensor, without the list.

    s = SplitToSequence<keepdims = 0>(x);  n = SequenceLength(s);  e = SequenceAt(s, i)
                                                            ->  n = Gather(Shape(x), 0);  e = Gather(x, i)

Programs write ``for row in x.unbind(0)`` so: a Loop whose body reads the list, as many rounds as it is long.
"""

from __future__ import annotations

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.values import Value
from ort_core.passes.base import Pass, PassContext, PassRecordState
from ort_core.passes.gather_strided_slices import integers_of
from ort_core.rewrite.matcher import constant_of
from ort_core.rewrite.patch import GraphPatch

_NAME = "element of a split"
AXES_AS_INPUT_SINCE = 13  # opset in which Unsqueeze takes its axes as an operand


@frozen
class _Rows:
    """A list of the rows of data along an axis, which they keep or not."""

    data: Value
    axis: int
    keeps: bool


class ElementsOfSplits(Pass):
    """Read rows of a tensor where they lie."""

    name = "ElementsOfSplits"
    after = ("ConstantFolding",)
    before = ("StackedSequences",)

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Look at every element and length of a list that a tensor was split into."""
        if "SplitToSequence" not in context.op_types():
            return
        readers = ("SequenceAt", "SequenceLength")
        for graph in context.graphs_with(readers):
            for node in [each for each in context.nodes_of(graph, readers) if each.domain == ""]:
                found = _rows_of(node)
                objection = found if isinstance(found, Rejection) else _patch(context, node, found).apply()
                if objection is None:
                    record.changed(_NAME)
                else:
                    record.refused(_NAME, objection, node)


def _rows_of(node: Node) -> _Rows | Rejection:
    """Return the rows that a node reads of, or why they are none."""
    split = None if node.input(0) is None else node.inputs[0].producer  # type: ignore[union-attr]  # as just seen
    if split is None or split.domain or split.op_type != "SplitToSequence":
        return Rejection("its list was not split from a tensor", node)
    data, sizes, index = split.input(0), split.input(1), node.input(1)
    if data is None or data.rank is None or not -data.rank <= split.int_attribute("axis", 0) < data.rank:
        return Rejection("the tensor has no known rank, or no such axis", node)
    if sizes is not None and (integers_of(sizes) != (1,) or constant_of(sizes).shape != ()):  # type: ignore[union-attr]  # it is one
        return Rejection("the parts are not known to be one row each", node)
    if node.op_type == "SequenceAt" and (index is None or index.rank != 0):
        return Rejection("the place of the element is no scalar", node)
    keeps = split.int_attribute("keepdims", 1) != 0
    return _Rows(data, split.int_attribute("axis", 0) % data.rank, keeps)


def _patch(context: PassContext, node: Node, rows: _Rows) -> GraphPatch:
    patch, index = GraphPatch(context.model, node), node.input(1)
    if node.op_type == "SequenceLength":
        place = patch.constant(np.array(rows.axis, np.int64), "axis")
        patch.replace(node.output, patch.op("Gather", [patch.op("Shape", [rows.data]), place], {"axis": 0}))
    else:
        if rows.keeps and context.opset(node) >= AXES_AS_INPUT_SINCE:
            index = patch.op("Unsqueeze", [index, patch.constant(np.array([0], np.int64), "axes")])
        elif rows.keeps:
            index = patch.op("Unsqueeze", [index], {"axes": [0]})
        patch.replace(node.output, patch.op("Gather", [rows.data, index], {"axis": rows.axis}))
    patch.remove(node)
    return patch
