"""GroupQueryAttention: several query heads per key/value head, caches, rotary positions, local windows, sinks."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.cache_windows import CacheLayout, keep, lay_out, stage
from ort_core.kernels.reference.contrib_normalization import rms_norm
from ort_core.kernels.reference.contrib_rotary import rotate
from ort_core.kernels.reference.head_attention import attend, merge_heads, split_heads
from ort_core.kernels.reference.quantized_caches import read_cache, write_cache
from ort_core.kernels.reference.widening import narrow, widen

Optional = np.ndarray | None


def split_query_key_value(
    query: np.ndarray, key: Optional, value: Optional, heads: int, kv_heads: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return float heads (B, N, S, H) of separate inputs, or of one that packs queries, keys and values."""
    if key is not None and value is not None:
        return split_heads(widen(query), heads), split_heads(widen(key), kv_heads), split_heads(widen(value), kv_heads)
    if query.shape[2] % (heads + 2 * kv_heads):
        raise errors.InvalidArgument(
            f"packed QKV of width {query.shape[2]} is no multiple of {heads + 2 * kv_heads} heads"
        )
    packed = split_heads(widen(query), heads + 2 * kv_heads)
    return packed[:, :heads], packed[:, heads : heads + kv_heads], packed[:, heads + kv_heads :]


def check_lengths(seqlens_k: np.ndarray, total: np.ndarray, batch: int, capacity: int) -> np.ndarray:
    """Return the total length per batch entry (seqlens_k + 1), once shapes and ranges are checked.

    A length may pass ``total`` as long as the cache of ``capacity`` rows holds it.
    """
    if seqlens_k.ndim > 2 or (seqlens_k.ndim == 2 and 1 not in seqlens_k.shape):
        raise errors.InvalidArgument(f"seqlens_k has unexpected shape {seqlens_k.shape}; expected ({batch},)")
    if seqlens_k.size != batch:
        raise errors.InvalidArgument(f"seqlens_k must have batch_size ({batch}) elements, found {seqlens_k.size}")
    if total.size != 1:
        raise errors.InvalidArgument(f"total_sequence_length must be a scalar, found shape {total.shape}")
    longest = int(total.reshape(()))
    if longest <= 0:
        raise errors.InvalidArgument(f"total_sequence_length must be positive, found {longest}")
    lengths = seqlens_k.reshape(-1).astype(np.int64) + 1
    limit = max(longest, capacity)
    for index in np.flatnonzero((lengths < 1) | (lengths > limit))[:1]:
        raise errors.InvalidArgument(f"seqlens_k[{index}] = {int(lengths[index]) - 1} is out of range [0, {limit - 1}]")
    return lengths


def rotary_positions(lengths: np.ndarray, fresh: int, position_ids: Optional) -> np.ndarray:
    """Return the (batch, fresh) positions of the new tokens."""
    if position_ids is not None and position_ids.shape == (lengths.size, fresh):
        return position_ids
    return np.maximum(lengths - fresh, 0)[:, None] + np.arange(fresh)


def rotate_new(
    heads: np.ndarray, positions: np.ndarray, cos_cache: Optional, sin_cache: Optional, interleaved: int
) -> np.ndarray:
    """Rotate (B, N, S, H) by the caches' rows at (B, S) positions."""
    if cos_cache is None or sin_cache is None:
        raise errors.InvalidArgument("do_rotary needs the inputs cos_cache and sin_cache")
    wrong = (positions < 0) | (positions >= cos_cache.shape[0])
    if wrong.any():
        raise errors.InvalidArgument(
            f"position {int(positions[wrong][0])} is out of range for rotary cache dimension 0 ({cos_cache.shape[0]})"
        )
    return rotate(heads, widen(cos_cache)[positions][:, None], widen(sin_cache)[positions][:, None], interleaved)


def _visible(layout: CacheLayout, lengths: np.ndarray, columns: int, *, causal: bool, local_window: int) -> np.ndarray:
    """Return the bool (B, 1, S, columns) of what each new token may attend to."""
    row = np.arange(columns)[None, None, None, :]
    # The staged row of each new token; of a padded prompt, too, the first tokens are the valid ones.
    own = layout.resident[:, None, None, None] + np.arange(layout.fresh)[None, None, :, None]
    valid = row < (lengths - layout.first_position)[:, None, None, None]
    if not causal:
        return np.broadcast_to(valid, (lengths.size, 1, layout.fresh, columns))
    own = np.minimum(own, (lengths - layout.first_position)[:, None, None, None] - 1)  # padding: from the last key
    seen = (row <= own) & valid
    if local_window >= 0:
        seen &= row > own - local_window
    return seen


def _bias_columns(bias: np.ndarray, layout: CacheLayout, columns: int) -> np.ndarray:
    """Return the columns of an attention bias that stand for the staged rows."""
    wide = widen(bias)
    if not layout.first_position.any():
        return wide[..., :columns]
    index = np.minimum(layout.first_position[:, None] + np.arange(columns), wide.shape[-1] - 1)
    full = np.broadcast_to(wide, (layout.total.size, *wide.shape[1:]))
    return np.take_along_axis(full, index[:, None, None, :], axis=-1)


