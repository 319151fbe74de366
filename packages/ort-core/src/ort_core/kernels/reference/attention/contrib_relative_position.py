"""Attention biases from relative positions: T5's buckets and the gated form of WavLM."""

from __future__ import annotations

import math

import numpy as np

from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.gates import sigmoid
from ort_core.kernels.reference.arrays.widening import narrow, widen
from ort_core.kernels.reference.attention.contrib_packed_sequences import restore_padding
from ort_core.kernels.reference.attention.head_attention import split_heads


def buckets(queries: int, keys: int, count: int, max_distance: int, *, bidirectional: bool) -> np.ndarray:
    """Return the bucket (queries, keys) of each distance: exact for near ones, logarithmic up to the greatest."""
    distance = np.arange(keys)[None, :] - np.arange(queries)[:, None]
    base = np.zeros_like(distance)
    if bidirectional:
        count //= 2
        base = np.where(distance > 0, count, 0)
        distance = np.abs(distance)
    else:
        distance = np.maximum(-distance, 0)
    exact = count // 2
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / exact) / math.log(max_distance / exact)
    far = np.minimum(exact + (ratio * (count - exact)).astype(np.int64), count - 1)
    return base + np.where(distance < exact, distance, far)


@kernel("RelativePositionBias", domain="com.microsoft")
def relative_position_bias(
    bias_table: np.ndarray,
    query_length: np.ndarray,
    key_length: np.ndarray,
    *,
    max_distance: int,
    is_bidirectional: int = 0,
) -> np.ndarray:
    """The bias (1, heads, queries, keys) from a table (buckets, heads) that lies column by column in memory."""
    count, heads = bias_table.shape
    index = buckets(
        int(query_length.reshape(())),
        int(key_length.reshape(())),
        count,
        max_distance,
        bidirectional=bool(is_bidirectional),
    )
    return bias_table.reshape(heads, count)[:, index][None]


@kernel("GatedRelativePositionBias", domain="com.microsoft")
def gated_relative_position_bias(
    query_layer: np.ndarray,
    query_bias: np.ndarray,
    rel_pos: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    eco_a: np.ndarray,
    token_offset: np.ndarray | None = None,
    *,
    num_heads: int,
) -> np.ndarray:
    """(u * (r * eco_a - 1) + 2) * rel_pos with gates u, r = sigmoid of the summed halves of query @ weight + bias."""
    query = query_layer if token_offset is None else restore_padding(query_layer, token_offset)
    heads = split_heads(widen(query) + widen(query_bias), num_heads)
    halves = heads @ widen(weight) + widen(bias)
    gates = sigmoid(halves.reshape(*halves.shape[:-1], 2, -1).sum(axis=-1))
    update, reset = gates[..., 0:1], gates[..., 1:2]
    return narrow((update * (reset * widen(eco_a) - 1) + 2) * widen(rel_pos), query_layer.dtype)
