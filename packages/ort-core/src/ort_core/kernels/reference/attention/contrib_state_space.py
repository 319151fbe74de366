"""State-space layers of com.microsoft: Mamba 2's mixer over rows that are still to be accepted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.means import mean as mean_of
from ort_core.kernels.reference.arrays.widening import narrow, widen

HEAD_WIDTH, STATE_WIDTH, TAPS = 64, 128, 4  # the only sizes that the operator has
STRAIGHT_ABOVE = 20.0  # softplus(x) is x there, in float32


@dataclass(frozen=True)
class _Sizes:
    """Of one call: rows, heads, groups, snapshots; the channels of x, and of x, B and C together."""

    rows: int
    heads: int
    groups: int
    slots: int

    @property
    def inner(self) -> int:
        return self.heads * HEAD_WIDTH

    @property
    def channels(self) -> int:
        return self.inner + 2 * self.groups * STATE_WIDTH


@kernel("Mamba2Verify", domain="com.microsoft")
@np.errstate(over="ignore", invalid="ignore")
def mamba2_verify(
    projection: np.ndarray,
    conv_state: np.ndarray,
    ssm_state: np.ndarray,
    conv_weight: np.ndarray,
    conv_bias: np.ndarray,
    dt_bias: np.ndarray,
    a_negative: np.ndarray,
    d: np.ndarray,
    norm_weight: np.ndarray,
    state_row: np.ndarray,
    *,
    d_state: int = STATE_WIDTH,
    epsilon: float = 1e-5,
    head_dim: int = HEAD_WIDTH,
    heads: int,
    n_groups: int,
    time_step_min: float = 0.001,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Causal convolution, recurrence and gated norm of each row; the states behind the last rows as snapshots.

    ``S = exp(A dt) S + (dt x) B``, ``readout = D x + C S``, ``Y = rms(readout * silu(gate)) * norm_weight``. A
    ``state_row`` that is not a snapshot gives NaN.
    """
    if (d_state, head_dim) != (STATE_WIDTH, HEAD_WIDTH):
        raise InvalidArgument(f"Mamba2Verify: d_state is 128 and head_dim 64; found {d_state} and {head_dim}")
    inputs = {"projection": projection, "conv_state": conv_state, "ssm_state": ssm_state, "conv_weight": conv_weight,
              "conv_bias": conv_bias, "dt_bias": dt_bias, "A_negative": a_negative, "D": d,
              "norm_weight": norm_weight, "state_row": state_row}  # fmt: skip
    sizes = _sizes_of(inputs, heads, n_groups)
    start = int(state_row[0])
    if not 0 <= start < sizes.slots:
        return _unknown(sizes, conv_state, ssm_state)
    gate, mixed, step = np.split(widen(projection), [sizes.inner, sizes.inner + sizes.channels], axis=1)
    dt = _step_sizes(step + dt_bias, time_step_min)
    xbc, windows = _convolved(mixed, widen(conv_state[start]), widen(conv_weight).reshape(-1, TAPS), widen(conv_bias))
    xbc = narrow(xbc, projection.dtype)
    readout, states = _recurrence(widen(xbc), dt, ssm_state[start], a_negative, d, sizes)
    y = _normalized(readout * _silu(gate), norm_weight, n_groups, epsilon)
    conv_snapshots = _snapshots(conv_state, narrow(windows, conv_state.dtype))
    return narrow(y, projection.dtype), conv_snapshots, _snapshots(ssm_state, states), xbc, readout


def _sizes_of(inputs: dict[str, np.ndarray], heads: int, groups: int) -> _Sizes:
    """Return the sizes that all inputs agree on.

    Raises:
        InvalidArgument: one does not fit.
    """
    if heads < 1 or groups < 1 or heads % groups:
        raise InvalidArgument(f"Mamba2Verify: n_groups ({groups}) must divide heads ({heads})")
    shapes = {name: array.shape for name, array in inputs.items()}
    rows, slots = (shapes[name][0] if shapes[name] else 0 for name in ("projection", "conv_state"))
    sizes = _Sizes(rows, heads, groups, slots)
    if rows < 1 or slots < 1:
        raise InvalidArgument(f"Mamba2Verify: found {rows} rows and {slots} snapshots; at least one of each is needed")
    if shapes["conv_weight"] == (sizes.channels, 1, TAPS):
        shapes["conv_weight"] = (sizes.channels, TAPS)
    wanted = {
        "projection": (rows, sizes.inner + sizes.channels + heads), "conv_state": (slots, sizes.channels, TAPS - 1),
        "ssm_state": (slots, heads, STATE_WIDTH, HEAD_WIDTH), "conv_weight": (sizes.channels, TAPS),
        "conv_bias": (sizes.channels,), "dt_bias": (heads,), "A_negative": (heads,), "D": (heads,),
        "norm_weight": (sizes.inner,), "state_row": (1,),
    }  # fmt: skip
    for name, shape in wanted.items():
        if shapes[name] != shape:
            raise InvalidArgument(f"Mamba2Verify: {name} must have shape {shape}, found {shapes[name]}")
    return sizes


