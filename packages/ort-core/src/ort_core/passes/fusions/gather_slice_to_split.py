"""GatherSliceToSplitFusion: pieces that cover an axis without overlap are one Split.

    a = Slice(x, [0], [n], [axis])    b = Slice(x, [n], [end], [axis])     ->  a, b = Split(x) {axis}
    a = Gather(x, 0)    b = Gather(x, 1)    c = Gather(x, 2)               ->  a, b, c = Squeeze(Split(x)) each

where the axis has a known size, bounds and indices are constants, and all pieces are of the same axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import TensorType
from ort_core.ir.values import Value
from ort_core.passes.fusions.operands import fixed_dim, integers_of
from ort_core.rewrite.matcher import Match, constant_of
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, op, var
from ort_core.rewrite.rule import RewriteRule


@frozen
class Piece:
    """What one node takes of an axis: from ``start`` to before ``end``."""

    start: int
    end: int
    axis: int
    node: Node


class GatherSliceToSplitFusion(RewriteRule[tuple[Piece, ...]]):
    """Replace all pieces of a value by one Split; the binding is the pieces in order."""

    name = "GatherSliceToSplitFusion"

    def build_pattern(self) -> Pattern:
        """Return one piece; the others are other readers of the same value."""
        return op(("Slice", "Gather"), var("x"), more_inputs=True, since=10)

    def check(self, match: Match) -> tuple[Piece, ...] | Rejection:
        """The pieces must cover the axis."""
        x = match["x"]
        first = find_piece(match.root)
        if first is None or constant_of(x) is not None:
            return Rejection("this is not a constant piece of a known axis", match.root)
        found = _pieces(x, match.graph, first.axis)
        if next(found).node is not match.root:  # or thousands of pieces would each look at all the others
            return Rejection("the first piece of this axis is asked for all of them", match.root)
        pieces = sorted((first, *found), key=lambda piece: piece.start)
        ends = [0, *(piece.end for piece in pieces)]
        covers = all(piece.start == end for piece, end in zip(pieces, ends, strict=False))
        if len(pieces) < 2 or not covers or ends[-1] != fixed_dim(x, first.axis):
            return Rejection("the pieces do not cover the axis once", match.root)
        return tuple(pieces)

    def rewrite(self, match: Match, bindings: tuple[Piece, ...]) -> GraphPatch:
        """Put the Split there, and a Squeeze for each Gather."""
        patch = GraphPatch(match.model, match.root)
        x, axis = match["x"], bindings[0].axis
        sizes = [piece.end - piece.start for piece in bindings]
        attributes: dict[str, object] = {"axis": axis}
        inputs: list[Value | None] = [x]
        if match.opset() >= 13:
            inputs.append(patch.constant(np.array(sizes, np.int64), "sizes"))
        else:
            attributes["split"] = tuple(sizes)
        split = patch.node("Split", inputs, attributes, outputs=[_piece_type(x, axis, size) for size in sizes])
        for piece, made in zip(bindings, split.outputs, strict=True):
            assert made is not None
            result = made if piece.node.op_type == "Slice" else _squeeze(patch, made, piece, match.opset())
            patch.replace(piece.node.output, result)
        patch.remove(*(piece.node for piece in bindings))
        return patch


def _pieces(x: Value, graph: Graph, axis: int) -> Iterator[Piece]:
    """Yield what a graph's nodes take of an axis, in the order in which they came to read the value."""
    for node in x.readers():
        if node.graph is graph and node.inputs[0] is x:
            piece = find_piece(node)
            if piece is not None and piece.axis == axis:
                yield piece


def find_piece(node: Node) -> Piece | None:
    """Return the piece that a Slice or Gather takes, with ends counted from the start; ``None`` where it is unknown."""
    x = node.input(0)
    if x is None or x.rank is None or node.domain != "":
        return None
    if node.op_type == "Gather":
        index, axis = constant_of(node.input(1)), node.int_attribute("axis", 0)
        size = fixed_dim(x, axis)
        if index is None or index.shape != () or size is None:
            return None
        start = int(index.array()) % size
        return Piece(start, start + 1, axis % x.rank, node)
    if node.op_type != "Slice":
        return None
    return _slice_piece(node, x, [integers_of(node.input(index)) for index in range(1, 5)])


def _slice_piece(node: Node, x: Value, bounds: Sequence[tuple[int, ...] | None]) -> Piece | None:
    starts, ends, axes, steps = bounds
    if starts is None or ends is None or axes is None or len(axes) != 1 or len(starts) != 1 or x.rank is None:
        return None
    size = fixed_dim(x, axes[0])
    if size is None or (node.input(4) is not None and steps != (1,)):
        return None
    start, end, _ = slice(starts[0], ends[0]).indices(size)
    return Piece(start, end, axes[0] % x.rank, node) if end > start else None


def _piece_type(x: Value, axis: int, size: int) -> TensorType | None:
    if not isinstance(x.type, TensorType) or x.shape is None:
        return None
    return TensorType(x.type.dtype, tuple(size if index == axis else d for index, d in enumerate(x.shape)))


def _squeeze(patch: GraphPatch, value: Value, piece: Piece, opset: int) -> Value:
    made = piece.node.output.type
    if opset >= 13:
        return patch.op("Squeeze", [value, patch.constant(np.array([piece.axis], np.int64), "axes")], type=made)
    return patch.op("Squeeze", [value], {"axes": (piece.axis,)}, type=made)
