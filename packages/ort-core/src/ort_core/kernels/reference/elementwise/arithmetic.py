"""Elementwise arithmetic of two and more inputs; integers wrap, divide and shift as two's complement hardware does."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelFunction, kernel
from ort_core.kernels.reference.arrays.broadcasting import align, check_broadcast
from ort_core.kernels.reference.arrays.widening import is_float, narrow, widen

_FOLD = 62  # see _integer_power
BinaryFunction = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _binary(op_type: str, function: BinaryFunction) -> KernelFunction:
    @kernel(op_type)
    @np.errstate(all="ignore")
    def run(
        a: np.ndarray,
        b: np.ndarray,
        *,
        axis: int | None = None,
        broadcast: int = 0,
        consumed_inputs: tuple[int, ...] = (),
    ) -> np.ndarray:
        b = align(a, b, axis if broadcast else None)
        check_broadcast(op_type, a, b)
        return narrow(function(widen(a), widen(b)), a.dtype)

    return run


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if is_float(a.dtype):
        return np.divide(a, b)
    if np.any(b == 0):
        raise InvalidArgument("Integer division by zero: input B of Div holds a 0")
    quotient = np.floor_divide(a, b)
    if a.dtype.kind == "u":
        return quotient
    # floor and truncation differ by one where the signs differ and a remainder is left
    inexact = (quotient * b != a) & ((a < 0) != (b < 0))
    return quotient + inexact.astype(a.dtype)


add = _binary("Add", np.add)
subtract = _binary("Sub", np.subtract)
multiply = _binary("Mul", np.multiply)
divide = _binary("Div", _divide)


@kernel("Mod", since=10)
@np.errstate(all="ignore")
def mod(a: np.ndarray, b: np.ndarray, *, fmod: int = 0) -> np.ndarray:
    """Return the remainder with the sign of ``b`` (``fmod=0``) or of ``a`` (``fmod=1``)."""
    check_broadcast("Mod", a, b)
    if not is_float(a.dtype) and np.any(b == 0):
        raise InvalidArgument("Integer modulo by zero: input B of Mod holds a 0")
    wide_a, wide_b = widen(a), widen(b)
    return narrow(np.fmod(wide_a, wide_b) if fmod else np.mod(wide_a, wide_b), a.dtype)


@kernel("Pow")
@np.errstate(all="ignore")
def power(x: np.ndarray, y: np.ndarray, *, axis: int | None = None, broadcast: int = 0) -> np.ndarray:
    """Return ``x`` to the power ``y`` in the type of ``x``."""
    y = align(x, y, axis if broadcast else None)
    check_broadcast("Pow", x, y)
    if is_float(x.dtype) or is_float(y.dtype):
        return narrow(np.power(*_to_one_float(widen(x), widen(y))), x.dtype)
    return _integer_power(x, y)


def _to_one_float(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if x.dtype == y.dtype:
        return x, y
    is_narrow = is_float(x.dtype) and is_float(y.dtype) and np.float64 not in (x.dtype, y.dtype)
    common = np.float32 if is_narrow else np.float64  # in which integers keep whether they are odd
    return x.astype(common), y.astype(common)


def _integer_power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the truncated power: a negative exponent leaves 0, except for bases of 1 and -1."""
    # modulo 2**64 powers repeat after at most 2**62 steps: larger exponents fold into [2**62, 2**63)
    magnitude = np.abs(y).astype(np.uint64)
    folded = np.where(magnitude >> _FOLD, magnitude % 2**_FOLD + 2**_FOLD, magnitude).astype(np.int64)
    raised = np.power(x.astype(np.int64), folded).astype(x.dtype)
    unit = (x == 1) if x.dtype.kind == "u" else (x == 1) | (x == -1)
    return np.where((y >= 0) | unit, raised, x.dtype.type(0))


@kernel("BitShift", since=11)
@np.errstate(all="ignore")
def bit_shift(x: np.ndarray, y: np.ndarray, *, direction: str) -> np.ndarray:
    """Return ``x`` shifted by ``y`` bits; a right shift of a signed type keeps the sign.

    A shift by a negative amount or by all bits leaves what the sign alone gives: -1 or 0.
    """
    check_broadcast("BitShift", x, y)
    if direction not in ("LEFT", "RIGHT"):
        raise InvalidArgument(f"BitShift: attribute direction is {direction!r}; expected 'LEFT' or 'RIGHT'")
    bits = x.dtype.itemsize * 8
    outside = (y < 0) | (y >= bits)
    amount = np.where(outside, y.dtype.type(0), y)
    if direction == "LEFT":
        return np.where(outside, x.dtype.type(0), np.left_shift(x, amount))
    sign_only = np.right_shift(x, x.dtype.type(bits - 1)) if x.dtype.kind == "i" else np.zeros_like(x)
    return np.where(outside, sign_only, np.right_shift(x, amount))


def _variadic(op_type: str, function: BinaryFunction) -> KernelFunction:
    @kernel(op_type)
    @np.errstate(all="ignore")
    def run(*inputs: np.ndarray, consumed_inputs: tuple[int, ...] = ()) -> np.ndarray:
        check_broadcast(op_type, *inputs)
        return narrow(functools.reduce(function, map(widen, inputs)), inputs[0].dtype)

    return run


minimum = _variadic("Min", np.minimum)
maximum = _variadic("Max", np.maximum)
total = _variadic("Sum", np.add)


@kernel("Mean")
@np.errstate(all="ignore")
def mean(*inputs: np.ndarray, consumed_inputs: tuple[int, ...] = ()) -> np.ndarray:
    """Return the arithmetic mean of all inputs."""
    check_broadcast("Mean", *inputs)
    dtype = inputs[0].dtype
    wide = functools.reduce(np.add, map(widen, inputs))
    return narrow(wide / wide.dtype.type(len(inputs)), dtype)


@kernel("Clip", until=10)
@np.errstate(all="ignore")
def clip_by_attributes(
    x: np.ndarray,
    *,
    min: float = float(np.finfo(np.float32).min),
    max: float = float(np.finfo(np.float32).max),
    consumed_inputs: tuple[int, ...] = (),
) -> np.ndarray:
    """Return ``x`` limited to the interval that the attributes give."""
    low, high = np.asarray(min).astype(x.dtype), np.asarray(max).astype(x.dtype)
    return clip(x, low, high)


@kernel("Clip", since=11)
@np.errstate(all="ignore")
def clip(x: np.ndarray, low: np.ndarray | None = None, high: np.ndarray | None = None) -> np.ndarray:
    """Return ``x`` limited to [low, high]; where low exceeds high the result is high everywhere."""
    y = widen(x)
    for name, bound, limit in (("min", low, np.maximum), ("max", high, np.minimum)):
        if bound is None:
            continue
        if bound.size != 1:
            raise InvalidArgument(f"{name} should be a scalar: input {name} of Clip has shape {bound.shape}")
        y = limit(y, widen(bound).reshape(()))
    return narrow(y, x.dtype)
