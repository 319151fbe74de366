"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear: per tensor, per axis, and in blocks along an axis."""

from __future__ import annotations

import functools

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.ir.types import DataType
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.element_conversion import convert, native_integers
from ort_core.kernels.reference.arrays.widening import narrow, widen
from ort_core.kernels.reference.elementwise.cast import element_type
from ort_core.kernels.reference.normalization.reductions import normalize_axes


@functools.cache
def integer_limits(dtype: np.dtype) -> tuple[int, int]:
    """Return the least and greatest value of an integer dtype, 2- and 4-bit ones included."""
    found = DataType.from_numpy(dtype)
    unsigned = found in (DataType.UINT2, DataType.UINT4) or dtype.kind == "u"
    return (0, 2**found.bits - 1) if unsigned else (-(2 ** (found.bits - 1)), 2 ** (found.bits - 1) - 1)


def saturate(real: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return whole numbers limited to the range of an integer ``dtype``; NaN becomes the least value."""
    low, high = integer_limits(dtype)
    limited = np.fmin(np.fmax(real, low), high)
    return np.asarray(limited.astype(np.int64).astype(dtype))


def spread(parameter: np.ndarray, shape: tuple[int, ...], axis: int, block_size: int, op_type: str) -> np.ndarray:
    """Return a scale or zero point so that it broadcasts to ``shape``.

    Raises:
        InvalidArgument: it has neither one element, nor one for each element (or block) along ``axis``.
    """
    if block_size == 0 and (parameter.ndim == 0 or parameter.shape == (1,)):
        return parameter.reshape(())
    along = normalize_axes(op_type, (axis,), len(shape))[0]
    if block_size == 0 and parameter.shape == (shape[along],):
        return parameter.reshape((-1,) + (1,) * (len(shape) - 1 - along))
    if block_size > 0 and parameter.shape == _blocked(shape, along, block_size):
        repeated = np.repeat(parameter, block_size, axis=along)
        return repeated[(slice(None),) * along + (slice(shape[along]),)]
    raise InvalidArgument(
        f"{op_type}: scale or zero point of shape {parameter.shape} does not fit an input of shape {shape} with "
        f"axis={axis} and block_size={block_size}; expected one element, [{shape[along]}], or one for each block"
    )


def _blocked(shape: tuple[int, ...], axis: int, block_size: int) -> tuple[int, ...]:
    return (*shape[:axis], -(-shape[axis] // block_size), *shape[axis + 1 :])


@kernel("QuantizeLinear", since=10)
@np.errstate(all="ignore")
def quantize_linear(
    x: np.ndarray,
    scale: np.ndarray,
    zero_point: np.ndarray | None = None,
    *,
    axis: int = 1,
    saturate: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
) -> np.ndarray:
    """Return saturate(round(x / scale) + zero_point); floats are rounded to the target, not to whole numbers."""
    target = _quantized_type(zero_point, output_dtype)
    divisor = spread(scale, x.shape, axis, block_size, "QuantizeLinear")
    quotient = _divide(x, divisor, element_type("QuantizeLinear", precision) if precision else None)
    offset = np.zeros((), np.float32)
    if zero_point is not None:
        offset = spread(widen(native_integers(zero_point)), x.shape, axis, block_size, "QuantizeLinear")
    if target.is_float:
        kept = np.where(offset == 0, np.float32(-0.0), offset)  # to add it leaves the sign of a zero
        return convert(quotient + kept, target, saturate=bool(saturate))
    return _saturated(np.rint(quotient).astype(np.float64) + offset, target.numpy)


@kernel("QuantizeLinear", since=23)
def quantize_linear_by_precision(
    x: np.ndarray,
    scale: np.ndarray,
    zero_point: np.ndarray | None = None,
    *,
    axis: int = 1,
    saturate: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
) -> np.ndarray:
    """As before opset 23, the quotient rounded to ``precision``: to the type of ``scale`` where nothing is said."""
    kind = DataType.from_numpy(scale.dtype)
    if not precision and kind in _HALVES:
        precision = kind.value
    return quantize_linear(
        x, scale, zero_point, axis=axis, saturate=saturate, block_size=block_size, output_dtype=output_dtype,
        precision=precision,
    )  # fmt: skip


_HALVES = (DataType.FLOAT16, DataType.BFLOAT16)
_saturated = saturate  # the attribute of the same name hides the function above


def _quantized_type(zero_point: np.ndarray | None, output_dtype: int) -> DataType:
    named = element_type("QuantizeLinear", output_dtype) if output_dtype else None
    if zero_point is None:
        return named or DataType.UINT8
    found = DataType.from_numpy(zero_point.dtype)
    if named not in (None, found):
        raise InvalidArgument(f"QuantizeLinear: output_dtype is {named.text}, but y_zero_point has type {found.text}")
    return found


def _divide(x: np.ndarray, scale: np.ndarray, precision: DataType | None) -> np.ndarray:
    """Return x / scale, of which ``precision`` says how both and the quotient are rounded (default: not)."""
    if precision is not None:
        x, scale = convert(x, precision), convert(scale, precision)
    if precision in _HALVES:
        return widen(narrow(widen(x) / widen(scale), x.dtype))
    if x.dtype.kind in "iu" or scale.dtype.kind in "iu":
        return x.astype(np.float64) / scale.astype(np.float64)
    return widen(x) / widen(scale)


@kernel("DequantizeLinear", since=10)
@np.errstate(all="ignore")
def dequantize_linear(
    x: np.ndarray,
    scale: np.ndarray,
    zero_point: np.ndarray | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> np.ndarray:
    """Return (x - zero_point) scale in the type of ``scale``, or in ``output_dtype``."""
    target = element_type("DequantizeLinear", output_dtype).numpy if output_dtype else scale.dtype
    factor = widen(spread(scale, x.shape, axis, block_size, "DequantizeLinear"))
    difference = _exact(x)
    if zero_point is not None:
        difference = difference - spread(_exact(zero_point), x.shape, axis, block_size, "DequantizeLinear")
    working = np.float64 if factor.dtype == np.float64 else np.float32
    return narrow(difference.astype(working) * factor, target)


def _exact(x: np.ndarray) -> np.ndarray:
    """Return quantized values in a type that holds their differences."""
    native = native_integers(x)
    return native.astype(np.int64) if native.dtype.kind in "iu" else widen(native)


@kernel("DynamicQuantizeLinear", since=11)
@np.errstate(all="ignore")
def dynamic_quantize_linear(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``x`` as uint8, with the scale and zero point that its own range (extended to 0) gives."""
    low = np.min(x, initial=0.0).astype(np.float32)
    high = np.max(x, initial=0.0).astype(np.float32)
    scale = np.float32(1) if low == high else (high - low) / np.float32(255)
    zero_point = np.rint(np.clip(-low / scale, 0, 255)).astype(np.uint8)
    quantized = saturate(np.rint(x / scale) + zero_point, np.dtype(np.uint8))
    return quantized, np.asarray(scale, np.float32), np.asarray(zero_point)
