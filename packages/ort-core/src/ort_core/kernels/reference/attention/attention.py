"""Scaled dot-product attention over heads: ``softmax(scale * Q K' + bias) V``, and its variant with free subgraphs.

Query heads that share a key head are stacked along the query axis, so grouped heads cost one matrix product and no copy
of keys or values. A query that may attend to nothing gives zeros.
"""

from __future__ import annotations

import math

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.ir.types import DataType
from ort_core.kernels.kernel import SubgraphRunner, kernel
from ort_core.kernels.reference.arrays.widening import computing_dtype, narrow, widen
from ort_core.kernels.reference.attention.attention_operands import part_of, sources
from ort_core.ops.attention_forms import call_attention


@kernel("Attention", since=23)
def attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    attn_mask: np.ndarray | None = None,
    past_key: np.ndarray | None = None,
    past_value: np.ndarray | None = None,
    nonpad_kv_seqlen: np.ndarray | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> tuple[np.ndarray, ...]:
    """Return Y, the present key and value, and the scores (or weights) that ``qk_matmul_output_mode`` asks for."""
    if (past_key is None) != (past_value is None):
        raise InvalidArgument("Attention: past_key and past_value must be given together")
    record = call_attention(
        "Attention", "", (q, k, v, attn_mask, past_key, past_value, nonpad_kv_seqlen), (True,) * 4,
        is_causal=is_causal, kv_num_heads=kv_num_heads, left_window_size=left_window_size, q_num_heads=q_num_heads,
        qk_matmul_output_mode=qk_matmul_output_mode, right_window_size=right_window_size, scale=scale, softcap=softcap,
        softmax_precision=softmax_precision,
    )  # fmt: skip
    queries, keys, values = (
        part_of(source, array).swapaxes(1, 2) for source, array in zip(sources(record), (q, k, v), strict=True)
    )
    _check_heads(queries, keys, values)
    past = 0 if past_key is None else past_key.shape[2]
    if past_key is not None and past_value is not None:
        keys, values = np.concatenate([past_key, keys], axis=2), np.concatenate([past_value, values], axis=2)
    offset = (
        _check_lengths(nonpad_kv_seqlen, queries, keys) - queries.shape[2] if nonpad_kv_seqlen is not None else past
    )
    raw, cap = _scores(queries, keys, record.factor(queries.shape[3])), record.softcap
    capped = cap * np.tanh(raw / cap) if cap else raw
    bias = _padding_bias(nonpad_kv_seqlen, keys.shape[2])
    bias = _add(bias, _frontier(queries.shape[2], keys.shape[2], offset, record.left, record.ahead))
    bias = _add(bias, _mask_bias(attn_mask, keys.shape[2], raw.dtype))
    biased = capped if bias is None else capped + bias.astype(capped.dtype, copy=False)
    weights = masked_softmax(biased.astype(np.float64) if record.is_double else biased, bias)
    y = join_heads(grouped_product(weights.astype(raw.dtype, copy=False), widen(values)), q.ndim)
    shown = (raw, capped, biased, weights)[qk_matmul_output_mode % 4]  # of other numbers nobody asks for scores
    return narrow(y, q.dtype), keys, values, narrow(shown, q.dtype)


