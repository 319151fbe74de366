"""Values of the MIL operations for which coremltools has no value inference, in plain numpy.

Convolutions and pools as sums over the positions in a window; accumulated in float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ort_ep_coreml.evaluation.values import Inputs, Value

_SPATIAL = 2  # the axis of the first spatial size


def _paddings(inputs: Inputs, sizes: Sequence[int], kernel: Sequence[int]) -> list[tuple[int, int]]:
    """Return what is padded before and behind each spatial axis."""
    mode = str(inputs.get("pad_type", "valid"))
    count = len(sizes)
    if mode == "valid":
        return [(0, 0)] * count
    if mode == "custom":
        pads = np.asarray(inputs["pad"]).reshape(count, 2)
        return [(int(before), int(behind)) for before, behind in pads]
    strides, dilations = _per_axis(inputs, "strides", count), _per_axis(inputs, "dilations", count)
    found = []
    for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        total = max((-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size, 0)
        less, more = total // 2, total - total // 2
        found.append((less, more) if mode == "same" else (more, less))
    return found


def _per_axis(inputs: Inputs, name: str, count: int) -> list[int]:
    return [int(each) for each in np.asarray(inputs.get(name, [1] * count))]


def _windows(
    padded: np.ndarray, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """Yield each position in the kernel with what all windows have there."""
    sizes = padded.shape[_SPATIAL:]
    counts = [
        (size - (k - 1) * dilation - 1) // stride + 1
        for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True)
    ]
    for place in itertools.product(*(range(k) for k in kernel)):
        cut = tuple(
            slice(at * dilation, at * dilation + (count - 1) * stride + 1, stride)
            for at, dilation, stride, count in zip(place, dilations, strides, counts, strict=True)
        )
        yield place, padded[(slice(None), slice(None), *cut)]


def _weights_at(weight: np.ndarray, place: tuple[int, ...]) -> np.ndarray:
    return weight[(slice(None),) * (weight.ndim - len(place)) + place]


def _conv(inputs: Inputs) -> np.ndarray:
    x, weight = np.asarray(inputs["x"]), np.asarray(inputs["weight"])
    kernel, groups = weight.shape[_SPATIAL:], int(inputs.get("groups", 1))
    count = len(kernel)
    pads = _paddings(inputs, x.shape[_SPATIAL:], kernel)
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *pads])
    split = weight.astype(np.float64).reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    total: np.ndarray | None = None
    steps = _per_axis(inputs, "strides", count), _per_axis(inputs, "dilations", count)
    for place, seen in _windows(padded, kernel, *steps):
        grouped = seen.reshape(seen.shape[0], groups, -1, *seen.shape[_SPATIAL:])
        part = np.einsum("ngc...,gkc->ngk...", grouped, _weights_at(split, place))
        total = part if total is None else total + part
    assert total is not None, "a kernel has at least one position"
    found = total.reshape(total.shape[0], -1, *total.shape[3:])
    return _with_bias(found, inputs).astype(x.dtype)


def _conv_transpose(inputs: Inputs) -> np.ndarray:
    x, weight = np.asarray(inputs["x"]), np.asarray(inputs["weight"])
    kernel, groups = weight.shape[_SPATIAL:], int(inputs.get("groups", 1))
    count, sizes = len(kernel), x.shape[_SPATIAL:]
    strides, dilations = _per_axis(inputs, "strides", count), _per_axis(inputs, "dilations", count)
    whole = [(s - 1) * stride + (k - 1) * d + 1 for s, k, stride, d in zip(sizes, kernel, strides, dilations)]
    grouped = x.astype(np.float64).reshape(x.shape[0], groups, -1, *sizes)
    split = weight.astype(np.float64).reshape(groups, -1, *weight.shape[1:])
    total: np.ndarray = np.zeros((x.shape[0], groups, weight.shape[1], *whole))
    for place in itertools.product(*(range(k) for k in kernel)):
        cut = tuple(
            slice(at * d, at * d + (size - 1) * stride + 1, stride)
            for at, d, size, stride in zip(place, dilations, sizes, strides, strict=True)
        )
        total[(slice(None),) * 3 + cut] += np.einsum("ngc...,gck->ngk...", grouped, _weights_at(split, place))
    found = total.reshape(x.shape[0], -1, *whole)
    pads = np.asarray(inputs.get("pad", [0] * 2 * count)).reshape(count, 2)
    kept = tuple(slice(int(before), size - int(behind)) for (before, behind), size in zip(pads, whole, strict=True))
    return _with_bias(found[(slice(None), slice(None), *kept)], inputs).astype(x.dtype)


def _with_bias(found: np.ndarray, inputs: Inputs) -> np.ndarray:
    bias = inputs.get("bias")
    if bias is None:
        return found
    return found + np.asarray(bias, np.float64).reshape(-1, *[1] * (found.ndim - _SPATIAL))


def _max_pool(inputs: Inputs) -> np.ndarray:
    return _pooled(inputs, -np.inf, np.maximum).astype(np.asarray(inputs["x"]).dtype)


def _avg_pool(inputs: Inputs) -> np.ndarray:
    x = np.asarray(inputs["x"])
    total = _pooled(inputs, 0.0, np.add)
    if inputs.get("exclude_padding_from_average", False):
        return (total / _pooled({**inputs, "x": np.ones_like(x)}, 0.0, np.add)).astype(x.dtype)
    return (total / np.prod(inputs["kernel_sizes"])).astype(x.dtype)


def _pooled(inputs: Inputs, fill: float, join: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    x, kernel = np.asarray(inputs["x"]), [int(each) for each in inputs["kernel_sizes"]]
    assert not inputs.get("ceil_mode", False), "programs of this package round window counts down"
    pads = _paddings(inputs, x.shape[_SPATIAL:], kernel)
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *pads], constant_values=fill)
    total: np.ndarray | None = None
    for _, seen in _windows(padded, kernel, _per_axis(inputs, "strides", len(kernel)), [1] * len(kernel)):
        total = seen if total is None else join(total, seen)
    assert total is not None, "a kernel has at least one position"
    return total


def _batch_norm(inputs: Inputs) -> np.ndarray:
    x = np.asarray(inputs["x"])
    ones = [1] * (x.ndim - _SPATIAL)
    mean, variance, gamma, beta = (
        np.asarray(inputs.get(name, default), np.float64).reshape(-1, *ones)
        for name, default in (("mean", 0.0), ("variance", 1.0), ("gamma", 1.0), ("beta", 0.0))
    )
    scaled = (x.astype(np.float64) - mean) / np.sqrt(variance + float(inputs.get("epsilon", 1e-5)))
    return (scaled * gamma + beta).astype(x.dtype)


def _instance_norm(inputs: Inputs) -> np.ndarray:
    x = np.asarray(inputs["x"])
    wide, axes = x.astype(np.float64), tuple(range(_SPATIAL, x.ndim))
    mean, variance = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
    moved = (wide - mean) / np.sqrt(variance + float(inputs.get("epsilon", 1e-5)))
    ones = [1] * (x.ndim - _SPATIAL)
    gamma, beta = (np.asarray(inputs.get(n, d), np.float64).reshape(-1, *ones) for n, d in (("gamma", 1), ("beta", 0)))
    return (moved * gamma + beta).astype(x.dtype)


def _silu(inputs: Inputs) -> np.ndarray:
    x = np.asarray(inputs["x"])
    wide = x.astype(np.float64)
    return (wide * 0.5 * (1 + np.tanh(0.5 * wide))).astype(x.dtype)


def _rearranged(inputs: Inputs, block: int, order: str) -> np.ndarray:
    x = np.asarray(inputs["x"])
    n, channels, height, width = x.shape
    if order == "to channels":
        split = x.reshape(n, channels, height // block, block, width // block, block)
        return split.transpose(0, 1, 3, 5, 2, 4).reshape(n, -1, height // block, width // block)
    if order == "to depth":
        split = x.reshape(n, channels, height // block, block, width // block, block)
        return split.transpose(0, 3, 5, 1, 2, 4).reshape(n, -1, height // block, width // block)
    depth = channels // block**2
    if order == "blocks first":
        split = x.reshape(n, block, block, depth, height, width).transpose(0, 3, 4, 1, 5, 2)
    else:
        split = x.reshape(n, depth, block, block, height, width).transpose(0, 1, 4, 2, 5, 3)
    return split.reshape(n, depth, height * block, width * block)


WINDOW_VALUES: Mapping[str, Value] = {
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "silu": _silu,
    "depth_to_space": lambda inputs: _rearranged(inputs, int(inputs["block_size"]), "blocks first"),
    "pixel_shuffle": lambda inputs: _rearranged(inputs, int(inputs["upscale_factor"]), "channels first"),
    "pixel_unshuffle": lambda inputs: _rearranged(inputs, int(inputs["downscale_factor"]), "to channels"),
    "space_to_depth": lambda inputs: _rearranged(inputs, int(inputs["block_size"]), "to depth"),
}
"""Functions of the inputs by name, by operation."""
