"""Queries, keys and values as heads, and what lies before them in a cache, from a record and the arrays of a call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.reference.arrays.widening import widen
from ort_core.ops.attention import AttentionRecord, Cache, Growth, HeadSource, Layout, Projection

Inputs = Sequence[np.ndarray | None]
ThreeHeads = tuple[np.ndarray, np.ndarray, np.ndarray]


def sources(record: AttentionRecord) -> tuple[HeadSource, HeadSource, HeadSource]:
    """Return where queries, keys and values come from."""
    return record.query, record.key, record.value


def part_of(source: HeadSource, array: np.ndarray) -> np.ndarray:
    """Return what a source names in an array as [..., heads, size], whatever lies in front (batch and length, tokens).

    Raises:
        InvalidArgument: the heads do not divide the columns, or the array has other axes.
    """
    heads, first = source.heads, source.first
    if source.layout is Layout.HEADS:
        return array.swapaxes(1, 2)
    if source.layout is Layout.PARTS and isinstance(first, int):
        return array[..., first, :]
    columns = array
    if source.is_part and isinstance(first, int) and isinstance(heads, int) and isinstance(source.size, int):
        columns = array[..., first : first + heads * source.size]
    if source.layout is None or not isinstance(heads, int) or heads < 1 or columns.shape[-1] % heads:
        raise InvalidArgument(
            f"attention input of shape {array.shape} with {heads} heads: expected rank 4, or rank 3 with the numbers "
            "of heads given and dividing the last dimension"
        )
    return columns.reshape(*columns.shape[:-1], heads, columns.shape[-1] // heads)


def heads_of(record: AttentionRecord, inputs: Inputs, projected: np.ndarray | None = None) -> ThreeHeads:
    """Return queries, keys and values as float [batch, heads, length, size], with their bias.

    Args:
        record: what the node means.
        inputs: the arrays of its call.
        projected: the product with queries, keys and values side by side, where there is a projection.

    Raises:
        InvalidArgument: keys or values are missing, or do not divide into heads.
    """
    q, k, v = (each.swapaxes(1, 2) for each in with_bias(record, inputs, parts_of(record, inputs, projected)))
    return q, k, v


def parts_of(record: AttentionRecord, inputs: Inputs, projected: np.ndarray | None = None) -> ThreeHeads:
    """Return queries, keys and values as float [..., heads, size]. Arguments and errors as for ``heads_of``."""
    found = []
    for source in sources(record):
        array = projected if source.input is None else inputs[source.input]
        if array is None:
            raise InvalidArgument("key and value may be omitted only when query packs QKV or key packs KV")
        found.append(part_of(source, widen(array)))
    return found[0], found[1], found[2]


def with_bias(record: AttentionRecord, inputs: Inputs, parts: ThreeHeads) -> ThreeHeads:
    """Return [..., heads, size] with the bias of those that it is for."""
    bias = None if record.bias is None else inputs[record.bias]
    if bias is None:
        return parts
    if record.biased == 1:
        query, key, value = parts
        return query + widen(bias)[: query.shape[-2] * query.shape[-1]].reshape(query.shape[-2:]), key, value
    ends = np.cumsum([part.shape[-2] * part.shape[-1] for part in parts])
    shifts = np.split(widen(bias), ends[:2])
    shifted = [part + shift.reshape(part.shape[-2:]) for part, shift in zip(parts, shifts, strict=True)]
    return shifted[0], shifted[1], shifted[2]


def projected_by(projection: Projection, inputs: Inputs, heads: int) -> np.ndarray:
    """Return the float product of the input with its weights, and its bias.

    Raises:
        InvalidArgument: shapes do not fit each other, or the heads do not divide the columns.
    """
    x, weights = inputs[projection.input], inputs[projection.weights]
    assert x is not None, "the schema requires it"
    assert weights is not None, "the schema requires it"
    if x.ndim not in (2, 3) or weights.ndim != 2 or x.shape[-1] != weights.shape[0]:
        raise InvalidArgument(
            f"input must be (batch, sequence, width) and weights (width, 3 * hidden); found {x.shape}, {weights.shape}"
        )
    check_widths(projection, weights.shape[1], heads)
    bias = None if projection.bias is None else inputs[projection.bias]
    projected = np.matmul(widen(x), widen(weights))
    return projected if bias is None else projected + widen(bias)


def check_widths(projection: Projection, columns: int, heads: int) -> None:
    """Refuse columns that are not those of queries, keys and values, or do not divide into heads."""
    widths = [width for width in projection.widths if isinstance(width, int)]
    if len(widths) != 3 or sum(widths) != columns or any(width % heads for width in widths):
        raise InvalidArgument(
            f"weights of {columns} columns cannot be split into Q, K, V of {projection.widths} with {heads} heads"
        )


def behind_cache(cache: Cache | None, inputs: Inputs, which: int, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (what attention sees, what to output) of keys (``which`` 0) or values (1) behind those of before.

    In a buffer there are spare rows: the new ones are written at its start, and the buffer is output.
    """
    index = None if cache is None else (cache.key, cache.value)[which]
    given = None if index is None else inputs[index]
    if cache is None or given is None:
        return new, new
    past = widen(given[which] if cache.is_one_tensor else given)
    if past.ndim != 4 or (*past.shape[:2], past.shape[3]) != (*new.shape[:2], new.shape[3]):
        raise InvalidArgument(
            f"a past of shape {past.shape} does not go on with new keys or values of shape {new.shape}: batch, heads "
            "and head size must be equal"
        )
    if cache.growth is not Growth.BUFFER:
        joined = np.concatenate([past, new], axis=2)
        return joined, joined
    start = cached_rows(cache, inputs)
    if start < 0 or start + new.shape[2] > past.shape[2]:
        raise InvalidArgument(
            f"past_sequence_length {start} and {new.shape[2]} new tokens do not fit the buffer of {past.shape[2]}"
        )
    buffer = past.copy()
    buffer[:, :, start : start + new.shape[2]] = new
    return buffer[:, :, : start + new.shape[2]], buffer


def cached_rows(cache: Cache | None, inputs: Inputs) -> int:
    """Return how many rows lie before the new ones: as an input says, else none of a buffer and all of a past."""
    start = None if cache is None or cache.start is None else inputs[cache.start]
    if start is not None:
        return int(start.reshape(-1)[0])
    if cache is None or cache.key is None or cache.growth is Growth.BUFFER:
        return 0
    return cache.rows if isinstance(cache.rows, int) else 0
