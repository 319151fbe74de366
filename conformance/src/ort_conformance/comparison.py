"""Comparing run-time values of every kind, with the first difference as a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ort_conformance.case import Margins
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
    if expected is None or isinstance(expected, Mapping):
        return None if found == expected else f"{where}: {found!r}, expected {expected!r}"
    return _array_difference(np.asarray(found), np.asarray(expected), limits, where)


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
