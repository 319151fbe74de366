"""Numbers as text and text as numbers, as onnxruntime's Cast writes and reads them.

Written: integers in full, booleans as ``1`` and ``0``, floats with eight significant digits (C's ``%.8g``), and
``NaN``, ``INF``, ``-INF``. Read: the longest leading number, as C's ``strtod`` and ``strtoll`` do.
"""

from __future__ import annotations

import re

import numpy as np

from ort_core.errors import InvalidArgument

_DECIMAL = re.compile(
    r"\s*([+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|inf(?:inity)?|nan))", re.IGNORECASE
)
_HEXADECIMAL = re.compile(r"\s*([+-]?0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[+-]?\d+)?)", re.IGNORECASE)
_INTEGER = re.compile(r"\s*([+-]?\d+)")


def write_integers(x: np.ndarray) -> np.ndarray:
    """Return integers or booleans as an object array of ``str``."""
    whole = x.astype(np.uint8) if x.dtype.kind == "b" else x
    return whole.astype(np.str_).astype(object)


def write_floats(x: np.ndarray) -> np.ndarray:
    """Return floats as an object array of ``str`` with eight significant digits."""
    text = np.asarray(np.char.mod("%.8g", x.astype(np.float64))).astype(object)
    text[np.isnan(x)] = "NaN"
    text[np.isposinf(x)] = "INF"
    text[np.isneginf(x)] = "-INF"
    return text


def read_floats(x: np.ndarray) -> np.ndarray:
    """Return the numbers that an array of ``str`` holds, as float64.

    Raises:
        InvalidArgument: a string does not begin with a number.
    """
    return np.asarray(np.frompyfunc(_read_float, 1, 1)(x)).astype(np.float64)


def read_integers(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the integers that an array of ``str`` holds, wrapped to ``dtype``; a fraction is not read.

    Raises:
        InvalidArgument: a string does not begin with an integer, or the integer has more than 64 bits.
    """
    whole = np.asarray(np.frompyfunc(_read_integer, 1, 1)(x)).astype(np.uint64)
    return whole.astype(dtype)


def _read_float(text: str) -> float:
    if found := _HEXADECIMAL.match(text):
        return float.fromhex(found.group(1))
    if found := _DECIMAL.match(text):
        return float(found.group(1))
    raise InvalidArgument(f"Cast: the string {text!r} does not begin with a number")


def _read_integer(text: str) -> int:
    """Return the leading integer modulo 2**64, so that one unsigned dtype carries signed and unsigned values."""
    found = _INTEGER.match(text)
    if found is None:
        raise InvalidArgument(f"Cast: the string {text!r} does not begin with an integer")
    value = int(found.group(1))
    if not -(2**63) <= value < 2**64:
        raise InvalidArgument(f"Cast: the integer {found.group(1)} in a string does not fit 64 bits")
    return value % 2**64
