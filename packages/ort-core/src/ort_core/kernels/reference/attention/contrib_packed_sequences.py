"""Batches without padding: sequences packed one after the other, and the attention and convolution over them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.request_ends import request_ends
from ort_core.kernels.reference.arrays.widening import narrow, widen_optional
from ort_core.kernels.reference.attention.attention_operands import Inputs, parts_of, projected_by, with_bias
from ort_core.kernels.reference.attention.contrib_linear_attention import causal_conv_with_state
from ort_core.kernels.reference.attention.head_attention import attend, merge_heads
from ort_core.ops.attention import AttentionRecord
from ort_core.ops.attention_forms import call_attention

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


def _attend_packed(record: AttentionRecord, inputs: Inputs, projected: Optional = None) -> np.ndarray:
    """Attend within each sequence of packed tokens; return (tokens, heads * width)."""
    assert record.tokens is not None, "they are packed"
    offsets, ends = inputs[record.tokens.offsets], inputs[record.tokens.ends]
    assert offsets is not None, "the schema requires it"
    assert ends is not None, "the schema requires it"
    parts = with_bias(record, inputs, parts_of(record, inputs, projected))
    query, key, value = (restore_padding(part, offsets).swapaxes(1, 2) for part in parts)
    allowed = np.arange(offsets.shape[1]) < np.diff(ends)[:, None, None, None]
    bias = widen_optional(None if record.mask is None else inputs[record.mask])
    mixed = attend(query, key, value, factor=record.factor(query.shape[3]), bias=bias, allowed=allowed)
    flat = merge_heads(mixed.output).reshape(offsets.size, -1)
    return flat[offsets.reshape(-1)[: parts[0].shape[0]]]


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
    inputs = (x, weights, bias, token_offset, cumulative_sequence_length, attention_bias)
    record = call_attention(
        "PackedAttention", "com.microsoft", inputs, num_heads=num_heads, qkv_hidden_sizes=qkv_hidden_sizes, scale=scale
    )
    assert record.projection is not None, "it projects"
    projected = projected_by(record.projection, inputs, num_heads)
    return narrow(_attend_packed(record, inputs, projected), x.dtype)


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
    inputs = (query, key, value, bias, token_offset, cumulative_sequence_length, attention_bias)
    record = call_attention("PackedMultiHeadAttention", "com.microsoft", inputs, num_heads=num_heads, scale=scale)
    return narrow(_attend_packed(record, inputs), query.dtype)


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
    ends = request_ends("VarlenCausalConvWithState", cumulative_sequence_length, len(x))
    for request, (begin, end) in enumerate(pairwise(ends)):
        tokens, past = x[None, begin:end].swapaxes(1, 2), initial_state[request : request + 1]
        result, states[request : request + 1] = causal_conv_with_state(
            tokens, weight, bias, past, activation=activation, dilation=dilation
        )
        outputs[begin:end] = result[0].T
        if capture_count is not None:
            count = max(min(int(capture_count[request]), state_update_capacity, end - begin), 0)
            updates[request, :count] = x[begin : begin + count]
    return outputs, states, updates if state_update_capacity else None
