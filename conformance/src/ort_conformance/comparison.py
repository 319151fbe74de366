"""Comparing run-time values of every kind, with the first difference as a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ort_conformance.case import Margins
from ort_core.plugin.devices import DeviceArray
from ort_core.tolerances import ToleranceName, compare

_NARROW_MARGIN = 2.0**-6  # two steps of bfloat16, as onnx's own runner allows


def find_difference(
    found: Sequence[object], expected: Sequence[object], limits: ToleranceName | Margins, where: str = "output"
) -> str | None:
    """Return the first difference between two lists of values, or ``None``.

    Element types and shapes count. ``found`` may have more values than ``expected``.
    """
    if len(found) < len(expected):
        return f"{where}: {len(found)} values, expected {len(expected)}"
    for index, (left, right) in enumerate(zip(found, expected, strict=False)):
        difference = _value_difference(left, right, limits, f"{where} {index}")
        if difference is not None:
            return difference
    return None


def _value_difference(found: object, expected: object, limits: ToleranceName | Margins, where: str) -> str | None:
    if isinstance(expected, (list, tuple)):
        if not isinstance(found, (list, tuple)) or len(found) != len(expected):
            return f"{where}: {type(found).__name__} {_count(found)}, expected a sequence of {len(expected)}"
        return find_difference(found, expected, limits, f"{where}, item")
    if isinstance(expected, Mapping):
        return _mapping_difference(found, expected, limits, where)
    if expected is None:
        return None if found is None else f"{where}: {found!r}, expected none"
    if isinstance(found, DeviceArray):
        return f"{where}: a value on {found.buffer.device}, expected one on the host"
    return _array_difference(np.asarray(found), np.asarray(expected), limits, where)


def _mapping_difference(
    found: object, expected: Mapping[object, object], limits: ToleranceName | Margins, where: str
) -> str | None:
    if not isinstance(found, Mapping) or found.keys() != expected.keys():
        return f"{where}: {found!r}, expected {expected!r}"
    if not all(isinstance(value, float) for value in expected.values()):
        return None if found == expected else f"{where}: {found!r}, expected {expected!r}"
    left, right = (np.array([each[key] for key in expected], np.float32) for each in (found, expected))
    return _array_difference(left, right, limits, where)


def distance(found: object, expected: object) -> float:
    """Return how far values lie apart at most, relative to the largest expected; infinite where they do not compare.

    Lists and mappings are as far apart as what they hold; text is equal or infinitely far.
    """
    if isinstance(expected, Mapping):
        same = isinstance(found, Mapping) and found.keys() == expected.keys()
        return max((distance(found[key], expected[key]) for key in expected), default=0.0) if same else math.inf  # type: ignore[index]  # a mapping, as was just seen
    if isinstance(expected, (list, tuple)):
        same = isinstance(found, (list, tuple)) and len(found) == len(expected)
        return max((distance(a, b) for a, b in zip(found, expected, strict=True)), default=0.0) if same else math.inf  # type: ignore[call-overload]  # as above
    left, right = np.asarray(found), np.asarray(expected)
    if left.shape != right.shape or right.dtype.kind not in "fiub":
        return 0.0 if np.array_equal(left, right) else math.inf
    wide_left, wide_right = left.astype(np.float64), right.astype(np.float64)
    apart = np.where((wide_left == wide_right) | (np.isnan(wide_left) & np.isnan(wide_right)), 0.0, np.inf)
    with np.errstate(invalid="ignore"):
        apart = np.where(np.isfinite(wide_left - wide_right), np.abs(wide_left - wide_right), apart)
    scale = max(1.0, float(np.abs(wide_right, where=np.isfinite(wide_right), out=np.zeros(right.shape)).max(initial=0)))
    return float(apart.max(initial=0.0)) / scale


def _count(value: object) -> str:
    return f"of {len(value)}" if isinstance(value, (list, tuple)) else "(no sequence)"


def _array_difference(
    found: np.ndarray, expected: np.ndarray, limits: ToleranceName | Margins, where: str
) -> str | None:
    if found.shape != expected.shape:
        return f"{where}: shape {list(found.shape)}, expected {list(expected.shape)}"
    if expected.dtype.kind in "OSUT":
        same = found.tolist() == expected.astype(str).tolist()
        return None if same else f"{where}: text {found.ravel()[:4].tolist()}, expected {expected.ravel()[:4].tolist()}"
    if found.dtype != expected.dtype:
        return f"{where}: element type {found.dtype}, expected {expected.dtype}"
    if not isinstance(limits, Margins):
        facts = compare(found, expected, limits)
        return None if facts.passes else f"{where}: {facts}"
    return _margin_difference(found, expected, limits, where)


def _margin_difference(found: np.ndarray, expected: np.ndarray, margins: Margins, where: str) -> str | None:
    relative = margins.relative
    if expected.dtype.isbuiltin != 1:  # a type that numpy lacks: float32 holds all of its values
        relative = max(relative, _NARROW_MARGIN) if expected.dtype.name == "bfloat16" else relative
        found, expected = found.astype(np.float32), expected.astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.isclose(found, expected, rtol=relative, atol=margins.absolute, equal_nan=True)
    if close.all():
        return None
    wrong = np.argwhere(~close)
    first = tuple(int(i) for i in wrong[0])
    return (
        f"{where}: {len(wrong)} of {expected.size} elements differ beyond relative {relative:g}, absolute "
        f"{margins.absolute:g}; first at {list(first)}: {found[first]!s}, expected {expected[first]!s}"
    )
