"""Masks of shifted windows: scores of (batch * windows, heads, n, m) are pulled apart, masked by window, and put back.

    Reshape(Add(Reshape(scores, (batch, windows, heads, n, m)), mask), (batch * windows, heads, n, m))

There may be several, one added after the other. Each is the same for each entry of the batch: repeated for all of them,
it is one to add to the scores themselves.
"""

from __future__ import annotations

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.nodes import Node
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value
from ort_core.passes.fusions.attention_heads import producer_of
from ort_core.passes.fusions.operands import dim, dtype_of, fixed_dim, only_reader, same_dim
from ort_core.rewrite.patch import GraphPatch

_FIVE = 5


@frozen
class Windowed:
    """The scores of four axes, and the mask of up to five of which one is of windows."""

    scores: Value
    mask: Value
    windows: int


def find_windowed(reshape: Node) -> list[Windowed] | None:
    """Return the scores that were pulled apart to add masks of windows, and put back again, one for each mask."""
    value = reshape.output
    if value.rank != 4:
        return None
    found = _pulled_apart(reshape.inputs[0], reshape)
    if not found or not all(same_dim(dim(found[0].scores, axis), dim(value, axis)) for axis in (-3, -2, -1)):
        return None
    return found


def _pulled_apart(five: Value | None, reader: Node) -> list[Windowed] | None:
    """Return the masks of windows in a value that ``reader`` alone reads, ``None`` where it is not a sum of such."""
    added = producer_of(five, "Add")
    if added is None or five is None or five.rank != _FIVE or only_reader(five) is not reader:
        return None
    for inner, mask in (added.inputs, added.inputs[::-1]):
        if inner is None or mask is None or inner.rank != _FIVE or not _is_mask(mask, inner):
            continue
        four = _stacked(inner, added)
        found = _pulled_apart(inner, added) if four is None else []
        if found is not None and (four is not None or found):
            scores = found[0].scores if four is None else four
            assert scores is not None
            return [*found, Windowed(scores, mask, fixed_dim(inner, 1) or 1)]
    return None


def _stacked(five: Value, reader: Node) -> Value | None:
    """Return the scores of four axes of which a Reshape pulled the windows apart."""
    apart = producer_of(five, "Reshape")
    four = None if apart is None else apart.inputs[0]
    if four is None or four.rank != 4 or only_reader(four) is not apart or only_reader(five) is not reader:
        return None
    return four if all(same_dim(dim(four, axis), dim(five, axis)) for axis in (-3, -2, -1)) else None


def _is_mask(mask: Value, five: Value) -> bool:
    """Return whether a mask is one for each entry of the batch, of sizes that are known."""
    if mask.rank not in (4, _FIVE) or (mask.rank == _FIVE and dim(mask, 0) != 1):
        return False
    return all(fixed_dim(mask, axis) for axis in (-4, -3, -2, -1)) and bool(fixed_dim(five, 1))


def windows_in_batch(patch: GraphPatch, found: Windowed, batch: Value) -> Value:
    """Return (batch * windows, heads or 1, queries or 1, keys or 1); ``batch`` is a vector with the first size."""
    sizes = [fixed_dim(found.mask, axis) or 0 for axis in (-4, -3, -2, -1)]
    five = patch.op("Reshape", [found.mask, patch.constant(np.array([1, *sizes], np.int64), "windows_apart")])
    count = patch.constant(np.array([found.windows], np.int64), "windows")
    entries = patch.op("Div", [batch, count], type=TensorType(DataType.INT64, (1,)))
    same = patch.constant(np.ones(3, np.int64), "same")
    lead = patch.op("Concat", [entries, count, same], {"axis": 0}, type=TensorType(DataType.INT64, (_FIVE,)))
    spread = patch.op("Expand", [five, lead])
    stack = patch.constant(np.array([-1, *sizes[1:]], np.int64), "windows_in_batch")
    return patch.op("Reshape", [spread, stack], type=TensorType(dtype_of(found.mask), (None, *sizes[1:])))
