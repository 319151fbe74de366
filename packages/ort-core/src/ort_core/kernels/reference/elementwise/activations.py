"""Activation functions, elementwise: floats narrower than 32 bits compute in float32 and round once."""

from __future__ import annotations

import math

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.broadcasting import align, check_broadcast
from ort_core.kernels.reference.arrays.error_function import erf
from ort_core.kernels.reference.arrays.gates import sigmoid as sigmoid_of
from ort_core.kernels.reference.arrays.gates import weighted
from ort_core.kernels.reference.arrays.widening import narrow, widen

# the attributes' float32 defaults, as the double that a loader hands over
_ALPHA_LEAKY = float(np.float32(0.01))
_ALPHA_HARD_SIGMOID = float(np.float32(0.2))
_ALPHA_SELU, _GAMMA_SELU = float(np.float32(1.67326319217681884765625)), float(np.float32(1.05070102214813232421875))
_ALPHA_SELU_1, _GAMMA_SELU_1 = float(np.float32(1.6732)), float(np.float32(1.0507))
_CLIP = (0.0, 1.0)


@kernel("Relu")
@np.errstate(all="ignore")
def relu(x: np.ndarray, *, consumed_inputs: tuple[int, ...] = ()) -> np.ndarray:
    """Return max(x, 0); NaN stays NaN."""
    wide = widen(x)
    return narrow(np.maximum(wide, wide.dtype.type(0)), x.dtype)


@kernel("LeakyRelu")
@np.errstate(all="ignore")
def leaky_relu(x: np.ndarray, *, alpha: float = _ALPHA_LEAKY, consumed_inputs: tuple[int, ...] = ()) -> np.ndarray:
    """Return x where x >= 0, else alpha x."""
    wide = widen(x)
    return narrow(np.where(wide >= 0, wide, wide.dtype.type(alpha) * wide), x.dtype)


@kernel("PRelu", until=6)
@np.errstate(all="ignore")
def prelu_by_channel(x: np.ndarray, slope: np.ndarray, *, consumed_inputs: tuple[int, ...] = ()) -> np.ndarray:
    """Return x where x >= 0, else slope x, with one slope or one for each channel (dimension 1)."""
    if slope.size == 1:
        return prelu(x, slope.reshape(()))
    return prelu(x, slope if x.ndim < 2 else align(x, slope.reshape(-1), 1))


