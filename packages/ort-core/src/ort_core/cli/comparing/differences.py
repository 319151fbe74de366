"""How far two values of the same name are apart, by the table of tolerances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from ort_core.tolerances import Allowance, ToleranceName, compare


@dataclass(frozen=True, slots=True)
class Difference:
    """One compared value; the numbers are ``None`` where nothing could be measured."""

    name: str
    is_equal: bool
    text: str
    max_absolute: float | None = None
    max_relative: float | None = None
    mismatches: int = 0
    count: int = 0
    worst: tuple[int, ...] | None = None
    example: str = ""

    def as_dict(self) -> dict[str, object]:
        """Return plain data for JSON."""
        return asdict(self)


def difference(name: str, found: object, expected: object, tolerance: ToleranceName | Allowance) -> Difference:
    """Compare two run-time values."""
    if isinstance(found, np.ndarray) and isinstance(expected, np.ndarray):
        return _of_arrays(name, found, expected, tolerance)
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        if list(found) != list(expected):
            return Difference(name, False, f"the keys differ: {_few(found)} and {_few(expected)}")
        return _of_parts(name, list(found.values()), list(expected.values()), tolerance)
    if isinstance(found, (list, tuple)) and isinstance(expected, (list, tuple)):
        if len(found) != len(expected):
            return Difference(name, False, f"{len(found)} elements and {len(expected)}")
        return _of_parts(name, found, expected, tolerance)
    if _is_number(found) and _is_number(expected):  # a value of a map, a plain Python number perhaps
        left, right = _as_arrays(found, expected)
        return _of_arrays(name, left, right, tolerance)
    if any(isinstance(each, (np.ndarray, Mapping, list, tuple)) for each in (found, expected)):
        return Difference(name, False, f"{type(found).__name__} and {type(expected).__name__}")
    same = found == expected
    return Difference(name, bool(same), "the same" if same else f"{found!r} and {expected!r}")


def _of_parts(
    name: str, found: Sequence[object], expected: Sequence[object], tolerance: ToleranceName | Allowance
) -> Difference:
    """Return the difference of the element that is furthest apart, and which it is."""
    parts = [difference(name, a, b, tolerance) for a, b in zip(found, expected, strict=True)]
    if not parts:
        return Difference(name, True, "both are empty")
    index = max(range(len(parts)), key=lambda i: (not parts[i].is_equal, parts[i].max_absolute or 0.0))
    worst = parts[index]
    return worst if worst.is_equal else replace(worst, text=f"element {index}: {worst.text}")


def _as_arrays(found: object, expected: object) -> tuple[np.ndarray, np.ndarray]:
    """Return two numbers in one type: what float32 holds was float32 before it became a number of Python."""
    left, right = np.asarray(found), np.asarray(expected)
    if right.dtype == np.float64 and left.dtype.kind == "f":
        with np.errstate(over="ignore"):
            narrow = left.astype(np.float32), right.astype(np.float32)
        if all(np.array_equal(a, b, equal_nan=True) for a, b in zip(narrow, (left, right), strict=True)):
            return narrow
    return left.astype(right.dtype), right


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) or (isinstance(value, np.ndarray) and value.ndim == 0)


def _few(keys: Iterable[object]) -> str:
    listed = list(keys)
    return f"[{', '.join(map(repr, listed[:4]))}{', …' if len(listed) > 4 else ''}]"


def _of_arrays(name: str, found: np.ndarray, expected: np.ndarray, tolerance: ToleranceName | Allowance) -> Difference:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        text = f"{found.dtype}{list(found.shape)} and {expected.dtype}{list(expected.shape)}"
        return Difference(name, False, text)
    facts = compare(found, expected, tolerance)
    return Difference(
        name,
        facts.passes,
        str(facts),
        facts.max_absolute,
        facts.max_relative,
        facts.mismatches,
        facts.count,
        facts.worst,
        ""
        if facts.worst is None or facts.passes
        else f": {_shown(found[facts.worst])} instead of {_shown(expected[facts.worst])}",
    )


def _shown(element: object) -> str:
    """Return one element as text; versions of ml_dtypes write their floats in different ways."""
    if isinstance(element, np.generic) and element.dtype.kind == "V":
        return str(np.asarray(element).astype(np.float64).item())
    return str(element)
