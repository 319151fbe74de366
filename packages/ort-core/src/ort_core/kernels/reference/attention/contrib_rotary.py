"""Rotary position embeddings: com.microsoft's RotaryEmbedding, its multimodal form and Gemma's."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.widening import narrow, widen


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: int) -> np.ndarray:
    """Rotate pairs of the last axis of ``x`` by angles whose cosines and sines broadcast to (..., pairs).

    Pairs are (2i, 2i + 1) when interleaved, else (i, i + pairs); what lies beyond 2 * pairs is kept.
    """
    pairs = cos.shape[-1]
    turned, kept = x[..., : 2 * pairs], x[..., 2 * pairs :]
    if interleaved:
        real, imaginary = turned[..., 0::2], turned[..., 1::2]
    else:
        real, imaginary = turned[..., :pairs], turned[..., pairs:]
    new_real = real * cos - imaginary * sin
    new_imaginary = real * sin + imaginary * cos
    if interleaved:
        rotated = np.stack([new_real, new_imaginary], axis=-1).reshape(*new_real.shape[:-1], 2 * pairs)
    else:
        rotated = np.concatenate([new_real, new_imaginary], axis=-1)
    return np.concatenate([rotated, kept], axis=-1)


def rotate_by_position(x: np.ndarray, positions: np.ndarray, width: int = 0) -> np.ndarray:
    """Rotate (B, N, S, H) with the angles position / 10000^(2i / width), computed here instead of cached."""
    size = width or x.shape[-1]
    frequencies = 10000.0 ** (-np.arange(0, size, 2) / size)
    angles = positions[:, None] * frequencies
    return rotate(x, np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype), 0)


def _as_heads(x: np.ndarray, num_heads: int, rotary_dim: int, cache_width: int) -> tuple[np.ndarray, int]:
    """Return ``x`` as (B, S, N, H), and H."""
    if x.ndim == 4:
        heads = x.transpose(0, 2, 1, 3)
        size = x.shape[3]
    elif x.ndim == 3:
        hidden = x.shape[2]
        if num_heads and hidden % num_heads:
            raise errors.InvalidArgument(
                f"hidden_size={hidden} must be divisible by num_heads={num_heads} for rank-3 input"
            )
        size = hidden // num_heads if num_heads else 2 * cache_width
        if size > hidden:
            raise errors.InvalidArgument(
                f"Head size {size} inferred from cos_cache exceeds input hidden_size {hidden}; set num_heads"
            )
        if size == 0 or hidden % size:
            raise errors.InvalidArgument(f"hidden_size={hidden} must be a multiple of the head size {size}")
        heads = x.reshape(*x.shape[:2], hidden // size, size)
    else:
        raise errors.InvalidArgument(f"Input 'input' is expected to have 3 or 4 dimensions, got {x.ndim}")
    if cache_width not in (size // 2, rotary_dim // 2 if rotary_dim else -1):
        raise errors.InvalidArgument(
            "Input 'cos_cache' dimension 1 should be same as head_size / 2 or rotary_embedding_dim / 2, "
            f"got {cache_width}"
        )
    return heads, size


def _restore(heads: np.ndarray, x: np.ndarray) -> np.ndarray:
    return narrow(heads.transpose(0, 2, 1, 3) if x.ndim == 4 else heads.reshape(x.shape), x.dtype)


def check_positions(position_ids: np.ndarray, batch: int, length: int, limit: int) -> np.ndarray:
    """Return (batch, length) positions from a single start or a full table, within a cache of ``limit`` rows."""
    if position_ids.size == 1 and position_ids.ndim <= 1:
        start = int(position_ids.reshape(()))
        if start < 0 or start + length > limit:
            raise errors.InvalidArgument(
                f"position_ids base value {start} with sequence_length {length} exceeds cos/sin cache range "
                f"[0, {limit})"
            )
        return np.broadcast_to(start + np.arange(length), (batch, length))
    if position_ids.shape != (batch, length):
        raise errors.InvalidArgument(
            f"Input 'position_ids' must have shape (1) or ({batch}, {length}), found {position_ids.shape}"
        )
    wrong = np.flatnonzero((position_ids < 0) | (position_ids >= limit))
    if wrong.size:
        value = int(position_ids.ravel()[wrong[0]])
        raise errors.InvalidArgument(
            f"position_ids value {value} at index {wrong[0]} is out of range [0, {limit}) of the cos/sin cache"
        )
    return position_ids


@kernel("RotaryEmbedding", domain="com.microsoft")
def rotary_embedding(
    x: np.ndarray,
    position_ids: np.ndarray,
    cos_cache: np.ndarray,
    sin_cache: np.ndarray,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> np.ndarray:
    """Rotate each head by its token's position; ``scale`` and packed batching change nothing on onnxruntime's CPU."""
    heads, _ = _as_heads(widen(x), num_heads, rotary_embedding_dim, cos_cache.shape[1])
    positions = check_positions(position_ids, heads.shape[0], heads.shape[1], cos_cache.shape[0])
    cos, sin = widen(cos_cache)[positions][:, :, None], widen(sin_cache)[positions][:, :, None]
    return _restore(rotate(heads, cos, sin, interleaved), x)


def _stream_of_pair(sections: tuple[int, ...], interleaved_layout: bool) -> np.ndarray:
    """Return, for each rotary pair, which of the three position streams turns it."""
    if not interleaved_layout:
        return np.repeat(np.arange(3), sections)
    pair = np.arange(sum(sections))
    stream = np.zeros(pair.size, np.int64)
    for offset in (1, 2):
        stream[(pair % 3 == offset) & (pair < sections[offset] * 3)] = offset
    return stream


@kernel("MRotaryEmbedding", domain="com.microsoft")
def multimodal_rotary_embedding(
    x: np.ndarray,
    position_ids: np.ndarray,
    cos_cache: np.ndarray,
    sin_cache: np.ndarray,
    *,
    mrope_section: tuple[int, ...],
    interleaved: int = 0,
    is_packed_batching: int = 0,
    mrope_layout: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> np.ndarray:
    """Rotate each head by its token's time, height and width positions, each turning its section of the pairs.

    ``scale`` multiplies what is turned, as in onnxruntime, and leaves the rest of each head as it is.
    """
    heads, _ = _as_heads(widen(x), num_heads, rotary_embedding_dim, cos_cache.shape[1])
    pairs = cos_cache.shape[1]
    if mrope_layout not in (0, 1):
        raise errors.InvalidArgument(f"mrope_layout is {mrope_layout}, expected 0 (sections) or 1 (interleaved)")
    if len(mrope_section) != 3 or min(mrope_section) < 0 or sum(mrope_section) != pairs:
        raise errors.InvalidArgument(
            f"the sum of 'mrope_section' {tuple(mrope_section)} must be {pairs}, half of the rotary dimension, "
            f"in three non-negative parts"
        )
    if position_ids.shape != (3, *heads.shape[:2]):
        raise errors.InvalidArgument(
            f"position_ids must have shape (3, {heads.shape[0]}, {heads.shape[1]}), found {position_ids.shape}"
        )
    if ((position_ids < 0) | (position_ids >= cos_cache.shape[0])).any():
        raise errors.InvalidArgument(f"position_ids out of range [0, {cos_cache.shape[0]}) of the cos/sin cache")
    rows = position_ids[_stream_of_pair(mrope_section, bool(mrope_layout))].transpose(1, 2, 0)
    columns = np.arange(pairs)
    factor = np.float32(scale)
    cos, sin = (widen(cache)[rows, columns][:, :, None] * factor for cache in (cos_cache, sin_cache))
    return _restore(rotate(heads, cos, sin, interleaved), x)


@kernel("GemmaRotaryEmbedding", domain="com.microsoft")
def gemma_rotary_embedding(
    emb: np.ndarray, q: np.ndarray, q_rot: np.ndarray, k: np.ndarray, k_rot: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return q * cos(emb) + q_rot * sin(emb), and the same for k; cosines and sines are rounded to the type of q."""
    sin = widen(np.sin(emb).astype(q.dtype))[:, None]
    cos = widen(np.cos(emb).astype(q.dtype))[:, None]
    turned_q = widen(q) * cos + widen(q_rot) * sin
    turned_k = widen(k) * cos + widen(k_rot) * sin
    return narrow(turned_q, q.dtype), narrow(turned_k, q.dtype)
