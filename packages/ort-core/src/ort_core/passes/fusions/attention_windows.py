"""Masks of shifted windows: scores of (batch * windows, heads, n, m) are pulled apart, masked by window, and put back.

    Reshape(Add(Reshape(scores, (batch, windows, heads, n, m)), mask), (batch * windows, heads, n, m))

The mask is the same for each entry of the batch: repeated for all of them, it is one to add to the scores themselves.
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


def find_windowed(reshape: Node) -> Windowed | None:
    """Return the scores that were pulled apart to add a mask of windows, and put back by a Reshape."""
    value, summed = reshape.output, reshape.inputs[0]
    added = producer_of(summed, "Add")
    if added is None or summed is None or value.rank != 4 or summed.rank != _FIVE or only_reader(summed) is not reshape:
        return None
    for five, mask in (added.inputs, added.inputs[::-1]):
        apart = producer_of(five, "Reshape")
        four = None if apart is None else apart.inputs[0]
        if apart is None or four is None or mask is None or four.rank != 4 or five is None or five.rank != _FIVE:
            continue
        kept = all(same_dim(dim(four, axis), dim(five, axis)) for axis in (-3, -2, -1))
        put_back = all(same_dim(dim(four, axis), dim(value, axis)) for axis in (-3, -2, -1))
        if kept and put_back and only_reader(four) is apart and only_reader(five) is added and _is_mask(mask, five):
            return Windowed(four, mask, fixed_dim(five, 1) or 1)
    return None


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
