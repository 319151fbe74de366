"""PagedAttention: sequences packed one behind the other, whose keys and values lie in blocks that a table names.

A cache is (blocks, rows of a block, key heads, size). Position p of sequence s lies in row ``p % rows`` of block
``table[s, p // rows]``. New keys and values are written first, then every query reads its sequence through the table.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.request_ends import request_ends
from ort_core.kernels.reference.arrays.widening import narrow, widen
from ort_core.kernels.reference.attention.attention_operands import Inputs, parts_of
from ort_core.kernels.reference.attention.contrib_group_query_attention import rotate_new
from ort_core.kernels.reference.attention.head_attention import attend
from ort_core.kernels.reference.attention.quantized_caches import read_cache, write_cache
from ort_core.kernels.reference.normalization.contrib_normalization import rms_norm
from ort_core.ops.attention import AttentionRecord
from ort_core.ops.attention_forms import call_attention

Optional = np.ndarray | None
_BITS = 8  # of a quantized element


class _Sequences:
    """Where the tokens of packed sequences stand, and in which rows of the caches, once all of it is checked."""

    def __init__(
        self, tokens: int, ends: np.ndarray, past: np.ndarray, table: np.ndarray, slots: Optional, cache: np.ndarray
    ) -> None:
        self.bounds = list(pairwise(request_ends("PagedAttention", ends, tokens)))
        count, self._rows, self._blocks = len(self.bounds), cache.shape[1], cache.shape[0]
        if past.shape != (count,) or table.ndim != 2 or table.shape[0] != count:
            raise errors.InvalidArgument(
                f"PagedAttention: cumulative_sequence_length tells {count} sequences; expected past_seqlens ({count},) "
                f"and block_table ({count}, blocks), found {past.shape} and {table.shape}"
            )
        self.past: list[int] = past.tolist()
        self._table = table
        self.rows_of = [self._rows_of(number) for number in range(count)]
        self.positions = np.concatenate(
            [np.arange(begin, begin + end - start) for begin, (start, end) in zip(self.past, self.bounds, strict=True)]
        )
        own = [rows[begin:] for begin, rows in zip(self.past, self.rows_of, strict=True)]
        self.slots = np.concatenate(own) if slots is None else self._given(slots, tokens)

    def _rows_of(self, number: int) -> np.ndarray:
        """Return the rows of the caches that hold the keys of a sequence, the new ones among them."""
        start, end = self.bounds[number]
        length, width = self.past[number] + end - start, self._table.shape[1]
        if self.past[number] < 0 or length > width * self._rows:
            raise errors.InvalidArgument(
                f"PagedAttention: past_seqlens[{number}] = {self.past[number]} and {end - start} new tokens; expected "
                f"0 or more, and no more than {width} blocks of {self._rows} hold"
            )
        used = self._table[number, : -(-length // self._rows)].astype(np.int64)
        for place in np.flatnonzero((used < 0) | (used >= self._blocks))[:1]:
            raise errors.InvalidArgument(
                f"PagedAttention: block_table[{number}, {place}] = {used[place]} is out of range "
                f"[0, {self._blocks - 1}], and the sequence has {length} tokens in blocks of {self._rows}"
            )
        return (used[:, None] * self._rows + np.arange(self._rows)).reshape(-1)[:length]

    def _given(self, slots: np.ndarray, tokens: int) -> np.ndarray:
        limit = self._blocks * self._rows
        if slots.shape != (tokens,):
            raise errors.InvalidArgument(f"PagedAttention: slot_mapping must be ({tokens},), found {slots.shape}")
        for place in np.flatnonzero((slots < -1) | (slots >= limit))[:1]:
            raise errors.InvalidArgument(
                f"PagedAttention: slot_mapping[{place}] = {slots[place]} is out of range [-1, {limit - 1}]"
            )
        return slots.astype(np.int64)


def _check_layout(layout: str, v_head_size: int, rotary_offset: int, cache: np.ndarray, value_cache: Optional) -> None:
    if layout != "SEPARATE" or value_cache is None or v_head_size or rotary_offset:
        raise errors.NotImplemented(
            f"PagedAttention with kv_cache_layout = {layout!r}, v_head_size = {v_head_size} and rotary_offset = "
            f"{rotary_offset} is not implemented: only separate caches of keys and values, whose heads turn from their "
            "first element on, are"
        )
    if cache.dtype == np.uint8:
        raise errors.NotImplemented("PagedAttention with caches of 4 bits (uint8) is not implemented; use int8")


def _stored(new: np.ndarray, cache: np.ndarray, scale: Optional, kind: str) -> np.ndarray:
    """Return new rows (tokens, heads, size) as the cache stores them."""
    return write_cache(new.swapaxes(0, 1)[None], cache.dtype, scale, kind, _BITS)[0].swapaxes(0, 1)


def _written(cache: np.ndarray, new: np.ndarray, slots: np.ndarray, ctx: KernelContext) -> np.ndarray:
    """Return the cache with new rows, in its own memory where the caller has bound that as the output, too."""
    target = cache if cache.ctypes.data in ctx.guard.in_place else cache.copy()
    kept = slots >= 0
    target.reshape(-1, *cache.shape[2:])[slots[kept]] = new[kept]
    return target


def _read(cache: np.ndarray, rows: np.ndarray, scale: Optional, kind: str) -> np.ndarray:
    """Return rows of a cache as floats (1, heads, rows, size)."""
    return read_cache(cache.reshape(-1, *cache.shape[2:])[rows].swapaxes(0, 1)[None], scale, kind, _BITS)


def _visible(record: AttentionRecord, past: int, fresh: int) -> np.ndarray:
    """Return the bool (fresh, past + fresh) of what each new token may attend to."""
    own = past + np.arange(fresh)[:, None]
    place = np.arange(past + fresh)[None, :]
    seen = place <= own if record.is_causal else np.ones((fresh, past + fresh), bool)
    return seen if record.left is None else seen & (place >= own - record.left)


@kernel("PagedAttention", domain="com.microsoft")
def paged_attention(
    query: np.ndarray,
    key: Optional,
    value: Optional,
    key_cache: np.ndarray,
    value_cache: Optional,
    cumulative_sequence_length: np.ndarray,
    past_seqlens: np.ndarray,
    block_table: np.ndarray,
    cos_cache: Optional = None,
    sin_cache: Optional = None,
    slot_mapping: Optional = None,
    head_sink: Optional = None,
    q_norm_weight: Optional = None,
    k_norm_weight: Optional = None,
    k_scale: Optional = None,
    v_scale: Optional = None,
    attention_metadata: Optional = None,
    *,
    kv_num_heads: int,
    num_heads: int,
    do_rotary: int = 0,
    is_causal: int = 1,
    k_cache_dtype: str = "",
    k_quant_type: str = "NONE",
    kv_cache_layout: str = "SEPARATE",
    local_window_size: int = -1,
    qk_norm_epsilon: float | None = None,
    rotary_interleaved: int = 0,
    rotary_offset: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    v_cache_dtype: str = "",
    v_head_size: int = 0,
    v_quant_type: str = "NONE",
    ctx: KernelContext,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Attend within each sequence; also the caches with what is new. ``attention_metadata`` holds hints alone."""
    _check_layout(kv_cache_layout, v_head_size, rotary_offset, key_cache, value_cache)
    assert value_cache is not None, "checked"
    inputs: Inputs = (
        query, key, value, key_cache, value_cache, cumulative_sequence_length, past_seqlens, block_table, cos_cache,
        sin_cache, slot_mapping, head_sink, q_norm_weight, k_norm_weight, k_scale, v_scale,
    )  # fmt: skip
    record = call_attention(
        "PagedAttention", "com.microsoft", inputs, ctx.output_present, do_rotary=do_rotary, is_causal=is_causal,
        k_quant_type=k_quant_type, kv_num_heads=kv_num_heads, local_window_size=local_window_size, num_heads=num_heads,
        qk_norm_epsilon=qk_norm_epsilon, rotary_interleaved=rotary_interleaved, scale=scale, softcap=softcap,
        v_quant_type=v_quant_type,
    )  # fmt: skip
    queries, keys, values = parts_of(record, inputs)
    for name, cache in (("key_cache", key_cache), ("value_cache", value_cache)):
        if cache.ndim != 4 or cache.shape[2:] != keys.shape[1:] or cache.shape[:2] != key_cache.shape[:2]:
            raise errors.InvalidArgument(
                f"PagedAttention: {name} has the shape {cache.shape}; expected (blocks, rows, {keys.shape[1]}, "
                f"{keys.shape[2]}), the same blocks and rows in both caches"
            )
    if not key_cache.shape[1]:
        raise errors.InvalidArgument(f"PagedAttention: key_cache of shape {key_cache.shape} has blocks of no rows")
    places = _Sequences(len(query), cumulative_sequence_length, past_seqlens, block_table, slot_mapping, key_cache)
    if record.norms is not None and q_norm_weight is not None and k_norm_weight is not None:
        queries = rms_norm(queries, record.norms.epsilons[0])[0] * widen(q_norm_weight)
        keys = rms_norm(keys, record.norms.epsilons[1])[0] * widen(k_norm_weight)
    if record.rotary is not None:
        queries, keys = (
            rotate_new(each.swapaxes(0, 1)[None], places.positions[None], record.rotary, inputs)[0].swapaxes(0, 1)
            for each in (queries, keys)
        )
    caches = [
        _written(cache, _stored(new, cache, factor, kind), places.slots, ctx)
        for cache, new, factor, kind in (
            (key_cache, keys, k_scale, k_quant_type), (value_cache, values, v_scale, v_quant_type),
        )
    ]  # fmt: skip
    found = np.zeros((*queries.shape[:2], values.shape[2]), queries.dtype)
    sink = None if head_sink is None else widen(head_sink)
    for (start, end), past, rows in zip(places.bounds, places.past, places.rows_of, strict=True):
        if start == end:
            continue
        ctx.guard.check()
        mixed = attend(
            queries[start:end].swapaxes(0, 1)[None],
            _read(caches[0], rows, k_scale, k_quant_type),
            _read(caches[1], rows, v_scale, v_quant_type),
            factor=record.factor(queries.shape[2]),
            allowed=_visible(record, past, end - start),
            softcap=record.softcap,
            sink=sink,
        )
        found[start:end] = mixed.output[0].swapaxes(0, 1)
    return narrow(found.reshape(len(found), found.shape[1] * found.shape[2]), query.dtype), caches[0], caches[1]
