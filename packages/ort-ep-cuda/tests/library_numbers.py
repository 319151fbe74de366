"""What library calls compute, by definition, with numpy: the libraries of the emulated GPU."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np

from ort_core.plugin.ir import DataType
from ort_ep_cuda.lowering.libraries.libraries import Libraries
from ort_ep_cuda.lowering.libraries.library_steps import (
    Activation,
    AnyLibraryStep,
    Convolution,
    Epilogue,
    MatrixProduct,
    Normalization,
    ScaledAttention,
)
from ort_ep_cuda.lowering.values.views import TensorView


class FuseEverything(Libraries):
    """Libraries that fuse whatever the lowering offers; as ``is_channels_last`` says, images are laid out so."""

    fuses = True

    def __init__(self, *, is_channels_last: bool = False) -> None:
        self.is_channels_last = is_channels_last
        self.asked: list[AnyLibraryStep] = []

    def prefers_channels_last(self, dtype: DataType) -> bool:
        return self.is_channels_last

    def refuse(self, step: AnyLibraryStep) -> str | None:
        self.asked.append(step)
        return None


def array_at(view: TensorView, address: int) -> np.ndarray:
    """Return the elements of a view whose first one lies at an address."""
    item = view.dtype.numpy.itemsize
    span = sum((size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True)) + 1
    assert min(view.strides, default=0) >= 0, "libraries take no negative strides"
    raw = np.ctypeslib.as_array((ctypes.c_uint8 * (span * item)).from_address(address)).view(view.dtype.numpy)
    return np.lib.stride_tricks.as_strided(raw, view.shape, [stride * item for stride in view.strides])


def _wide(array: np.ndarray) -> np.ndarray:
    return array if array.dtype == np.float64 else array.astype(np.float32)


def computed(step: AnyLibraryStep, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """Return the result of a library call."""
    if isinstance(step, ScaledAttention):
        return attended(step, *inputs)
    if isinstance(step, Normalization):
        return normalized(step, *inputs)
    if isinstance(step, MatrixProduct):
        plain = step.alpha * (_wide(inputs[0]) @ _wide(inputs[1]))
        return finished(plain, step.epilogue, inputs[2:], axis=2)
    return finished(convolved(inputs[0], inputs[1], step), step.epilogue, inputs[2:], axis=1)


def finished(x: np.ndarray, epilogue: Epilogue, inputs: Sequence[np.ndarray], axis: int) -> np.ndarray:
    """Return what an epilogue makes of a result whose channels are an axis."""
    left = list(inputs)
    if epilogue.bias is not None:
        x = x + _wide(left.pop(0)).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    if epilogue.addend is not None:
        x = x + epilogue.beta * _wide(left.pop(0))
    return x if epilogue.activation is None else activated(x, epilogue.activation)


_erf = np.vectorize(math.erf, otypes=[np.float64])


def activated(x: np.ndarray, activation: Activation) -> np.ndarray:
    """Return an activation of each element."""
    cubic = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return {
        "relu": lambda: np.maximum(x, 0), "clip": lambda: np.clip(x, activation.low, activation.high),
        "gelu": lambda: x * (1 + _erf(x / math.sqrt(2))) / 2, "gelu_tanh": lambda: x * (1 + np.tanh(cubic)) / 2,
        "sigmoid": lambda: 1 / (1 + np.exp(-x)), "tanh": lambda: np.tanh(x),
    }[activation.kind]()  # fmt: skip


def attended(
    step: ScaledAttention, q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: np.ndarray | None = None
) -> np.ndarray:
    """Return scaled attention, heads of keys and values repeated."""
    k, v = (np.repeat(_wide(x), q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = step.scale * (_wide(q) @ k.swapaxes(2, 3)) + (0 if bias is None else _wide(bias))
    if step.is_causal:
        scores = np.where(np.tril(np.ones(scores.shape[2:], bool)), scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ v


def normalized(step: Normalization, x: np.ndarray, scale: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """Return a normalization by its definition, in float64."""
    axes = tuple(range(2, x.ndim)) if step.kind == "instance" else (1,)
    wide = x.astype(np.float64)
    centered = wide if step.kind == "rms" else wide - wide.mean(axes, keepdims=True)
    shape = [1, -1, *[1] * (x.ndim - 2)]
    result = centered / np.sqrt((centered**2).mean(axes, keepdims=True) + step.epsilon) * scale.reshape(shape)
    return result if bias is None else result + bias.reshape(shape)


def convolved(x: np.ndarray, weights: np.ndarray, convolution: Convolution) -> np.ndarray:
    """Return a convolution by its definition: a sum over window places of products over channels."""
    if convolution.is_transposed:
        return transposed(x, weights, convolution)
    pads = [(0, 0), (0, 0), *zip(convolution.window.pads_before, convolution.window.pads_after, strict=True)]
    padded = np.pad(_wide(x), pads)
    groups, sizes = convolution.groups, convolution.out.shape[2:]
    per_group = weights.shape[0] // groups
    total = np.zeros(convolution.out.shape, padded.dtype)
    for place in np.ndindex(*weights.shape[2:]):
        cut = tuple(
            slice(p * d, p * d + (n - 1) * s + 1, s)
            for p, d, s, n in zip(place, convolution.window.dilations, convolution.window.strides, sizes, strict=True)
        )
        window = padded[(slice(None), slice(None), *cut)]
        for group in range(groups):
            channels = slice(group * weights.shape[1], (group + 1) * weights.shape[1])
            filters = slice(group * per_group, (group + 1) * per_group)
            taps = _wide(weights[(filters, slice(None), *place)])
            total[:, filters] += np.einsum("mc,nc...->nm...", taps, window[:, channels])
    return total


def transposed(x: np.ndarray, weights: np.ndarray, convolution: Convolution) -> np.ndarray:
    """Return a transposed convolution: each element spread over its window, then the padding cut off."""
    groups, sizes, window = convolution.groups, convolution.out.shape[2:], convolution.window
    padded = [
        n + b + a for n, b, a in zip(sizes, convolution.window.pads_before, convolution.window.pads_after, strict=True)
    ]
    total = np.zeros((*convolution.out.shape[:2], *padded), _wide(x).dtype)
    taken, given = x.shape[1] // groups, weights.shape[1]
    for place in np.ndindex(*weights.shape[2:]):
        spread = tuple(
            slice(p * d, p * d + (n - 1) * s + 1, s)
            for p, d, s, n in zip(
                place, convolution.window.dilations, convolution.window.strides, x.shape[2:], strict=True
            )
        )
        for group in range(groups):
            channels = slice(group * taken, (group + 1) * taken)
            taps = _wide(weights[(channels, slice(None), *place)])
            added = np.einsum("cm,nc...->nm...", taps, _wide(x[:, channels]))
            total[(slice(None), slice(group * given, (group + 1) * given), *spread)] += added
    cut = tuple(slice(b, b + n) for b, n in zip(window.pads_before, sizes, strict=True))
    return total[(slice(None), slice(None), *cut)]
