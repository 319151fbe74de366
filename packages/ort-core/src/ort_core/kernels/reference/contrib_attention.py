"""Attention and MultiHeadAttention: dense heads with padding masks, a past, and the decoder's beams."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.contrib_rotary import rotate_by_position
from ort_core.kernels.reference.head_attention import Attended, attend, merge_heads, split_heads
from ort_core.kernels.reference.padding_masks import additive_mask
from ort_core.kernels.reference.widening import narrow, widen, widen_optional

Optional = np.ndarray | None


def append(past: Optional, new: np.ndarray, past_length: Optional, shared: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return (what attention sees, what to output) when ``new`` (B, N, S, H) follows ``past``.

    In a shared buffer the past has spare rows: the new ones are written at ``past_length`` and the buffer is output.
    """
    if past is None:
        return new, new
    if past.ndim != 4 or (*past.shape[:2], past.shape[3]) != (*new.shape[:2], new.shape[3]):
        raise errors.InvalidArgument(
            f"a past of shape {past.shape} does not go on with new keys or values of shape {new.shape}: batch, heads "
            "and head size must be equal"
        )
    if not shared:
        joined = np.concatenate([past, new], axis=2)
        return joined, joined
    start = 0 if past_length is None else int(past_length.reshape(()))
    if start < 0 or start + new.shape[2] > past.shape[2]:
        raise errors.InvalidArgument(
            f"past_sequence_length {start} and {new.shape[2]} new tokens do not fit the buffer of {past.shape[2]}"
        )
    buffer = past.copy()
    buffer[:, :, start : start + new.shape[2]] = new
    return buffer[:, :, : start + new.shape[2]], buffer