def _unknown(
    sizes: _Sizes, conv_state: np.ndarray, ssm_state: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return NaN for what a row would have written."""
    written = min(sizes.rows, sizes.slots)
    conv, ssm = conv_state.copy(), ssm_state.copy()
    conv[:written], ssm[:written] = np.nan, np.nan
    y, xbc = (np.full((sizes.rows, width), np.nan, conv_state.dtype) for width in (sizes.inner, sizes.channels))
    return y, conv, ssm, xbc, np.full((sizes.rows, sizes.inner), np.nan, np.float32)


def _step_sizes(raw: np.ndarray, least: float) -> np.ndarray:
    with np.errstate(over="ignore"):
        soft = np.where(raw > STRAIGHT_ABOVE, raw, np.log1p(np.exp(raw)))
    return np.maximum(soft, np.float32(least))


def _silu(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x / (1 + np.exp(-x))


def _convolved(
    mixed: np.ndarray, before: np.ndarray, weight: np.ndarray, bias: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 [rows, channels], and behind each row the last three inputs: [rows, channels, 3].

    Args:
        mixed: [rows, channels].
        before: [channels, 3], the oldest first.
        weight: [channels, 4].
        bias: [channels].
    """
    line = np.concatenate([before, mixed.T], axis=1)
    windows = np.lib.stride_tricks.sliding_window_view(line, TAPS, axis=1).swapaxes(0, 1)
    sums = np.einsum("rct,ct->rc", windows.astype(np.float64), weight.astype(np.float64)) + bias
    return _silu(sums.astype(np.float32)), np.ascontiguousarray(windows[..., 1:])


def _recurrence(
    xbc: np.ndarray, dt: np.ndarray, state: np.ndarray, a: np.ndarray, d: np.ndarray, sizes: _Sizes
) -> tuple[np.ndarray, np.ndarray]:
    """Return the readout [rows, inner] and the state behind each row [rows, heads, 128, 64], float32."""
    width = sizes.groups * STATE_WIDTH
    x, b, c = np.split(xbc, [sizes.inner, sizes.inner + width], axis=1)
    x = x.reshape(-1, sizes.heads, HEAD_WIDTH)
    b, c = (np.repeat(each.reshape(-1, sizes.groups, STATE_WIDTH), sizes.heads // sizes.groups, axis=1)
            for each in (b, c))  # fmt: skip
    states = np.empty((sizes.rows, *state.shape), np.float32)
    readout = np.empty((sizes.rows, sizes.heads, HEAD_WIDTH), np.float32)
    for row in range(sizes.rows):
        decay = np.exp(a * dt[row])[:, None, None]
        state = decay * state + b[row][:, :, None] * (dt[row][:, None] * x[row])[:, None, :]
        states[row] = state
        readout[row] = d[:, None] * x[row] + np.einsum("hn,hnp->hp", c[row], state)
    return readout.reshape(sizes.rows, -1), states


def _normalized(x: np.ndarray, weight: np.ndarray, groups: int, epsilon: float) -> np.ndarray:
    grouped = x.reshape(len(x), groups, -1)
    mean = mean_of(np.square(grouped), -1, dtype=np.float64)
    scale = (1 / np.sqrt(mean + epsilon)).astype(np.float32)
    return (grouped * scale).reshape(x.shape) * weight


def _snapshots(before: np.ndarray, behind: np.ndarray) -> np.ndarray:
    """Return the snapshots [slots, ...]: those of the last rows first, what no row reached as before."""
    written = behind[-len(before) :]
    return np.concatenate([written, before[len(written) :]])