@kernel("PRelu", since=7)
@np.errstate(all="ignore")
def prelu(x: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Return x where x >= 0, else slope x, in the shape to which both broadcast.

    The specification lets ``slope`` broadcast to ``x`` only; its reference implementation and onnxruntime let each.
    """
    check_broadcast("PRelu", x, slope)
    wide = widen(x)
    return narrow(np.where(wide < 0, widen(slope) * wide, wide), x.dtype)


@kernel("Elu")
@np.errstate(all="ignore")
def elu(x: np.ndarray, *, alpha: float = 1.0, consumed_inputs: tuple[int, ...] = ()) -> np.ndarray:
    """Return x where x >= 0, else alpha (exp(x) - 1)."""
    wide = widen(x)
    return narrow(np.where(wide >= 0, wide, wide.dtype.type(alpha) * _exp_minus_one(wide)), x.dtype)


@kernel("Celu", since=12)
@np.errstate(all="ignore")
def celu(x: np.ndarray, *, alpha: float = 1.0) -> np.ndarray:
    """Return max(0, x) + min(0, alpha (exp(x / alpha) - 1))."""
    wide = widen(x)
    slope = wide.dtype.type(alpha)
    lower = slope * np.expm1(wide / slope)
    return narrow(np.maximum(wide, 0) + np.minimum(0, lower), x.dtype)


@kernel("Selu", until=5)
@np.errstate(all="ignore")
def selu_1(
    x: np.ndarray,
    *,
    alpha: float = _ALPHA_SELU_1,
    gamma: float = _GAMMA_SELU_1,
    consumed_inputs: tuple[int, ...] = (),
) -> np.ndarray:
    """Return Selu with the shorter constants of the first version."""
    return selu(x, alpha=alpha, gamma=gamma)


@kernel("Selu", since=6)
@np.errstate(all="ignore")
def selu(x: np.ndarray, *, alpha: float = _ALPHA_SELU, gamma: float = _GAMMA_SELU) -> np.ndarray:
    """Return gamma x where x > 0, else gamma alpha (exp(x) - 1)."""
    wide = widen(x)
    real = wide.dtype.type
    return narrow(real(gamma) * np.where(wide > 0, wide, real(alpha) * _exp_minus_one(wide)), x.dtype)


def _exp_minus_one(x: np.ndarray) -> np.ndarray:
    """Return exp(x) - 1 where x < 0; positive inputs give 0 rather than overflow."""
    return np.expm1(np.minimum(x, 0))


@kernel("Gelu", since=20)
@np.errstate(all="ignore")
def gelu(x: np.ndarray, *, approximate: str = "none") -> np.ndarray:
    """Return x Phi(x), Phi the normal distribution, exactly or by its tanh approximation; -inf gives NaN."""
    wide = widen(x)
    if approximate == "none":
        return narrow(weighted(wide, 0.5 * (1 + erf(wide / math.sqrt(2)))), x.dtype)
    if approximate != "tanh":
        raise InvalidArgument(f"Gelu: attribute approximate is {approximate!r}; expected 'none' or 'tanh'")
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide * wide * wide)
    return narrow(weighted(wide, 0.5 * (1 + np.tanh(inner))), x.dtype)


@kernel("Mish", since=18)
@np.errstate(all="ignore")
def mish(x: np.ndarray) -> np.ndarray:
    """Return x tanh(log(1 + exp(x)))."""
    wide = widen(x)
    return narrow(wide * np.tanh(np.logaddexp(0, wide)), x.dtype)


@kernel("HardSigmoid")
@np.errstate(all="ignore")
def hard_sigmoid(
    x: np.ndarray,
    *,
    alpha: float = _ALPHA_HARD_SIGMOID,
    beta: float = 0.5,
    consumed_inputs: tuple[int, ...] = (),
) -> np.ndarray:
    """Return alpha x + beta, limited to [0, 1]."""
    wide = widen(x)
    real = wide.dtype.type
    return narrow(np.clip(real(alpha) * wide + real(beta), *_CLIP), x.dtype)


@kernel("HardSwish", since=14)
@np.errstate(all="ignore")
def hard_swish(x: np.ndarray) -> np.ndarray:
    """Return x max(0, min(1, x / 6 + 1/2))."""
    wide = widen(x)
    return narrow(wide * np.clip(wide / 6 + 0.5, *_CLIP), x.dtype)


@kernel("Swish", since=24)
@np.errstate(all="ignore")
def swish(x: np.ndarray, *, alpha: float = 1.0) -> np.ndarray:
    """Return x sigmoid(alpha x)."""
    wide = widen(x)
    return narrow(wide * sigmoid_of(wide.dtype.type(alpha) * wide), x.dtype)


@kernel("SwiGLU", since=28)
@np.errstate(all="ignore")
def swiglu(gate: np.ndarray, linear: np.ndarray, *, alpha: float = 1.0) -> np.ndarray:
    """Return swish(gate) times linear; the shapes must be equal."""
    if gate.shape != linear.shape:
        raise InvalidArgument(f"SwiGLU: inputs A {gate.shape} and B {linear.shape} must have the same shape")
    wide = widen(gate)
    return narrow(wide * sigmoid_of(wide.dtype.type(alpha) * wide) * widen(linear), gate.dtype)


@kernel("Softplus")
@np.errstate(all="ignore")
def softplus(x: np.ndarray) -> np.ndarray:
    """Return log(1 + exp(x))."""
    wide = widen(x)
    return narrow(np.logaddexp(wide.dtype.type(0), wide), x.dtype)


@kernel("Softsign")
@np.errstate(all="ignore")
def softsign(x: np.ndarray) -> np.ndarray:
    """Return x / (1 + |x|)."""
    wide = widen(x)
    return narrow(wide / (1 + np.abs(wide)), x.dtype)


@kernel("Sigmoid")
@np.errstate(all="ignore")
def sigmoid(x: np.ndarray, *, consumed_inputs: tuple[int, ...] = ()) -> np.ndarray:
    """Return 1 / (1 + exp(-x))."""
    return narrow(sigmoid_of(widen(x)), x.dtype)


@kernel("ThresholdedRelu", since=1)
@np.errstate(all="ignore")
def thresholded_relu(x: np.ndarray, *, alpha: float = 1.0) -> np.ndarray:
    """Return x where x > alpha, else 0."""
    wide = widen(x)
    return narrow(np.where(wide > alpha, wide, wide.dtype.type(0)), x.dtype)


@kernel("Shrink", since=9)
@np.errstate(all="ignore")
def shrink(x: np.ndarray, *, bias: float = 0.0, lambd: float = 0.5) -> np.ndarray:
    """Return x + bias below -lambd, x - bias above lambd, 0 between; integers truncate the result."""
    wide = widen(x)
    result = np.where(wide < -lambd, wide + bias, np.where(wide > lambd, wide - bias, 0))
    return narrow(result, x.dtype)