def split_heads(packed: np.ndarray, heads: int | None) -> np.ndarray:
    """Return [batch, heads, sequence, size] from that or from [batch, sequence, heads * size]."""
    if packed.ndim == 4:
        return packed
    if packed.ndim != 3 or not heads or heads < 0 or packed.shape[2] % heads:
        raise InvalidArgument(
            f"attention input of shape {packed.shape} with {heads} heads: expected rank 4, or rank 3 with the numbers "
            "of heads given and dividing the last dimension"
        )
    return packed.reshape(*packed.shape[:2], heads, packed.shape[2] // heads).transpose(0, 2, 1, 3)


def join_heads(split: np.ndarray, rank: int) -> np.ndarray:
    """Undo ``split_heads`` for a node whose query has ``rank`` axes."""
    if rank == 4:
        return split
    batch, heads, length, size = split.shape
    return split.transpose(0, 2, 1, 3).reshape(batch, length, heads * size)


def _check_heads(queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> None:
    if keys.shape[2] != values.shape[2]:
        raise InvalidArgument(
            f"inconsistent kv_sequence_length (between K and V): {keys.shape[2]} and {values.shape[2]}"
        )
    if keys.shape[1] != values.shape[1] or keys.shape[1] == 0 or queries.shape[1] % keys.shape[1]:
        raise InvalidArgument(
            f"q_num_heads % kv_num_heads must be 0; found {queries.shape[1]} query, {keys.shape[1]} key and "
            f"{values.shape[1]} value heads"
        )
    if queries.shape[3] != keys.shape[3]:
        raise InvalidArgument(f"Q and K have head sizes {queries.shape[3]} and {keys.shape[3]}, expected the same")


def _check_lengths(lengths: np.ndarray, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    if lengths.shape != (queries.shape[0],):
        raise InvalidArgument(f"nonpad_kv_seqlen has shape {lengths.shape}, expected ({queries.shape[0]},)")
    for index, length in enumerate(lengths):
        if not 0 <= length <= keys.shape[2]:
            raise InvalidArgument(f"nonpad_kv_seqlen[{index}] = {length} is out of range [0, {keys.shape[2]}]")
    return lengths


def _scores(queries: np.ndarray, keys: np.ndarray, factor: float) -> np.ndarray:
    """Return ``factor * Q K'``, both scaled by the root so that neither overflows."""
    wide, wide_keys = widen(queries), widen(keys)
    root = wide.dtype.type(math.sqrt(abs(factor)))
    sign = -1 if factor < 0 else 1
    return grouped_product(wide * (root * sign), (wide_keys * root).swapaxes(2, 3))


def grouped_product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the product [B, H, L, A] x [B, G, A, S], where each right head serves ``H / G`` successive left heads."""
    batch, heads, length, inner = left.shape
    groups = right.shape[1]
    if heads == groups:
        return np.asarray(np.matmul(left, right))
    stacked = left.reshape(batch, groups, heads // groups * length, inner)
    return np.asarray(np.matmul(stacked, right)).reshape(batch, heads, length, right.shape[3])


def _padding_bias(lengths: np.ndarray | None, total: int) -> np.ndarray | None:
    """Forbid the keys that are padding: [batch, 1, 1, total]."""
    if lengths is None:
        return None
    return _forbid(np.arange(total) < lengths[:, None])[:, None, None, :]


def _frontier(
    length: int, total: int, offset: np.ndarray | int, left: int | None, right: int | None
) -> np.ndarray | None:
    """Forbid keys after the query (causal) or outside its window; query ``i`` stands at position ``offset + i``."""
    if left is None and right is None:
        return None
    ahead = np.arange(total) - np.arange(length)[:, None] - np.asarray(offset).reshape(-1, 1, 1, 1)
    allowed = np.ones(ahead.shape, bool)
    if left is not None:
        allowed &= ahead >= -left
    if right is not None:
        allowed &= ahead <= right
    return _forbid(allowed)


def _mask_bias(mask: np.ndarray | None, total: int, dtype: np.dtype) -> np.ndarray | None:
    """Turn a mask into something to add; a mask shorter than the keys forbids the rest."""
    if mask is None:
        return None
    bias = _forbid(mask) if mask.dtype == bool else mask.astype(dtype)
    missing = total - bias.shape[-1]
    if missing > 0:
        bias = np.pad(bias, [(0, 0)] * (bias.ndim - 1) + [(0, missing)], constant_values=-np.inf)
    return bias


def _forbid(allowed: np.ndarray) -> np.ndarray:
    return np.where(allowed, np.float32(0), np.float32(-np.inf))


def _add(left: np.ndarray | None, right: np.ndarray | None) -> np.ndarray | None:
    if left is None or right is None:
        return right if left is None else left
    return left + right


def masked_softmax(scores: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Return the softmax over the last axis, with zeros in every row that the bias forbids whole."""
    if scores.shape[-1] == 0:
        return scores
    top = scores.max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        weights = scores - np.where(np.isneginf(top), 0, top)
        np.exp(weights, out=weights)
        total = weights.sum(axis=-1, keepdims=True)
        weights /= np.where(total == 0, 1, total)
    forbidden = None if bias is None else np.isneginf(bias.max(axis=-1, keepdims=True))
    if forbidden is not None and forbidden.any():
        weights = np.where(forbidden, scores.dtype.type(0), weights)
    return weights


@kernel("FlexAttention", domain="ai.onnx.preview")
def flex_attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    *,
    prob_mod: SubgraphRunner | None = None,
    scale: float | None = None,
    score_mod: SubgraphRunner | None = None,
    softmax_precision: int | None = None,
) -> np.ndarray:
    """Attend with scores and weights that subgraphs may change; the subgraphs see ``softmax_precision``."""
    if not q.ndim == k.ndim == v.ndim == 4:
        raise InvalidArgument(f"FlexAttention: Q, K and V have shapes {q.shape}, {k.shape}, {v.shape}, expected rank 4")
    _check_heads(q, k, v)
    seen = DataType(softmax_precision).numpy if softmax_precision else computing_dtype(q.dtype)
    record = call_attention("FlexAttention", "ai.onnx.preview", (q, k, v), scale=scale)
    scores = narrow(_scores(q, k, record.factor(q.shape[3])), seen)
    if score_mod is not None:
        (scores,) = score_mod(scores)
    weights = narrow(masked_softmax(widen(scores), None), seen)
    if prob_mod is not None:
        (weights,) = prob_mod(weights)
    return narrow(grouped_product(widen(weights), widen(v).astype(widen(weights).dtype, copy=False)), v.dtype)
