"""Keys and values as operators want them that have no input for what was done to them.

Heads that all heads of queries share are repeated for each of them. A sink, one more score of each head that takes part
in the softmax alone, becomes one more key and value of zeros, whose score is what the bias adds to it:

    key' = Concat(key, 0)    value' = Concat(value, 0)    bias' = Concat(bias, sink)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.ir.constants import Constant
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value
from ort_core.passes.fusions.attention_body import AttentionFacts
from ort_core.passes.fusions.operands import dim
from ort_core.rewrite.patch import GraphPatch


def repeat_head(patch: GraphPatch, flat: Value, count: int, size: int, dtype: DataType) -> Value:
    """Return (batch, length, count * size) of (batch, length, size)."""
    made = TensorType(dtype, (dim(flat, 0), dim(flat, 1), count * size))
    times = patch.constant(np.array([1, 1, count], np.int64), "heads")
    return patch.op("Tile", [flat, times], type=made)


def with_empty_key(patch: GraphPatch, flat: Value, width: int, batch: Value, dtype: DataType) -> Value:
    """Return (batch, length + 1, width) with zeros behind; ``batch`` is a vector with the first size."""
    length = dim(flat, 1)
    ones = patch.constant(np.ones(2, np.int64), "same")
    zeros = patch.constant(np.zeros((1, 1, width), dtype.numpy), "no_key")
    shape = patch.op("Concat", [batch, ones], {"axis": 0})
    empty = patch.op("Expand", [zeros, shape], type=TensorType(dtype, (dim(flat, 0), 1, width)))
    made = TensorType(dtype, (dim(flat, 0), None if length is None else length + 1, width))
    return patch.op("Concat", [flat, empty], {"axis": 1}, type=made)


def bias_of_sink(
    patch: GraphPatch, bias: Value | None, sink: Constant, facts: AttentionFacts, lengths: Sequence[Value]
) -> Value:
    """Return (1 or batch, heads, queries, keys + 1): what is added to scores, and the sink of each head.

    ``bias`` has the number of queries and of keys in its last two axes, ``lengths`` are vectors with both.
    """
    dtype = facts.dtype
    heads = patch.constant(np.array([1, facts.num_heads], np.int64), "heads")
    queries, keys = lengths
    if bias is None:
        bias = patch.constant(np.zeros((1, 1, 1, 1), dtype.numpy), "no_bias")
    wide = patch.op("Expand", [bias, patch.op("Concat", [heads, queries, keys], {"axis": 0})])
    lead = patch.op("Shape", [wide])
    bounds = [patch.constant(np.array([each], np.int64), "bound") for each in (0, 3)]
    one = patch.constant(np.ones(1, np.int64), "one")
    rows = patch.op("Concat", [patch.op("Slice", [lead, *bounds]), one], {"axis": 0})
    sinks = patch.constant(sink.array().reshape(1, -1, 1, 1).astype(dtype.numpy), "sinks")
    column = patch.op("Expand", [sinks, rows])
    return patch.op("Concat", [wide, column], {"axis": 3}, type=TensorType(dtype, (None, facts.num_heads, None, None)))