def self_attention(
    projected: tuple[np.ndarray, np.ndarray, np.ndarray],
    mask: Optional,
    past: Optional,
    attention_bias: Optional,
    past_length: Optional,
    *,
    scale: float | None,
    mask_filter_value: float | None,
    unidirectional: int,
    shared: bool,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Attend with projected heads (B, N, S, H); return (output (B, S, N*V), present (2, B, N, T, H))."""
    query, key, value = projected
    seen_key, present_key = append(None if past is None else past[0], key, past_length, shared)
    seen_value, present_value = append(None if past is None else past[1], value, past_length, shared)
    bias = additive_mask(
        mask,
        query.shape[0],
        query.shape[2],
        seen_key.shape[2],
        causal=bool(unidirectional),
        filter_value=mask_filter_value,
    )
    if attention_bias is not None:
        bias = attention_bias if bias is None else bias + attention_bias
    result = attend(query, seen_key, seen_value, scale=scale, bias=bias)
    if present_key.shape != present_value.shape:
        # One tensor cannot hold keys and values of different widths: there is no present then.
        return merge_heads(result.output), None
    return merge_heads(result.output), np.stack([present_key, present_value])


@kernel("Attention", domain="com.microsoft")
def attention(
    x: np.ndarray,
    weights: np.ndarray,
    bias: Optional = None,
    mask_index: Optional = None,
    past: Optional = None,
    attention_bias: Optional = None,
    past_sequence_length: Optional = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float | None = None,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: tuple[int, ...] = (),
    rotary_embedding_dim: int = 0,
    scale: float | None = None,
    unidirectional: int = 0,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Project the input to queries, keys and values with one matrix, then attend."""
    if x.ndim != 3 or weights.ndim != 2 or x.shape[2] != weights.shape[0]:
        raise errors.InvalidArgument(
            f"input must be (batch, sequence, width) and weights (width, 3 * hidden); found {x.shape}, {weights.shape}"
        )
    projected = np.matmul(widen(x), widen(weights))
    if bias is not None:
        projected = projected + widen(bias)
    sizes = qkv_hidden_sizes or (weights.shape[1] // 3,) * 3
    if len(sizes) != 3 or sum(sizes) != weights.shape[1] or any(size % num_heads for size in sizes):
        raise errors.InvalidArgument(
            f"weights of {weights.shape[1]} columns cannot be split into Q, K, V of {sizes} with {num_heads} heads"
        )
    query, key, value = (split_heads(p, num_heads) for p in np.split(projected, np.cumsum(sizes)[:2], axis=-1))
    if do_rotary:
        earlier = 0 if past is None else past.shape[3]
        start = earlier if past_sequence_length is None else int(past_sequence_length.reshape(()))
        positions = start + np.arange(x.shape[1])
        query = rotate_by_position(query, positions, rotary_embedding_dim)
        key = rotate_by_position(key, positions, rotary_embedding_dim)
    output, present = self_attention(
        (query, key, value),
        mask_index,
        widen_optional(past),
        widen_optional(attention_bias),
        past_sequence_length,
        scale=scale,
        mask_filter_value=mask_filter_value,
        unidirectional=unidirectional,
        shared=bool(past_present_share_buffer),
    )
    return narrow(output, x.dtype), None if present is None else narrow(present, x.dtype)


def _flat_heads(x: np.ndarray) -> np.ndarray:
    return x.reshape(*x.shape[:2], x.shape[2] * x.shape[3])


def _heads_of(
    query: np.ndarray, key: Optional, value: Optional, bias: Optional, heads: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bring every input layout to (B, N, S, H): packed QKV or KV (5-D), separate (3-D), or given as a past (4-D)."""
    if query.ndim == 5:
        query, key, value = (_flat_heads(query[:, :, :, i]) for i in range(3))
    elif key is not None and key.ndim == 5:
        key, value = (_flat_heads(key[:, :, :, i]) for i in range(2))
    elif key is None or value is None:
        raise errors.InvalidArgument("key and value may be omitted only when query packs QKV or key packs KV")
    assert key is not None
    assert value is not None
    if bias is not None:
        width, parts = query.shape[-1], widen(bias)
        query = query + parts[:width]
        if key.ndim == 3:
            key, value = key + parts[width : 2 * width], value + parts[2 * width :]
    split = [array if array.ndim == 4 else split_heads(array, heads) for array in (query, key, value)]
    return split[0], split[1], split[2]


def _follow_beams(cache: np.ndarray, beams: np.ndarray, length: int) -> np.ndarray:
    """Read each cached position from the beam that produced it: cache (B, N, T, H), beams (batch, beam, max)."""
    batch, width, longest = beams.shape
    if batch * width != cache.shape[0]:
        raise errors.InvalidArgument(
            f"cache_indirection batch {batch} x beam width {width} must equal batch_beam_size {cache.shape[0]}"
        )
    if length > longest:
        raise errors.InvalidArgument(f"cache_indirection covers {longest} positions, the past has {length}")
    used = beams[:, :, :length].astype(np.int64)
    if ((used < 0) | (used >= width)).any():
        raise errors.InvalidArgument(f"cache_indirection beam index out of range: must be in [0, {width})")
    rows = (used + (np.arange(batch) * width)[:, None, None]).reshape(batch * width, length)
    followed = cache.copy()
    followed[:, :, :length] = cache[rows, :, np.arange(length)].transpose(0, 2, 1, 3)
    return followed


def multi_head(
    heads: tuple[np.ndarray, np.ndarray, np.ndarray],
    mask: Optional,
    attention_bias: Optional,
    past: tuple[Optional, Optional],
    past_length: Optional,
    beams: Optional,
    *,
    cross: bool,
    scale: float | None,
    mask_filter_value: float | None,
    unidirectional: int,
) -> tuple[Attended, np.ndarray, np.ndarray]:
    """Attend with heads (B, N, S, H); return the attention and the present key and value."""
    query, key, value = heads
    shared = past_length is not None and past[0] is not None
    if cross:
        seen_key = present_key = key
        seen_value = present_value = value
    else:
        seen_key, present_key = append(past[0], key, past_length, shared)
        seen_value, present_value = append(past[1], value, past_length, shared)
        if beams is not None:
            earlier = seen_key.shape[2] - key.shape[2]
            seen_key = _follow_beams(seen_key, beams, earlier)
            seen_value = _follow_beams(seen_value, beams, earlier)
    bias = additive_mask(
        mask,
        query.shape[0],
        query.shape[2],
        seen_key.shape[2],
        causal=bool(unidirectional),
        filter_value=mask_filter_value,
        past=0 if cross else seen_key.shape[2] - key.shape[2],
    )
    if attention_bias is not None:
        bias = attention_bias if bias is None else bias + attention_bias
    return attend(query, seen_key, seen_value, scale=scale, bias=bias), present_key, present_value


@kernel("MultiHeadAttention", domain="com.microsoft")
def multi_head_attention(
    query: np.ndarray,
    key: Optional = None,
    value: Optional = None,
    bias: Optional = None,
    key_padding_mask: Optional = None,
    attention_bias: Optional = None,
    past_key: Optional = None,
    past_value: Optional = None,
    past_sequence_length: Optional = None,
    cache_indirection: Optional = None,
    *,
    num_heads: int,
    mask_filter_value: float | None = None,
    scale: float | None = None,
    unidirectional: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Self or cross attention over projected queries, keys and values; also present key, present value, scores."""
    result, present_key, present_value = multi_head(
        _heads_of(widen(query), widen_optional(key), widen_optional(value), bias, num_heads),
        key_padding_mask,
        widen_optional(attention_bias),
        (widen_optional(past_key), widen_optional(past_value)),
        past_sequence_length,
        cache_indirection,
        cross=key is not None and key.ndim == 4,
        scale=scale,
        mask_filter_value=mask_filter_value,
        unidirectional=unidirectional,
    )
    cast = query.dtype
    outputs = (merge_heads(result.output), present_key, present_value, result.scores)
    return narrow(outputs[0], cast), narrow(outputs[1], cast), narrow(outputs[2], cast), outputs[3]


@kernel("DecoderMaskedMultiHeadAttention", domain="com.microsoft")
def decoder_masked_multi_head_attention(
    query: np.ndarray,
    key: Optional = None,
    value: Optional = None,
    mask_index: Optional = None,
    attention_bias: Optional = None,
    past_key: Optional = None,
    past_value: Optional = None,
    past_sequence_length: Optional = None,
    beam_width: Optional = None,
    cache_indirection: Optional = None,
    bias: Optional = None,
    *,
    num_heads: int,
    mask_filter_value: float | None = None,
    output_qk: int = 0,
    past_present_share_buffer: int = 0,
    scale: float | None = None,
    ctx: KernelContext,
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None, np.ndarray | None]:
    """One decoding step: attend with one query token to the cache and itself, or to a given key and value (4-D)."""
    cross = key is not None and key.ndim == 4
    packed = widen(query)
    if key is None:
        packed = np.stack(np.split(packed, 3, axis=-1), axis=2).reshape(*query.shape[:2], 3, num_heads, -1)
        packed = packed.swapaxes(2, 3)
    beams = None if beam_width is None or int(beam_width.reshape(())) == 1 else cache_indirection
    result, present_key, present_value = multi_head(
        _heads_of(packed, widen_optional(key), widen_optional(value), bias, num_heads),
        mask_index,
        widen_optional(attention_bias),
        (widen_optional(past_key), widen_optional(past_value)),
        past_sequence_length if past_present_share_buffer else None,
        beams,
        cross=cross,
        scale=scale,
        mask_filter_value=mask_filter_value,
        unidirectional=0,
    )
    cast = query.dtype
    output = narrow(merge_heads(result.output), cast)
    scores = result.scores if output_qk or ctx.output_present[3:] == (True,) else None
    if cross:
        return output, None, None, scores
    return output, narrow(present_key, cast), narrow(present_value, cast), scores


@kernel("DecoderMaskedSelfAttention", domain="com.microsoft")
def decoder_masked_self_attention(
    x: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray,
    mask_index: Optional,
    past: np.ndarray,
    attention_bias: Optional,
    past_sequence_length: np.ndarray,
    beam_width: Optional = None,
    cache_indirection: Optional = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float | None = None,
    past_present_share_buffer: int = 0,
    scale: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """One decoding step of Attention: project one token, add it to the cache, attend to the cache."""
    projected = np.matmul(widen(x), widen(weights)) + widen(bias)
    query, key, value = (split_heads(part, num_heads) for part in np.split(projected, 3, axis=-1))
    if do_rotary:
        position = past_sequence_length.reshape(-1)[:1]
        query, key = rotate_by_position(query, position), rotate_by_position(key, position)
    cache = widen(past)
    result, present_key, present_value = multi_head(
        (query, key, value),
        mask_index,
        widen_optional(attention_bias),
        (cache[0], cache[1]),
        past_sequence_length if past_present_share_buffer else None,
        None if beam_width is None or int(beam_width.reshape(())) == 1 else cache_indirection,
        cross=False,
        scale=scale,
        mask_filter_value=mask_filter_value,
        unidirectional=0,
    )
    present = np.stack([present_key, present_value])
    return narrow(merge_heads(result.output), x.dtype), narrow(present, x.dtype)
