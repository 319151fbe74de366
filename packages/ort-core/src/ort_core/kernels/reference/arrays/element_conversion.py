"""Conversion of an array from any ONNX element type to any other: what Cast means.

Integers wrap; floats truncate towards zero (``truncated`` says what is beyond the range), except that the 2- and 4-bit
integers round half away from zero and then wrap, as in onnxruntime. The 8-bit floats saturate or not, as asked; the 6-
and 4-bit floats always saturate.
"""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.ir.types import DataType
from ort_core.kernels.reference.arrays.number_text import read_floats, read_integers, write_floats, write_integers
from ort_core.kernels.reference.arrays.widening import widen

_SMALL_INTEGERS = frozenset({DataType.INT4, DataType.UINT4, DataType.INT2, DataType.UINT2})
_FLOAT8 = frozenset({DataType.FLOAT8E4M3FN, DataType.FLOAT8E4M3FNUZ, DataType.FLOAT8E5M2, DataType.FLOAT8E5M2FNUZ})
_E8M0_BIAS, _E8M0_MAX, _E8M0_NAN = 127, 254, 255


@np.errstate(all="ignore")
def convert(x: np.ndarray, to: DataType, *, saturate: bool = True, round_mode: str = "up") -> np.ndarray:
    """Return ``x`` in element type ``to``.

    ``saturate`` matters for 8-bit floats, ``round_mode`` ("up", "down" or "nearest") for float8e8m0 alone.

    Raises:
        InvalidArgument: a string holds no number, or ``round_mode`` is unknown.
    """
    source = DataType.from_numpy(x.dtype)
    if source == to:
        return np.asarray(x)
    if to is DataType.STRING:
        return write_floats(widen(x)) if source.is_float else write_integers(native_integers(x))
    if source is DataType.STRING:
        return np.asarray(_from_text(x, to, saturate=saturate, round_mode=round_mode))
    # numpy turns results without dimensions into scalars: asarray keeps them arrays
    return np.asarray(_from_numbers(widen(native_integers(x)), to, saturate=saturate, round_mode=round_mode))


def native_integers(x: np.ndarray) -> np.ndarray:
    """Return 2- and 4-bit integers as int8; other arrays as they are."""
    return x.astype(np.int8) if DataType.from_numpy(x.dtype) in _SMALL_INTEGERS else x


def _from_text(x: np.ndarray, to: DataType, *, saturate: bool, round_mode: str) -> np.ndarray:
    if to.is_integer and to not in _SMALL_INTEGERS:
        return read_integers(x, to.numpy)
    if to is DataType.BOOL:
        return read_integers(x, np.dtype(np.uint64)) != 0
    return _from_numbers(read_floats(x), to, saturate=saturate, round_mode=round_mode)


def _from_numbers(x: np.ndarray, to: DataType, *, saturate: bool, round_mode: str) -> np.ndarray:
    if to is DataType.BOOL:
        return x != 0
    if to in _SMALL_INTEGERS:
        return wrap_small_integers(_round_half_away(x) if x.dtype.kind == "f" else x, to)
    if to in _FLOAT8:
        return to_float8(x, to.numpy, saturate=saturate)
    if to is DataType.FLOAT8E8M0:
        return _to_e8m0(x, saturate=saturate, round_mode=round_mode)
    if to.is_integer and x.dtype.kind == "f":
        return truncated(x, to.numpy)
    return x.astype(to.numpy)


def truncated(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return floats without their fractions as integers of 8 to 64 bits, the same on every processor.

    They are int32 first, or int64 if ``dtype`` is 64 bits wide or uint32, and keep their low bits. What these do not
    hold, and NaN, is the least of them, as a single conversion gives on x86; numpy's own depends on the vector unit.
    """
    wide = np.dtype(np.int64 if dtype.itemsize == 8 or dtype == np.uint32 else np.int32)
    try:
        with np.errstate(invalid="raise"):
            whole = x.astype(wide)
    except FloatingPointError:
        whole = _whole(x, wide)
        if dtype == np.uint64:
            half = 2.0**63
            whole = np.where(x >= half, _whole(x - x.dtype.type(half), wide) ^ np.int64(-(2**63)), whole)
    return whole.astype(dtype, copy=False)


def _whole(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    least = np.iinfo(dtype).min
    is_inside = (x >= float(least)) & (x < -float(least))
    return np.where(is_inside, x, x.dtype.type(least)).astype(dtype)


def _round_half_away(x: np.ndarray) -> np.ndarray:
    return np.trunc(x + np.copysign(x.dtype.type(0.5), x))


def wrap_small_integers(x: np.ndarray, to: DataType) -> np.ndarray:
    """Return the low bits of whole numbers as a 2- or 4-bit integer type."""
    low = x.astype(np.int64) & ((1 << to.bits) - 1)
    if to in (DataType.INT4, DataType.INT2):
        half = 1 << (to.bits - 1)
        low = (low ^ half) - half
    return low.astype(np.int8).astype(to.numpy)


def to_float8(x: np.ndarray, dtype: np.dtype, *, saturate: bool) -> np.ndarray:
    """Return numbers rounded to an 8-bit float; beyond its range its maximum (``saturate``), else infinity or NaN."""
    if not saturate:
        return x.astype(np.float32, copy=False).astype(dtype)
    import ml_dtypes  # imported late: only models with 8-bit floats need it

    limit = np.float32(ml_dtypes.finfo(dtype).max)
    return np.clip(x.astype(np.float32, copy=False), -limit, limit).astype(dtype)


def _to_e8m0(x: np.ndarray, *, saturate: bool, round_mode: str) -> np.ndarray:
    """Return powers of two, stored as their exponent plus 127; code 255 is NaN."""
    fraction, exponent = np.frexp(x.astype(np.float64))  # |x| = fraction * 2**exponent, 0.5 <= fraction < 1
    if round_mode == "up":
        exponent = exponent + (fraction > 0.5)
    elif round_mode == "nearest":
        exponent = exponent + (fraction >= 0.75)
    elif round_mode != "down":
        raise InvalidArgument(f"Cast: attribute round_mode is {round_mode!r}; expected 'up', 'down' or 'nearest'")
    code = np.clip(exponent - 1 + _E8M0_BIAS, 0, _E8M0_MAX)
    code = np.where(x > 0, code, 0)
    code = np.where(np.isposinf(x), _E8M0_MAX, code)
    code = np.where(np.isnan(x), _E8M0_NAN, code)
    if not saturate:
        outside = (x < 2.0**-_E8M0_BIAS) | (x > 2.0**_E8M0_BIAS)
        code = np.where(outside, _E8M0_NAN, code)
    return code.astype(np.uint8).view(DataType.FLOAT8E8M0.numpy)