def _check_attributes(causal: int, local_window: int, windowed: int, past_key: Optional) -> None:
    if not causal and local_window != -1:
        raise errors.InvalidArgument("GroupQueryAttention (CPU): local_window_size must be -1 when causal is 0.")
    if windowed and (local_window <= 0 or past_key is None or past_key.shape[2] < local_window):
        raise errors.InvalidArgument(
            f"sliding_window_cache needs local_window_size > 0 and a cache of at least that length; found "
            f"{local_window} and {None if past_key is None else past_key.shape[2]}"
        )


@kernel("GroupQueryAttention", domain="com.microsoft")
def group_query_attention(
    query: np.ndarray,
    key: Optional,
    value: Optional,
    past_key: Optional,
    past_value: Optional,
    seqlens_k: np.ndarray,
    total_sequence_length: np.ndarray,
    cos_cache: Optional = None,
    sin_cache: Optional = None,
    position_ids: Optional = None,
    attention_bias: Optional = None,
    head_sink: Optional = None,
    k_scale: Optional = None,
    v_scale: Optional = None,
    q_norm_weight: Optional = None,
    k_norm_weight: Optional = None,
    query_seqlens: Optional = None,
    *,
    kv_num_heads: int,
    num_heads: int,
    causal: int = 1,
    do_rotary: int = 0,
    k_norm_epsilon: float | None = None,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    local_window_size: int = -1,
    q_norm_epsilon: float | None = None,
    qk_norm_epsilon: float = 9.999999974752427e-07,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float | None = None,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
    ctx: KernelContext,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Attend with grouped heads; also present key and value, and the scores when ``qk_output`` asks for them."""
    _check_attributes(causal, local_window_size, sliding_window_cache, past_key)
    if query_seqlens is not None:
        raise errors.InvalidArgument("GroupQueryAttention: query_seqlens is not supported, as on onnxruntime's CPU")
    capacity = 0 if past_key is None else past_key.shape[2]
    lengths = check_lengths(
        seqlens_k, total_sequence_length, query.shape[0], 1 << 62 if sliding_window_cache else capacity
    )
    longest = int(total_sequence_length.reshape(()))
    queries, keys, values = split_query_key_value(query, key, value, num_heads, kv_num_heads)
    fresh = queries.shape[2]
    if longest > capacity and longest != capacity + keys.shape[2] and not sliding_window_cache:
        raise errors.InvalidArgument(
            f"total_sequence_length must equal past_sequence_length + kv_sequence_length for a dynamic cache, or be no "
            f"greater than past_sequence_length for a static cache. Got total_sequence_length={longest}, "
            f"past_sequence_length={capacity}, kv_sequence_length={keys.shape[2]}."
        )
    if q_norm_weight is not None and k_norm_weight is not None:
        own = (qk_norm_epsilon if each is None else each for each in (q_norm_epsilon, k_norm_epsilon))
        queries = rms_norm(queries, next(own))[0] * widen(q_norm_weight)
        keys = rms_norm(keys, next(own))[0] * widen(k_norm_weight)
    if do_rotary:
        positions = rotary_positions(lengths, fresh, position_ids)
        queries = rotate_new(queries, positions, cos_cache, sin_cache, rotary_interleaved)
        keys = rotate_new(keys, positions, cos_cache, sin_cache, rotary_interleaved)

    layout = lay_out(lengths, fresh, capacity, local_window_size if sliding_window_cache else 0)
    present_length = capacity if sliding_window_cache else max(capacity, longest)
    staged, presents = [], []
    for past, new, cache_scale, kind in (
        (past_key, keys, k_scale, k_quant_type),
        (past_value, values, v_scale, v_quant_type),
    ):
        stored_type = query.dtype if past is None else past.dtype
        stored = stage(past, write_cache(new, stored_type, cache_scale, kind, kv_cache_bit_width), layout)
        presents.append(keep(stored, layout, present_length, past, ctx.guard))
        staged.append(read_cache(stored, cache_scale, kind, kv_cache_bit_width)[..., : new.shape[-1]])

    columns = staged[0].shape[2]
    sink = None if head_sink is None else widen(head_sink)
    if sink is None and smooth_softmax == 1:
        sink = np.zeros(num_heads, np.float32)
    result = attend(
        queries,
        staged[0],
        staged[1],
        scale=scale,
        bias=None if attention_bias is None else _bias_columns(attention_bias, layout, columns),
        allowed=_visible(layout, lengths, columns, causal=bool(causal), local_window=local_window_size),
        softcap=max(softcap, 0.0),
        sink=sink,
    )
    scores = {0: None, 1: result.scores, 2: result.weights}[qk_output]
    return (
        narrow(merge_heads(result.output), query.dtype),
        presents[0],
        presents[1],
        None if scores is None else narrow(scores, query.dtype),
    )
