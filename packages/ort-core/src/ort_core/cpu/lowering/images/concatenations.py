"""Where parts of concatenations are stored: in the concatenation's own memory, though others read them as well.

    a, b = Split(Conv(x));  c = Conv(b);  y = Concat(a, b, c)

The first convolution stores its channels as the first ones of ``y``, the second reads some of them there and stores the
last ones; ``Concat`` itself has nothing to do. Readers see images whose pixels lie farther apart than their channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, channels_last
from ort_core.plugin.ir import DataType, KnownDim, Node, TensorType, Value
from ort_core.plugin.loops import MEANINGS

if TYPE_CHECKING:
    from ort_core.cpu.lowering.lowering import Lowering

_READERS = frozenset(
    {"Conv", "Concat", "Split", "MaxPool", "AveragePool", "Resize", "GroupNormalization", "InstanceNormalization"}
)  # beside what is elementwise
RANK = 4


class Concatenations:
    """The memory of concatenations over channels, given out part by part; part of a lowering's state."""

    def __init__(self, lowering: Lowering) -> None:
        self._lowering = lowering
        self._targets: dict[Node, View] = {}

    def target(self, node: Node) -> View | None:
        """Return where a concatenation's parts have been stored, ``None`` if none has been."""
        return self._targets.get(node)

    def place(self, value: Value, dtype: DataType, shape: Sequence[KnownDim], order: tuple[int, ...]) -> View | None:
        """Return where to store a value of a memory order in the concatenation that reads it, ``None``: by itself."""
        if order != channels_last(RANK) or dtype is not DataType.FLOAT or not self._readers_take_parts(value):
            return None
        found = [(node, first) for node, first in self._concatenations(value) if self._is_taken(node, shape)]
        if not found:
            return None
        node, first = max(found, key=lambda each: len(each[0].inputs))
        if node not in self._targets:
            wide = _shape(node.output)
            assert wide is not None, "it is taken"
            placed = self.place(node.output, dtype, wide, order)
            self._targets[node] = placed or self._lowering.new_view(dtype, wide, order)
        target = self._targets[node]
        return View(target.buffer, tuple(shape), target.strides, target.offset + first, order)

    def _concatenations(self, value: Value) -> list[tuple[Node, int]]:
        """Return the concatenations that a value, or all parts of it in order, are parts of, and its first channel."""
        found = []
        for node in value.consumers():
            if _is_over_channels(node, "Concat") and list(node.inputs).count(value) == 1:
                first = _channels_before(node, value)
                found.extend([(node, first)] if first is not None else [])
            elif _is_over_channels(node, "Split"):
                found.extend(self._of_parts(node))
        return found

    def _of_parts(self, split: Node) -> list[tuple[Node, int]]:
        parts = list(split.outputs)
        head = parts[0]
        found = []
        for node in head.consumers() if head is not None else ():
            if not _is_over_channels(node, "Concat"):
                continue
            inputs = list(node.inputs)
            start = inputs.index(head)
            is_whole = inputs[start : start + len(parts)] == parts and all(inputs.count(part) == 1 for part in parts)
            first = _channels_before(node, head) if head is not None else None
            if is_whole and first is not None:
                found.append((node, first))
        return found

    def _is_taken(self, node: Node, part: Sequence[KnownDim]) -> bool:
        lowering = self._lowering
        if not lowering.is_member(node) or lowering.is_output(node.output) or lowering.pending(node.output) is not None:
            return False
        shape = _shape(node.output)
        if shape is None or len(shape) != RANK or not isinstance(shape[1], int):
            return False
        return shape[:1] == tuple(part[:1]) and shape[2:] == tuple(part[2:])  # known to be, before any run

    def _readers_take_parts(self, value: Value) -> bool:
        lowering = self._lowering
        for node in value.consumers():
            if not lowering.is_member(node):
                return False
            if (node.domain, node.op_type) not in MEANINGS and (node.domain or node.op_type not in _READERS):
                return False
        return True


def joined(parts: Sequence[View]) -> View | None:
    """Return parts that follow each other among the channels of one image as one view, ``None`` if they do not."""
    first = parts[0]
    channels = 0
    for part in parts:
        size = part.shape[1]
        lies_behind = part.buffer is first.buffer and part.offset == first.offset + channels
        if not lies_behind or part.strides != first.strides or part.order != first.order or not isinstance(size, int):
            return None
        channels += size
    return View(first.buffer, (first.shape[0], channels, *first.shape[2:]), first.strides, first.offset, first.order)


def _is_over_channels(node: Node, op_type: str) -> bool:
    return node.op_type == op_type and not node.domain and node.int_attribute("axis", 0) in (1, 1 - RANK)


def _channels_before(node: Node, value: Value) -> int | None:
    total = 0
    for each in node.inputs:
        if each is value:
            return total
        shape = _shape(each)
        size = shape[1] if shape is not None and len(shape) == RANK else None
        if not isinstance(size, int):
            return None
        total += size
    return None


def _shape(value: Value | None) -> tuple[KnownDim, ...] | None:
    if value is None or not isinstance(value.type, TensorType):
        return None
    try:
        return tensor_type(value)[1]
    except NotLowered:  # a size is unknown: nothing is placed there
        return None
