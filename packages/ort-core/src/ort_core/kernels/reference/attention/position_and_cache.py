"""What surrounds attention in a decoder: rotary positions, writing into a cache, and attention with a linear state."""

from __future__ import annotations

import math

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.widening import narrow, widen
from ort_core.kernels.reference.attention.attention import join_heads, split_heads
from ort_core.kernels.reference.attention.linear_states import linear_states


@kernel("RotaryEmbedding", since=23)
def rotary_embedding(
    x: np.ndarray,
    cos_cache: np.ndarray,
    sin_cache: np.ndarray,
    position_ids: np.ndarray | None = None,
    *,
    interleaved: int = 0,
    num_heads: int | None = None,
    rotary_embedding_dim: int = 0,
) -> np.ndarray:
    """Rotate pairs of each head's elements by the angle of their position; elements past the rotary size stay."""
    heads = split_heads(x, num_heads)
    size = rotary_embedding_dim or heads.shape[3]
    if cos_cache.shape[-1] != size // 2 or sin_cache.shape[-1] != size // 2:
        raise InvalidArgument(
            f"Input 'cos_cache' dimension 1 should be same as head_size / 2 or rotary_embedding_dim / 2: "
            f"found {cos_cache.shape} and {sin_cache.shape}, expected {size // 2}"
        )
    cos, sin = (_at_positions(cache, position_ids) for cache in (cos_cache, sin_cache))
    turned = np.array(widen(heads))
    pairs = (slice(0, size, 2), slice(1, size, 2)) if interleaved else (slice(0, size // 2), slice(size // 2, size))
    first, second = (widen(heads)[..., pair] for pair in pairs)
    turned[..., pairs[0]] = cos * first - sin * second
    turned[..., pairs[1]] = sin * first + cos * second
    return narrow(join_heads(turned, x.ndim), x.dtype)


def _at_positions(cache: np.ndarray, position_ids: np.ndarray | None) -> np.ndarray:
    """Return the cache's rows as [batch, 1, sequence, size]."""
    if position_ids is None:
        return widen(cache)[:, None]
    outside = np.flatnonzero((position_ids < 0) | (position_ids >= cache.shape[0]))
    if outside.size:
        value = position_ids.reshape(-1)[outside[0]]
        raise InvalidArgument(
            f"position_ids value {value} at index {outside[0]} is out of range [0, {cache.shape[0] - 1}]"
        )
    return widen(cache)[position_ids][:, None]


@kernel("TensorScatter", since=24)
def tensor_scatter(
    past_cache: np.ndarray,
    update: np.ndarray,
    write_indices: np.ndarray | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> np.ndarray:
    """Return the cache with each sample's update written along ``axis`` from its write index on."""
    if not -past_cache.ndim <= axis < past_cache.ndim or update.ndim != past_cache.ndim:
        raise InvalidArgument(
            f"TensorScatter: axis {axis} is out of range for rank {past_cache.ndim}, or the update {update.shape} has "
            f"other dimensions than the cache {past_cache.shape}"
        )
    axis = axis % past_cache.ndim
    room, length = past_cache.shape[axis], update.shape[axis]
    if mode not in ("linear", "circular"):
        raise InvalidArgument(f"TensorScatter: mode is {mode!r}, expected linear or circular")
    others = [i for i in range(past_cache.ndim) if i != axis]
    if axis == 0 or length > room or any(past_cache.shape[i] != update.shape[i] for i in others):
        raise InvalidArgument(
            f"TensorScatter: update of shape {update.shape} does not fit the cache {past_cache.shape} along axis {axis}"
        )
    starts = np.zeros(past_cache.shape[0], np.int64) if write_indices is None else write_indices
    for sample, start in enumerate(starts):
        if start < 0:
            raise InvalidArgument(f"TensorScatter: write_indices[{sample}] = {start} is negative")
        if mode == "linear" and start + length > room:
            raise InvalidArgument(
                f"TensorScatter: write_indices[{sample}] = {start} with an update of length {length} "
                f"exceeds max_sequence_length {room}"
            )
    out = past_cache.copy()
    if out.size == 0:
        return out
    places = (starts[:, None] + np.arange(length)) % room
    moved = np.moveaxis(out, axis, 1)
    moved[np.arange(out.shape[0])[:, None], places] = np.moveaxis(update, axis, 1)
    return out


@kernel("LinearAttention", since=27)
def linear_attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    past_state: np.ndarray | None = None,
    decay: np.ndarray | None = None,
    beta: np.ndarray | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
    ctx: KernelContext | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Attend through a state matrix per head that each token decays, corrects and adds to, one token after another.

    ``chunk_size`` is a hint for implementations that work on many tokens at once and does not change the result.
    """
    _check_rule(update_rule, decay, beta)
    if q_num_heads <= 0 or kv_num_heads <= 0 or q_num_heads % kv_num_heads:
        raise InvalidArgument(f"q_num_heads {q_num_heads} must be a positive multiple of kv_num_heads {kv_num_heads}")
    q, k, v = (
        widen(split_heads(x, heads)) for x, heads in ((query, q_num_heads), (key, kv_num_heads), (value, kv_num_heads))
    )
    batch, _, length, key_size = q.shape
    state_shape = (batch, kv_num_heads, key_size, v.shape[3])
    if past_state is not None and past_state.shape != state_shape:
        raise InvalidArgument(f"past_state has shape {past_state.shape}, expected {state_shape}")
    state = before = np.zeros(state_shape, q.dtype) if past_state is None else widen(past_state)
    retained = None if decay is None else np.exp(widen(split_heads(decay, kv_num_heads)))
    rate = None if beta is None else widen(beta).transpose(0, 2, 1)[..., None]
    grouped = q.reshape(batch, kv_num_heads, q_num_heads // kv_num_heads, length, key_size)
    out = np.empty((batch, kv_num_heads, grouped.shape[2], length, v.shape[3]), q.dtype)
    for time, state in enumerate(linear_states(before, k, v, retained, rate)):
        if ctx is not None:
            ctx.guard.check()
        out[:, :, :, time] = np.matmul(grouped[:, :, :, time], state)
    out *= q.dtype.type(scale or 1 / math.sqrt(max(key_size, 1)))
    y = join_heads(out.reshape(batch, q_num_heads, length, v.shape[3]), 3)
    return narrow(y, query.dtype), narrow(state, query.dtype if past_state is None else past_state.dtype)


def _check_rule(update_rule: str, decay: np.ndarray | None, beta: np.ndarray | None) -> None:
    if update_rule not in ("linear", "gated", "delta", "gated_delta"):
        raise InvalidArgument(f"update_rule is {update_rule!r}, expected linear, gated, delta or gated_delta")
    for name, given, used in (("decay", decay, "gated" in update_rule), ("beta", beta, "delta" in update_rule)):
        if (given is not None) != used:
            raise InvalidArgument(f"update_rule {update_rule!r} {'requires' if used else 'forbids'} the input {name}")
