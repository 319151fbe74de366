"""Residual streams side by side: hyper-connections that mix them, and the gated addition."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.widening import narrow, widen


def _branches(x: np.ndarray, count: int) -> np.ndarray:
    """Return (..., C, H) streams of flattened ones; ``count`` 0 means that they are grouped already."""
    if not count:
        return widen(x)
    if x.shape[-1] % count:
        raise errors.InvalidArgument(f"the last dimension {x.shape[-1]} is no multiple of num_branches {count}")
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


@kernel("GatedAdd", domain="com.microsoft")
def gated_add(x: np.ndarray, y: np.ndarray, gate: np.ndarray) -> np.ndarray:
    """X + Y * gate, the product rounded to the type of X before the sum."""
    if x.ndim == 0 or x.shape[-1] == 0:
        raise errors.InvalidArgument(f"X last dimension must be positive; found shape {x.shape}")
    if y.shape != x.shape:
        raise errors.InvalidArgument(f"Y must have the same shape as X; found {y.shape} and {x.shape}")
    if gate.shape != (*x.shape[:-1], 1):
        raise errors.InvalidArgument(f"gate must have shape {(*x.shape[:-1], 1)}; found {gate.shape}")
    product = narrow(widen(y) * widen(gate), x.dtype)
    return narrow(widen(x) + widen(product), x.dtype)
