"""GroupQueryAttention: several query heads per key/value head, caches, rotary positions, local windows, sinks."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.widening import narrow, widen
from ort_core.kernels.reference.attention.attention_operands import Inputs, heads_of
from ort_core.kernels.reference.attention.cache_windows import CacheLayout, keep, lay_out, stage
from ort_core.kernels.reference.attention.contrib_rotary import rotate
from ort_core.kernels.reference.attention.head_attention import attend, merge_heads
from ort_core.kernels.reference.attention.quantized_caches import read_cache, write_cache
from ort_core.kernels.reference.normalization.contrib_normalization import rms_norm
from ort_core.ops.attention import AttentionRecord, Rotary
from ort_core.ops.attention_forms import call_attention

Optional = np.ndarray | None


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


def rotate_new(heads: np.ndarray, positions: np.ndarray, rotary: Rotary, inputs: Inputs) -> np.ndarray:
    """Rotate (B, N, S, H) by the caches' rows at (B, S) positions."""
    cos_cache, sin_cache = (None if index is None else inputs[index] for index in (rotary.cos, rotary.sin))
    if cos_cache is None or sin_cache is None:
        raise errors.InvalidArgument("do_rotary needs the inputs cos_cache and sin_cache")
    wrong = (positions < 0) | (positions >= cos_cache.shape[0])
    if wrong.any():
        raise errors.InvalidArgument(
            f"position {int(positions[wrong][0])} is out of range for rotary cache dimension 0 ({cos_cache.shape[0]})"
        )
    return rotate(
        heads, widen(cos_cache)[positions][:, None], widen(sin_cache)[positions][:, None], rotary.is_interleaved
    )


def _visible(layout: CacheLayout, lengths: np.ndarray, columns: int, record: AttentionRecord) -> np.ndarray:
    """Return the bool (B, 1, S, columns) of what each new token may attend to."""
    row = np.arange(columns)[None, None, None, :]
    # The staged row of each new token; of a padded prompt, too, the first tokens are the valid ones.
    own = layout.resident[:, None, None, None] + np.arange(layout.fresh)[None, None, :, None]
    valid = row < (lengths - layout.first_position)[:, None, None, None]
    if not record.is_causal:
        return np.broadcast_to(valid, (lengths.size, 1, layout.fresh, columns))
    own = np.minimum(own, (lengths - layout.first_position)[:, None, None, None] - 1)  # padding: from the last key
    seen = (row <= own) & valid
    if record.left is not None:
        seen &= row >= own - record.left
    return seen


def _bias_columns(bias: np.ndarray, layout: CacheLayout, columns: int) -> np.ndarray:
    """Return the columns of an attention bias that stand for the staged rows."""
    wide = widen(bias)
    if not layout.first_position.any():
        return wide[..., :columns]
    index = np.minimum(layout.first_position[:, None] + np.arange(columns), wide.shape[-1] - 1)
    full = np.broadcast_to(wide, (layout.total.size, *wide.shape[1:]))
    return np.take_along_axis(full, index[:, None, None, :], axis=-1)


def _check_window(record: AttentionRecord, capacity: int) -> None:
    if not record.is_causal and record.left is not None:
        raise errors.InvalidArgument("GroupQueryAttention (CPU): local_window_size must be -1 when causal is 0.")
    if record.slides and (record.left is None or record.left < 0 or capacity <= record.left):
        raise errors.InvalidArgument(
            f"sliding_window_cache needs local_window_size > 0 and a cache of at least that length; found "
            f"{-1 if record.left is None else record.left + 1} and {capacity}"
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
    inputs = (
        query, key, value, past_key, past_value, seqlens_k, total_sequence_length, cos_cache, sin_cache, position_ids,
        attention_bias, head_sink, k_scale, v_scale, q_norm_weight, k_norm_weight,
    )  # fmt: skip
    record = call_attention(
        "GroupQueryAttention", "com.microsoft", inputs, ctx.output_present, causal=causal, do_rotary=do_rotary,
        k_norm_epsilon=k_norm_epsilon, k_quant_type=k_quant_type, kv_cache_bit_width=kv_cache_bit_width,
        kv_num_heads=kv_num_heads, local_window_size=local_window_size, num_heads=num_heads,
        q_norm_epsilon=q_norm_epsilon, qk_norm_epsilon=qk_norm_epsilon, qk_output=qk_output,
        rotary_interleaved=rotary_interleaved, scale=scale, sliding_window_cache=sliding_window_cache,
        smooth_softmax=smooth_softmax, softcap=softcap, v_quant_type=v_quant_type,
    )  # fmt: skip
    capacity = 0 if past_key is None else past_key.shape[2]
    _check_window(record, capacity)
    if query_seqlens is not None:
        raise errors.InvalidArgument("GroupQueryAttention: query_seqlens is not supported, as on onnxruntime's CPU")
    lengths = check_lengths(seqlens_k, total_sequence_length, query.shape[0], 1 << 62 if record.slides else capacity)
    longest = int(total_sequence_length.reshape(()))
    queries, keys, values = heads_of(record, inputs)
    fresh = queries.shape[2]
    if longest > capacity and longest != capacity + keys.shape[2] and not record.slides:
        raise errors.InvalidArgument(
            f"total_sequence_length must equal past_sequence_length + kv_sequence_length for a dynamic cache, or be no "
            f"greater than past_sequence_length for a static cache. Got total_sequence_length={longest}, "
            f"past_sequence_length={capacity}, kv_sequence_length={keys.shape[2]}."
        )
    if record.norms is not None and q_norm_weight is not None and k_norm_weight is not None:
        queries = rms_norm(queries, record.norms.epsilons[0])[0] * widen(q_norm_weight)
        keys = rms_norm(keys, record.norms.epsilons[1])[0] * widen(k_norm_weight)
    if record.rotary is not None:
        positions = rotary_positions(lengths, fresh, position_ids)
        queries = rotate_new(queries, positions, record.rotary, inputs)
        keys = rotate_new(keys, positions, record.rotary, inputs) if keys.shape[2] else keys

    window = local_window_size if record.slides else 0
    layout = lay_out(lengths, fresh, capacity, window, holds_new=keys.shape[2] == 0)
    present_length = capacity if record.slides else max(capacity, longest)
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
    if sink is None and record.has_zero_sink:
        sink = np.zeros(num_heads, np.float32)
    result = attend(
        queries,
        staged[0],
        staged[1],
        factor=record.factor(queries.shape[3]),
        bias=None if attention_bias is None else _bias_columns(attention_bias, layout, columns),
        allowed=_visible(layout, lengths, columns, record),
        softcap=record.softcap,
        sink=sink,
    )
    scores = {1: result.scores, 2: result.weights}.get(qk_output)
    return (
        narrow(merge_heads(result.output), query.dtype),
        presents[0],
        presents[1],
        None if scores is None else narrow(scores, query.dtype),
    )
