"""SliceConcatToSpaceToDepthFusion: strided slices side by side are SpaceToDepth (the focus layer of YOLO exports).

    y = Concat<axis = 1>(x[..., 0::b, 0::b], x[..., 1::b, 0::b], ...)     ->  y = SpaceToDepth<blocksize = b>(x)

for every offset once, in any order; where it is not SpaceToDepth's, a Gather puts the channels in order.
"""

from __future__ import annotations

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import TensorType
from ort_core.ir.values import Value
from ort_core.ops.shape_arithmetic import is_beyond_end
from ort_core.rewrite.matcher import Match, constant_of
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, op, var
from ort_core.rewrite.rule import RewriteRule

_SPATIAL = (2, 3)


@frozen
class Focus:
    """What is gathered: the source, the block size, and the (row, column) offset of each part in order."""

    source: Value
    block: int
    offsets: tuple[tuple[int, int], ...]
    nodes: tuple[Node, ...]


class SliceConcatToSpaceToDepth(RewriteRule[Focus]):
    """Replace the slices and the Concat."""

    name = "SliceConcatToSpaceToDepthFusion"

    def build_pattern(self) -> Pattern:
        """Return a Concat along the channels; ``check`` follows its inputs."""
        return op("Concat", var("first"), more_inputs=True, attributes={"axis": lambda axis: axis in (1, -3)}, since=10)

    def check(self, match: Match) -> Focus | Rejection:
        """Every offset of the block must occur once."""
        parts = [_Part.of(value, match) for value in match.root.present_inputs()]
        blocks = {part.steps for part in parts if part is not None}
        sources = {part.source for part in parts if part is not None}
        if None in parts or len(sources) != 1 or len(blocks) != 1:
            return Rejection("the inputs are not strided slices of one value", match.root)
        (source,), ((rows, columns),) = sources, blocks
        offsets = tuple(part.starts for part in parts if part is not None)
        if rows != columns or rows < 2 or len(offsets) != rows * rows or len(set(offsets)) != rows * rows:
            return Rejection("the slices do not cover a square block", match.root)
        objection = _check_source(source, rows, match.root)
        if objection is not None:
            return objection
        nodes = tuple(node for part in parts if part is not None for node in part.nodes)
        return Focus(source, rows, offsets, nodes)

    def rewrite(self, match: Match, bindings: Focus) -> GraphPatch:
        """Make SpaceToDepth, and a Gather where the order of the blocks is another."""
        patch = GraphPatch(match.model, match.root)
        block, value_type = bindings.block, match.output.type
        moved = patch.op("SpaceToDepth", [bindings.source], {"blocksize": block}, type=value_type)
        order = [row * block + column for row, column in bindings.offsets]
        if order != sorted(order):
            assert bindings.source.shape is not None
            channels = bindings.source.shape[1]
            assert isinstance(channels, int)
            indices = np.concatenate([np.arange(channels, dtype=np.int64) + part * channels for part in order])
            moved = patch.op("Gather", [moved, patch.constant(indices, "channels")], {"axis": 1}, type=value_type)
        patch.replace(match.output, moved)
        patch.remove(match.root, *bindings.nodes)
        return patch


def _check_source(source: Value, block: int, node: Node) -> Rejection | None:
    if not isinstance(source.type, TensorType) or source.type.dtype.bits == 0:
        return Rejection("the source is not a tensor of numbers", node)
    shape = source.shape
    if shape is None or len(shape) != 4 or not all(isinstance(dim, int) for dim in shape[1:]):
        return Rejection("the sizes of the source are not known", node)
    if any(isinstance(dim, int) and dim % block for dim in shape[2:]):
        return Rejection("the block does not divide the image", node)
    return None


@frozen
class _Part:
    """One strided slice of an image, of one Slice node or of two, one behind the other."""

    source: Value
    starts: tuple[int, int]
    steps: tuple[int, int]
    nodes: tuple[Node, ...]

    @classmethod
    def of(cls, value: Value, match: Match) -> _Part | None:
        starts: dict[int, int] = {}
        steps: dict[int, int] = {}
        nodes: list[Node] = []
        while value.producer is not None and value.producer.op_type == "Slice" and len(nodes) < len(_SPATIAL):
            node = value.producer
            found = _read_slice(node, match)
            if found is None or node.graph is not match.graph or any(axis in starts for axis in found):
                break
            for axis, (start, step) in found.items():
                starts[axis], steps[axis] = start, step
            nodes.append(node)
            value = node.inputs[0]  # type: ignore[assignment]  # the data of a Slice is always there
        if set(starts) != set(_SPATIAL):
            return None
        pairs = [(starts[axis], steps[axis]) for axis in _SPATIAL]
        return cls(value, (pairs[0][0], pairs[1][0]), (pairs[0][1], pairs[1][1]), tuple(nodes))


def _read_slice(node: Node, match: Match) -> dict[int, tuple[int, int]] | None:
    """Return axis -> (start, step) of a Slice to the end of spatial axes."""
    constants = [constant_of(node.input(index)) for index in (1, 2, 3, 4)]
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    if any(c is None for c in constants) or shape is None or len(shape) != 4:
        return None
    starts, ends, axes, steps = ([int(n) for n in c.array().reshape(-1)] for c in constants if c is not None)
    found = {}
    for start, end, axis, step in zip(starts, ends, (a % 4 for a in axes), steps):
        size = shape[axis]
        reaches_end = is_beyond_end(end) or (isinstance(size, int) and end >= size)
        if axis not in _SPATIAL or not reaches_end or not 0 <= start < step:
            return None
        found[axis] = (start, step)
    return found
