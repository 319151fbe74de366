"""Batches without padding: sequences packed one after the other, and the attention and convolution over them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.contrib_linear_attention import causal_conv_with_state
from ort_core.kernels.reference.head_attention import attend, merge_heads, split_heads
from ort_core.kernels.reference.widening import narrow, widen, widen_optional

Optional = np.ndarray | None


@kernel("RemovePadding", domain="com.microsoft")
def remove_padding(
    x: np.ndarray, sequence_token_count: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Pack the tokens of right-padded sequences; also where each came from, the cumulated and the greatest length."""
    batch, length = x.shape[:2]
    real = (np.arange(length) < sequence_token_count[:, None]).reshape(-1)
    offsets = np.concatenate([np.flatnonzero(real), np.flatnonzero(~real)]).astype(np.int32)
    ends = np.concatenate([[0], np.cumsum(sequence_token_count)]).astype(np.int32)
    longest = np.array([sequence_token_count.max(initial=0)], np.int32)
    return x.reshape(batch * length, -1)[real], offsets.reshape(batch, length), ends, longest


@kernel("RestorePadding", domain="com.microsoft")
def restore_padding(x: np.ndarray, token_offset: np.ndarray) -> np.ndarray:
    """Put packed tokens back to their places, zeros elsewhere."""
    padded = np.zeros((token_offset.size, *x.shape[1:]), x.dtype)
    padded[token_offset.reshape(-1)[: x.shape[0]]] = x
    return padded.reshape(*token_offset.shape, *x.shape[1:])


def _attend_packed(
    parts: tuple[np.ndarray, np.ndarray, np.ndarray],
    token_offset: np.ndarray,
    ends: np.ndarray,
    attention_bias: Optional,
    heads: int,
    scale: float | None,
) -> np.ndarray:
    """Attend within each sequence of packed (tokens, heads * width) queries, keys and values."""
    query, key, value = (split_heads(restore_padding(part, token_offset), heads) for part in parts)
    allowed = np.arange(token_offset.shape[1]) < np.diff(ends)[:, None, None, None]
    mixed = attend(query, key, value, scale=scale, bias=widen_optional(attention_bias), allowed=allowed)
    flat = merge_heads(mixed.output).reshape(token_offset.size, -1)
    return flat[token_offset.reshape(-1)[: parts[0].shape[0]]]


@kernel("PackedAttention", domain="com.microsoft")
def packed_attention(
    x: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray,
    token_offset: np.ndarray,
    cumulative_sequence_length: np.ndarray,
    attention_bias: Optional = None,
    *,
    num_heads: int,
    qkv_hidden_sizes: tuple[int, ...] = (),
    scale: float | None = None,
) -> np.ndarray:
    """Attention over packed tokens (tokens, width)."""
    sizes = qkv_hidden_sizes or (weights.shape[1] // 3,) * 3
    projected = widen(x) @ widen(weights) + widen(bias)
    query, key, value = np.split(projected, np.cumsum(sizes)[:2], axis=-1)
    result = _attend_packed(
        (query, key, value), token_offset, cumulative_sequence_length, attention_bias, num_heads, scale
    )
    return narrow(result, x.dtype)


@kernel("PackedMultiHeadAttention", domain="com.microsoft")
def packed_multi_head_attention(
    query: np.ndarray,
    key: Optional,
    value: Optional,
    bias: Optional,
    token_offset: np.ndarray,
    cumulative_sequence_length: np.ndarray,
    attention_bias: Optional = None,
    *,
    num_heads: int,
    mask_filter_value: float | None = None,
    scale: float | None = None,
) -> np.ndarray:
    """MultiHeadAttention over packed tokens, separate or as (tokens, heads, 3, width)."""
    if key is None or value is None:
        if query.ndim != 4:
            raise errors.InvalidArgument(f"query of shape {query.shape} without key and value must pack all three")
        parts = [widen(query[:, :, index]).reshape(query.shape[0], -1) for index in range(3)]
    else:
        parts = [widen(query), widen(key), widen(value)]
    if bias is not None:
        widths = np.cumsum([part.shape[1] for part in parts])[:2]
        parts = [part + shift for part, shift in zip(parts, np.split(widen(bias), widths), strict=True)]
    result = _attend_packed(
        (parts[0], parts[1], parts[2]), token_offset, cumulative_sequence_length, attention_bias, num_heads, scale
    )
    return narrow(result, query.dtype)


@kernel("VarlenCausalConvWithState", domain="com.microsoft")
def varlen_causal_conv_with_state(
    x: np.ndarray,
    weight: np.ndarray,
    cumulative_sequence_length: np.ndarray,
    bias: Optional,
    initial_state: np.ndarray,
    capture_count: Optional = None,
    kernel_delta: Optional = None,
    previous_mask: Optional = None,
    *,
    activation: str = "none",
    delta_offset: int = 0,
    dilation: int = 1,
    group_size: int = 1,
    state_update_capacity: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """CausalConvWithState over packed (tokens, channels) requests; also the first tokens that each one asks for."""
    if kernel_delta is not None or previous_mask is not None or delta_offset:
        raise errors.InvalidArgument(
            "VarlenCausalConvWithState: kernel_delta, previous_mask and delta_offset are not supported, as on "
            f"onnxruntime's CPU (groups of {group_size} channels)"
        )
    if (capture_count is None) != (state_update_capacity == 0):
        raise errors.InvalidArgument("capture_count is required exactly when state_update_capacity is positive")
    outputs, states = np.empty_like(x), np.empty_like(initial_state)
    updates = np.zeros((initial_state.shape[0], state_update_capacity, x.shape[1]), x.dtype)
    for request, (begin, end) in enumerate(pairwise(cumulative_sequence_length.tolist())):
        tokens, past = x[None, begin:end].swapaxes(1, 2), initial_state[request : request + 1]
        result, states[request : request + 1] = causal_conv_with_state(
            tokens, weight, bias, past, activation=activation, dilation=dilation
        )
        outputs[begin:end] = result[0].T
        if capture_count is not None:
            count = max(min(int(capture_count[request]), state_update_capacity, end - begin), 0)
            updates[request, :count] = x[begin : begin + count]
    return outputs, states, updates if state_update_capacity else None
