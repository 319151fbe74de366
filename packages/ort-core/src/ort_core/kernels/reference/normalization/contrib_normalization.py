"""Layer, group and root-mean-square normalization with the additions and gates that are fused with them."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.gates import sigmoid, silu
from ort_core.kernels.reference.arrays.means import mean as mean_of
from ort_core.kernels.reference.arrays.widening import narrow, widen

SkipResult = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def layer_norm(
    x: np.ndarray, gamma: np.ndarray, beta: np.ndarray | None, epsilon: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (normalized, mean, inverse deviation) over the last axis of a float32 or float64 array."""
    mean = mean_of(x, -1, dtype=np.float64)
    centered = x - mean
    inverse = 1 / np.sqrt(mean_of(np.square(centered), -1) + epsilon)
    result = centered * inverse * gamma
    if beta is not None:
        result = result + beta
    return result.astype(x.dtype), mean.astype(x.dtype), inverse.astype(x.dtype)


def rms_norm(x: np.ndarray, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Return (x / rms(x), 1 / rms(x)) over the last axis of a float32 or float64 array."""
    inverse = 1 / np.sqrt(mean_of(np.square(x, dtype=np.float64), -1) + epsilon)
    return (x * inverse).astype(x.dtype), inverse.astype(x.dtype)


def _check_skip(x: np.ndarray, skip: np.ndarray, vectors: dict[str, np.ndarray | None]) -> None:
    if skip.shape != x.shape and (skip.ndim not in (2, 3) or skip.shape[-2:] != x.shape[-2:]):
        raise errors.InvalidArgument(
            f"skip is expected to have same shape as input, or the last two dimensions of skip needs to be same as "
            f"input; found {skip.shape} and {x.shape}"
        )
    if skip.ndim == 3 and x.ndim == 3 and skip.shape[0] not in (1, x.shape[0]):
        raise errors.InvalidArgument(f"skip of shape {skip.shape} cannot be repeated over an input of {x.shape}")
    for name, vector in vectors.items():
        if vector is not None and vector.ndim != 1:
            raise errors.InvalidArgument(f"{name} is expected to have 1 dimension, got {vector.ndim}")
        if vector is not None and vector.shape[0] != x.shape[-1]:
            raise errors.InvalidArgument(
                f"Last dimension of {name} and input does not match: {vector.shape[0]} and {x.shape[-1]}"
            )


@kernel("SkipLayerNormalization", domain="com.microsoft")
def skip_layer_normalization(
    x: np.ndarray,
    skip: np.ndarray,
    gamma: np.ndarray,
    beta: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    epsilon: float = 9.999999960041972e-13,
) -> SkipResult:
    """Y = LayerNorm(X + skip + bias); also the mean, the inverse deviation and the sum."""
    _check_skip(x, skip, {"gamma": gamma, "beta": beta, "bias": bias})
    total = widen(x) + widen(skip)
    if bias is not None:
        total = total + widen(bias)
    result, mean, inverse = layer_norm(total, widen(gamma), None if beta is None else widen(beta), epsilon)
    return narrow(result, x.dtype), mean, inverse, narrow(total, x.dtype)


@kernel("SkipSimplifiedLayerNormalization", domain="com.microsoft")
def skip_simplified_layer_normalization(
    x: np.ndarray,
    skip: np.ndarray,
    gamma: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    epsilon: float = 9.999999960041972e-13,
) -> SkipResult:
    """Y = (X + skip + bias) / rms(X + skip + bias) * gamma; the mean output is zero, as there is none."""
    _check_skip(x, skip, {"gamma": gamma, "bias": bias})
    total = widen(x) + widen(skip)
    if bias is not None:
        total = total + widen(bias)
    result, inverse = rms_norm(total, epsilon)
    return narrow(result * widen(gamma), x.dtype), np.zeros_like(inverse), inverse, narrow(total, x.dtype)


def _group_norm(
    x: np.ndarray,
    gamma: np.ndarray,
    beta: np.ndarray,
    groups: int,
    epsilon: float,
    activation: int,
    channels_last: int,
) -> np.ndarray:
    moved = np.moveaxis(x, -1, 1) if channels_last else x
    grouped = moved.reshape(moved.shape[0], groups, -1)
    mean = mean_of(grouped, -1, dtype=np.float64)
    variance = mean_of(np.square(grouped - mean), -1)
    normal = ((grouped - mean) / np.sqrt(variance + epsilon)).reshape(moved.shape)
    column = (-1,) + (1,) * (moved.ndim - 2)
    result = (normal * widen(gamma).reshape(column) + widen(beta).reshape(column)).astype(np.float32)
    if activation:
        result = silu(result)
    return np.moveaxis(result, 1, -1) if channels_last else result


@kernel("GroupNorm", domain="com.microsoft")
@np.errstate(all="ignore")  # what is not finite
def group_norm(
    x: np.ndarray,
    gamma: np.ndarray,
    beta: np.ndarray,
    *,
    activation: int,
    groups: int,
    channels_last: int = 1,
    epsilon: float = 9.999999747378752e-06,
) -> np.ndarray:
    """Y = activation(GroupNorm(X)); activation 1 is SiLU."""
    return narrow(_group_norm(widen(x), gamma, beta, groups, epsilon, activation, channels_last), x.dtype)


@kernel("SkipGroupNorm", domain="com.microsoft")
@np.errstate(all="ignore")  # what is not finite
def skip_group_norm(
    x: np.ndarray,
    gamma: np.ndarray,
    beta: np.ndarray,
    skip: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    activation: int,
    groups: int,
    channels_last: int = 1,
    epsilon: float = 9.999999747378752e-06,
) -> tuple[np.ndarray, np.ndarray]:
    """S = X + skip + bias; Y = activation(GroupNorm(S)). A skip of (N, C) is repeated over the image."""
    addend = widen(skip)
    if addend.ndim == 2:
        addend = addend[:, None, None, :] if channels_last else addend[:, :, None, None]
    total = widen(x) + addend
    if bias is not None:
        total = total + (widen(bias) if channels_last else widen(bias)[:, None, None])
    result = _group_norm(total, gamma, beta, groups, epsilon, activation, channels_last)
    return narrow(result, x.dtype), narrow(total, x.dtype)


@kernel("GatedRMSNorm", domain="com.microsoft")
def gated_rms_norm(
    x: np.ndarray,
    scale: np.ndarray,
    gate: np.ndarray,
    *,
    activation: str = "silu",
    epsilon: float = 9.999999747378752e-06,
) -> np.ndarray:
    """Y = X / rms(X) * scale * activation(gate), the mean square over each group of len(scale) elements."""
    if activation not in ("silu", "swish", "sigmoid"):
        raise errors.InvalidArgument(f"activation must be one of silu, swish, sigmoid; found {activation!r}")
    if gate.shape != x.shape:
        raise errors.InvalidArgument(f"gate must have the same shape as X; found {gate.shape} and {x.shape}")
    width = scale.shape[0]
    if width == 0 or x.shape[-1] % width:
        raise errors.InvalidArgument(f"X's last dimension {x.shape[-1]} must be a multiple of scale's length {width}")
    normal, _ = rms_norm(widen(x).reshape(*x.shape[:-1], -1, width), epsilon)
    weight = sigmoid(widen(gate)) if activation == "sigmoid" else silu(widen(gate))
    return narrow((normal * widen(scale)).reshape(x.shape) * weight, x.dtype)


@kernel("BranchwiseRMSNorm", domain="com.microsoft")
def branchwise_rms_norm(
    x: np.ndarray,
    scale: np.ndarray | None = None,
    *,
    num_branches: int = 0,
    epsilon: float = 9.999999747378752e-06,
) -> np.ndarray:
    """Y = X / rms(X) * scale within each branch; X is (..., C, H), or (..., C*H) when num_branches is C."""
    grouped = (*x.shape[:-1], num_branches, x.shape[-1] // num_branches) if num_branches else x.shape
    branches = widen(x).reshape(grouped)
    normal, _ = rms_norm(branches, epsilon)
    if scale is not None:
        factor = widen(scale)
        wide = factor.ndim == 1 and factor.size != branches.shape[-1]
        normal = normal * (factor.reshape(branches.shape[-2:]) if wide else factor)
    return narrow(normal.reshape(x.shape), x.dtype)


@kernel("EngramGate", domain="com.microsoft")
def engram_gate(
    key: np.ndarray,
    query: np.ndarray,
    value: np.ndarray,
    key_norm_scale: np.ndarray,
    query_norm_scale: np.ndarray,
    conv_norm_scale: np.ndarray | None = None,
    *,
    epsilon: float = 9.999999747378752e-06,
    ctx: KernelContext,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Y = sigmoid(sign(d) * sqrt(max(|d|, 1e-6))) * value with d = RMSNorm(key) . RMSNorm(query) / sqrt(width)."""
    keys = rms_norm(widen(key), epsilon)[0] * widen(key_norm_scale)
    queries = rms_norm(widen(query), epsilon)[0] * widen(query_norm_scale)
    dot = (keys * queries).sum(axis=-1, keepdims=True) / np.float32(np.sqrt(key.shape[-1]))
    gate = sigmoid(np.sign(dot) * np.sqrt(np.maximum(np.abs(dot), np.float32(1e-6))))
    gated = gate * widen(value)[:, :, None, :]
    normal = None
    if len(ctx.output_present) > 1 and ctx.output_present[1]:
        if conv_norm_scale is None:
            raise errors.InvalidArgument("conv_norm_scale is required when gated_value_normed is requested")
        normal = narrow(rms_norm(gated, epsilon)[0] * widen(conv_norm_scale), value.dtype)
    return narrow(gated, value.dtype), normal
