"""How far two values of the same name are apart, by the table of tolerances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from ort_core.tolerances import ToleranceName, compare


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

    def as_dict(self) -> dict[str, object]:
        """Return plain data for JSON."""
        return asdict(self)


def difference(name: str, found: object, expected: object, tolerance: ToleranceName) -> Difference:
    """Compare two run-time values."""
    if isinstance(found, np.ndarray) and isinstance(expected, np.ndarray):
        return _of_arrays(name, found, expected, tolerance)
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        if list(found) != list(expected):
            return Difference(name, False, "the keys differ")
        return difference(name, np.array(list(found.values())), np.array(list(expected.values())), tolerance)
    if isinstance(found, (list, tuple)) and isinstance(expected, (list, tuple)):
        if len(found) != len(expected):
            return Difference(name, False, f"{len(found)} elements and {len(expected)}")
        parts = [difference(name, a, b, tolerance) for a, b in zip(found, expected, strict=True)]
        worst = max(parts, key=lambda part: (not part.is_equal, part.max_absolute or 0.0), default=None)
        return worst or Difference(name, True, "both are empty")
    same = found == expected
    return Difference(name, bool(same), "the same" if same else f"{found!r} and {expected!r}")


def _of_arrays(name: str, found: np.ndarray, expected: np.ndarray, tolerance: ToleranceName) -> Difference:
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
    )
