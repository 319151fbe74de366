"""Operators on strings.

numpy has no vectorized form for arbitrary Python strings, so one Python function is applied to each string.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.axes import check_size, shape_text, string_array
from ort_core.kernels.reference.texts.re2_syntax import to_python
from ort_core.tensors.broadcasting import broadcast_arrays, broadcast_shapes


def map_strings(function: Callable[[str], object], values: np.ndarray, dtype: np.dtype | type) -> np.ndarray:
    """Return ``function`` of each string, as an array of ``dtype`` and the same shape."""
    out = np.empty(values.shape, dtype)
    flat = np.frompyfunc(function, 1, 1)(values.reshape(-1))
    out.reshape(-1)[:] = flat
    return out


@kernel("StringConcat", since=20)
def string_concat(left: np.ndarray, right: np.ndarray, *, ctx: KernelContext | None = None) -> np.ndarray:
    """Z = X followed by Y, string by string, broadcast."""
    try:
        shape = broadcast_shapes(left.shape, right.shape)
    except ValueError as error:
        raise InvalidArgument(
            f"StringConcat: shapes {shape_text(left.shape)} and {shape_text(right.shape)} do not broadcast"
        ) from error
    check_size(shape, left.dtype, "StringConcat", ctx)
    left, right = broadcast_arrays(left, right)
    joined = left.reshape(-1) + right.reshape(-1)
    return joined.reshape(left.shape)


@kernel("StringSplit", since=20)
def string_split(
    text: np.ndarray,
    *,
    delimiter: str | None = None,
    maxsplit: int | None = None,
    ctx: KernelContext | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Y = the parts of each string in a new last dimension, filled up with ""; Z = how many parts each has."""
    limit = -1 if maxsplit is None else int(maxsplit)
    parts = [_parts(value, delimiter or None, limit) for value in text.reshape(-1).tolist()]
    counts = np.array([len(found) for found in parts], np.int64)
    width = int(counts.max(initial=0))
    check_size((len(parts), width), text.dtype, "StringSplit", ctx)
    out = string_array([""] * (len(parts) * width), (len(parts), width))
    out[np.arange(width) < counts[:, None]] = string_array([part for found in parts for part in found])
    return out.reshape((*text.shape, width)), counts.reshape(text.shape)


def _parts(value: str, delimiter: str | None, limit: int) -> list[str]:
    if delimiter is None:
        # Python keeps white space at the end of the last part when a limit is reached; onnxruntime does not.
        return value.strip().split(None, limit)
    # Splitting an empty string by a delimiter gives no part at all here, where Python gives one empty part.
    return value.split(delimiter, limit) if value else []


@kernel("RegexFullMatch", since=20)
def regex_full_match(text: np.ndarray, *, pattern: str = "") -> np.ndarray:
    """Y = whether each whole string matches the RE2 ``pattern``."""
    matches = _matcher(pattern)
    return map_strings(matches, text, np.bool_)


@functools.lru_cache(maxsize=64)
def _matcher(pattern: str) -> Callable[[str], bool]:
    try:
        compiled = re.compile(to_python(pattern))
    except (re.error, ValueError) as error:
        raise InvalidArgument(f"Invalid regex pattern: {pattern} ({error}); RE2 syntax is expected") from error
    return lambda value: compiled.fullmatch(value) is not None


class CaseTable(dict[int, str]):
    """Maps each character to its lower or upper case where that is one character too, as C's towupper does."""

    def __init__(self, change: Callable[[str], str]) -> None:
        self._change = change

    def __missing__(self, code: int) -> str:
        found = self._change(chr(code))
        self[code] = found if len(found) == 1 else chr(code)
        return self[code]


_LOWER, _UPPER = CaseTable(str.lower), CaseTable(str.upper)


def _lower(text: str) -> str:
    return text.lower() if text.isascii() else text.translate(_LOWER)


def _upper(text: str) -> str:
    return text.upper() if text.isascii() else text.translate(_UPPER)


CASE_CHANGES: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": _lower, "UPPER": _upper}


@kernel("StringNormalizer", since=10)
def string_normalizer(
    text: np.ndarray,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str | None = None,
    stopwords: tuple[str, ...] = (),
) -> np.ndarray:
    """Y = X without the stop words, in lower or upper case; one empty string when nothing is left.

    Case follows Unicode's own rules, whatever ``locale`` says, so that no locale has to be installed.
    """
    if case_change_action not in CASE_CHANGES:
        raise InvalidArgument(
            f"attribute case_change_action has invalid value {case_change_action!r}; known: {', '.join(CASE_CHANGES)}"
        )
    row = _single_row(text)
    change = CASE_CHANGES[case_change_action]
    fold: Callable[[str], str] = str if is_case_sensitive else _lower
    banned = frozenset(fold(word) for word in stopwords)
    if banned:
        row = [value for value in row if fold(value) not in banned]
    kept = row if change is str else [change(value) for value in row]
    out = string_array(kept or [""])
    return out[None, :] if text.ndim == 2 else out


def _single_row(text: np.ndarray) -> list[str]:
    if text.ndim not in (1, 2) or (text.ndim == 2 and text.shape[0] != 1):
        raise InvalidArgument(f"Input dimensions are either[C > 0] or [1][C > 0] allowed, got {shape_text(text.shape)}")
    if text.size == 0:
        raise InvalidArgument(f"Single dimension value must be greater than 0, got {shape_text(text.shape)}")
    return list(text.reshape(-1).tolist())
