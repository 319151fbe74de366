"""Attention with a recurrent state instead of a cache: LinearAttention, its gates, the causal convolution."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.gates import sigmoid, silu, softplus
from ort_core.kernels.reference.arrays.widening import narrow, widen, widen_optional
from ort_core.kernels.reference.attention.linear_states import linear_states

Optional = np.ndarray | None
_MAX_WINDOW = 8


def _check_window(state_window: int) -> None:
    if not 0 <= state_window <= _MAX_WINDOW:
        raise errors.InvalidArgument(f"state_window must be in [0, {_MAX_WINDOW}], found {state_window}")


def _windowed(states: list[np.ndarray], window: int) -> np.ndarray:
    """Return the last ``window`` of ``states`` (the first is from before), right-aligned on a new first axis."""
    if not window:
        return states[-1]
    chosen = states[1:][-window:]
    missing = [np.zeros_like(states[-1])] * (window - len(chosen))
    return np.stack([*missing, *chosen])


@kernel("LinearAttention", domain="com.microsoft")
@np.errstate(all="ignore")  # what is not finite
def linear_attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    past_state: Optional = None,
    decay: Optional = None,
    beta: Optional = None,
    *,
    kv_num_heads: int,
    q_num_heads: int,
    chunk_size: int = 64,
    scale: float = 0.0,
    state_window: int = 0,
    update_rule: str = "gated_delta",
) -> tuple[np.ndarray, np.ndarray]:
    """Per token: S = exp(g) S + beta k (v - exp(g) S'k)' (without what the rule leaves out); y = scale q'S."""
    _check_window(state_window)
    gated, delta = update_rule in ("gated", "gated_delta"), update_rule in ("delta", "gated_delta")
    if update_rule not in ("linear", "gated", "delta", "gated_delta"):
        raise errors.InvalidArgument(f"update_rule {update_rule!r}: expected linear, gated, delta or gated_delta")
    if (gated and decay is None) or (delta and beta is None):
        raise errors.InvalidArgument(f"update_rule {update_rule!r} needs its inputs decay and beta where it uses them")
    batch, steps, _ = query.shape
    heads = max(q_num_heads, kv_num_heads)
    queries = widen(query).reshape(batch, steps, q_num_heads, -1)
    values = widen(value).reshape(batch, steps, kv_num_heads, -1)
    # Keys with fewer heads than the values serve several of them.
    keys = widen(key).reshape(batch, steps, -1, queries.shape[3])
    keys = np.repeat(keys, kv_num_heads // keys.shape[2], axis=2).transpose(0, 2, 1, 3)
    queries = np.repeat(queries, heads // q_num_heads, axis=2)
    factor = np.float32(scale or 1 / np.sqrt(queries.shape[3]))
    before = np.zeros((batch, kv_num_heads, keys.shape[3], values.shape[3]), np.float32)
    if past_state is not None:
        before = widen(past_state[-1] if state_window else past_state)
    growth = None
    if gated and decay is not None:
        growth = np.exp(widen(decay)).reshape(batch, steps, kv_num_heads, -1).transpose(0, 2, 1, 3)
    rate = None if beta is None or not delta else widen(beta).transpose(0, 2, 1)[..., None]
    states, outputs = [before], np.empty((batch, steps, heads, values.shape[3]), np.float32)
    for t, state in enumerate(linear_states(before, keys, values.transpose(0, 2, 1, 3), growth, rate)):
        states = [*states[-state_window:], state] if state_window else [state]
        spread = np.repeat(state, heads // kv_num_heads, axis=1)
        outputs[:, t] = np.matmul(queries[:, t, :, None, :], spread)[:, :, 0] * factor
    kept = _windowed(states, state_window)
    present = narrow(kept, query.dtype if past_state is None else past_state.dtype)
    return narrow(outputs.reshape(batch, steps, -1), query.dtype), present


@kernel("LinearAttentionGate", domain="com.microsoft")
def linear_attention_gate(
    a: np.ndarray, dt_bias: np.ndarray, decay_scale: np.ndarray, b: Optional = None, *, ctx: KernelContext
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return decay = decay_scale * Softplus(a + dt_bias); beta = Sigmoid(b)."""
    if b is None and ctx.output_present[1:] == (True,):
        raise errors.InvalidArgument("The b input is required when the beta output is requested")
    decay = widen(decay_scale) * softplus(widen(a) + widen(dt_bias))
    return narrow(decay, a.dtype), None if b is None else narrow(sigmoid(widen(b)), b.dtype)


@kernel("CausalConvWithState", domain="com.microsoft")
def causal_conv_with_state(
    x: np.ndarray,
    weight: np.ndarray,
    bias: Optional = None,
    past_state: Optional = None,
    *,
    activation: str = "none",
    channels_last: int = 0,
    dilation: int = 1,
    input_channel_offset: int = 0,
    input_channels: int = 0,
    ndim: int = 1,
    state_channels_last: int = -1,
    state_length: int = 0,
    state_update_capacity: int = 0,
    state_window: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Depthwise convolution that looks back along the last axis only; the state is what it needs of the past."""
    _check_window(state_window)
    extended = (input_channel_offset, input_channels, state_channels_last, state_length, state_update_capacity)
    if extended != (0, 0, -1, 0, 0):
        raise errors.InvalidArgument(
            "CausalConvWithState: parts of the channels, states of another length or layout and captured inputs "
            "(input_channel_offset, input_channels, state_channels_last, state_length, state_update_capacity) are not "
            f"supported, as on onnxruntime's CPU; found {extended}"
        )
    if activation not in ("none", "silu", "swish"):
        raise errors.InvalidArgument(f"activation {activation!r}: expected none, silu or swish")
    if channels_last and ndim != 1:
        raise errors.InvalidArgument(f"channels_last requires ndim = 1, found {ndim}")
    inputs = _channels_first(widen(x), channels_last)
    taps = widen(weight).reshape(weight.shape[0], *weight.shape[2:])
    reach = (taps.shape[-1] - 1) * dilation
    past = widen_optional(past_state)
    if past is not None:
        past = _channels_first(past[-1] if state_window else past, channels_last)
    else:
        past = np.zeros((*inputs.shape[:-1], reach), np.float32)
    joined = np.concatenate([past, inputs], axis=-1)
    result = _depthwise(joined, taps, dilation, inputs.shape[-1])
    if bias is not None:
        result = result + widen(bias).reshape((-1,) + (1,) * (inputs.ndim - 2))
    if activation != "none":
        result = silu(result)
    length = inputs.shape[-1]
    ends = list(range(length - min(state_window or 1, length), length)) or [-1]
    states = [joined[..., end + 1 : end + 1 + reach] for end in ends]
    window = [_restored(state, x, channels_last, reach) for state in states]
    present = window[-1]
    if state_window:
        present = np.stack([*[np.zeros_like(present)] * (state_window - len(window)), *window])
    output = _restored(result, x, channels_last, length)
    return narrow(output, x.dtype), narrow(present, x.dtype if past_state is None else past_state.dtype)


def _channels_first(x: np.ndarray, channels_last: int) -> np.ndarray:
    return x.reshape(x.shape[0], x.shape[1], -1).swapaxes(1, 2) if channels_last else x


def _restored(x: np.ndarray, like: np.ndarray, channels_last: int, length: int) -> np.ndarray:
    return x.swapaxes(1, 2).reshape(like.shape[0], length, *like.shape[2:]) if channels_last else x


def _depthwise(joined: np.ndarray, taps: np.ndarray, dilation: int, length: int) -> np.ndarray:
    """Sum shifted inputs times taps; other spatial axes than the last are padded to keep their size."""
    spatial = joined.shape[2:-1]
    spans = [((k - 1) // 2, k // 2) for k in taps.shape[1:-1]]
    padded = np.pad(joined, [(0, 0), (0, 0), *spans, (0, 0)])
    total = np.zeros((*joined.shape[:-1], length), np.float32)
    for tap in np.ndindex(*taps.shape[1:]):
        where = tuple(slice(start, start + size) for start, size in zip(tap[:-1], spatial, strict=True))
        begin = tap[-1] * dilation
        coefficient = taps[(slice(None), *tap)].reshape((-1,) + (1,) * (joined.ndim - 2))
        total += coefficient * padded[(slice(None), slice(None), *where, slice(begin, begin + length))]
    return total
