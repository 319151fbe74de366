"""Residual streams side by side: hyper-connections that mix them, and the gated addition."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.gates import sigmoid
from ort_core.kernels.reference.arrays.means import mean as mean_of
from ort_core.kernels.reference.arrays.widening import narrow, widen


def _branches(x: np.ndarray, count: int) -> np.ndarray:
    """Return (..., C, H) streams of flattened ones; ``count`` 0 means that they are grouped already."""
    if not count:
        return widen(x)
    if x.shape[-1] % count:
        raise errors.InvalidArgument(f"the last dimension {x.shape[-1]} is not a multiple of num_branches {count}")
    return widen(x).reshape(*x.shape[:-1], count, x.shape[-1] // count)


def _gates(gate: np.ndarray, streams: np.ndarray) -> np.ndarray:
    """Return gates that broadcast over (..., C, H) from (..., C), (..., C, 1), (..., C, H) or (..., C * H)."""
    wide = widen(gate)
    if wide.ndim == streams.ndim:
        return wide
    if wide.shape[-1] == streams.shape[-2]:
        return wide[..., None]
    return wide.reshape(*wide.shape[:-1], *streams.shape[-2:])


@kernel("HyperConnectionPreMix", domain="com.microsoft")
def hyper_connection_pre_mix(
    streams: np.ndarray, pre_mix: np.ndarray, *, num_branches: int = 0, reduction_scale: float = 1.0
) -> np.ndarray:
    """Y = reduction_scale * sum over branches of X * pre_mix."""
    grouped = _branches(streams, num_branches)
    mixed = (grouped * _gates(pre_mix, grouped)).sum(axis=-2) * np.float32(reduction_scale)
    return narrow(mixed, streams.dtype)


@kernel("HyperConnectionPostMix", domain="com.microsoft")
def hyper_connection_post_mix(
    streams: np.ndarray,
    block_output: np.ndarray,
    post_mix: np.ndarray,
    stream_mix: np.ndarray | None = None,
    *,
    num_branches: int = 0,
) -> np.ndarray:
    """Y = stream_mix' @ X + post_mix * block_output, per branch; stream_mix is the identity when omitted."""
    grouped = _branches(streams, num_branches)
    mixed = grouped if stream_mix is None else np.matmul(widen(stream_mix).swapaxes(-1, -2), grouped)
    mixed = mixed + _gates(post_mix, grouped) * widen(block_output)[..., None, :]
    return narrow(mixed.reshape(streams.shape), streams.dtype)


@kernel("HyperConnectionLowRankMix", domain="com.microsoft")
def hyper_connection_low_rank_mix(
    streams: np.ndarray,
    norm_scale: np.ndarray,
    down_weight: np.ndarray,
    up_weight: np.ndarray,
    inject_weight: np.ndarray,
    prev_block_output: np.ndarray | None = None,
    prev_post_gate: np.ndarray | None = None,
    *,
    epsilon: float = 1e-5,
    gate_div: float = 1.0,
    gate_mul: float = 1.0,
    num_branches: int,
    reduction_scale: float = 1.0,
    silu_alpha: float = 1.0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A block of streams (..., C * H) with a gate of low rank; every step is rounded to the type of the streams.

    Returns the block's input (..., H), the gates (..., C) of the next call, and the streams behind the post-mix.
    """
    if num_branches < 1 or gate_div == 0 or (prev_block_output is None) != (prev_post_gate is None):
        raise errors.InvalidArgument(
            f"HyperConnectionLowRankMix: num_branches {num_branches} must be positive, gate_div {gate_div} not 0, and "
            "prev_block_output and prev_post_gate there together"
        )

    def rounded(x: np.ndarray) -> np.ndarray:
        return widen(narrow(x, streams.dtype))

    grouped = _branches(streams, num_branches)
    if prev_block_output is not None and prev_post_gate is not None:
        grouped = rounded(grouped + widen(prev_post_gate)[..., None] * widen(prev_block_output)[..., None, :])
    inverse = 1 / np.sqrt(mean_of(np.square(grouped), -1) + np.float32(epsilon))
    normal = rounded(grouped * inverse * _branches(norm_scale, num_branches))
    flat = normal.reshape(streams.shape)
    scaled = rounded(np.float32(silu_alpha) * rounded(flat @ widen(down_weight)))
    hidden = rounded(scaled * rounded(sigmoid(scaled)))
    gates = rounded(sigmoid(rounded(hidden @ widen(up_weight)))).reshape(grouped.shape)
    mixed = np.float32(reduction_scale) * (normal * gates).sum(axis=-2)
    inject = rounded(rounded(flat @ widen(inject_weight)) / np.float32(gate_div))
    post = rounded(sigmoid(inject)) * np.float32(gate_mul)
    results = (mixed, post, grouped.reshape(streams.shape))
    return tuple(narrow(each, streams.dtype) for each in results)  # type: ignore[return-value]  # three of them


@kernel("GatedAdd", domain="com.microsoft")
def gated_add(x: np.ndarray, y: np.ndarray, gate: np.ndarray, gate_weight: np.ndarray | None = None) -> np.ndarray:
    """X + Y * gate, the product rounded to the type of X before the sum.

    With ``gate_weight`` (K, 1) the gate is sigmoid(gate @ gate_weight), both steps rounded to the type of X.
    """
    if gate_weight is not None:
        if gate.ndim == 0 or gate_weight.shape != (gate.shape[-1], 1):
            raise errors.InvalidArgument(f"gate {gate.shape} and gate_weight {gate_weight.shape} do not fit: (K, 1)")
        projected = narrow(widen(gate) @ widen(gate_weight), x.dtype)
        gate = narrow(sigmoid(widen(projected)), x.dtype)
    if x.ndim == 0 or x.shape[-1] == 0:
        raise errors.InvalidArgument(f"X last dimension must be positive; found shape {x.shape}")
    if y.shape != x.shape:
        raise errors.InvalidArgument(f"Y must have the same shape as X; found {y.shape} and {x.shape}")
    if gate.shape != (*x.shape[:-1], 1):
        raise errors.InvalidArgument(f"gate must have shape {(*x.shape[:-1], 1)}; found {gate.shape}")
    product = narrow(widen(y) * widen(gate), x.dtype)
    return narrow(widen(x) + widen(product), x.dtype)
