"""The one table of tolerances: how far a result may lie from the truth, by a name that says why.

* ``exact``: the same bits (NaN equals NaN): data movement, integers, comparisons, text.
* ``rounding``: the same formula with roundings elsewhere: elementwise arithmetic, short sums.
* ``approximate``: another formula or order: long sums, products of matrices, transcendental functions, fusions.
* ``random``: one draw; only moments of many elements can be compared.

A value passes when ``|found - expected| <= absolute + relative * |expected|``.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ort_core.frozen import frozen

ToleranceName = Literal["exact", "rounding", "approximate", "random"]


@frozen
class Tolerance:
    """Limits of a comparison."""

    name: ToleranceName
    relative: float
    absolute: float


# Multiples of the spacing of numbers near 1: what a kernel of few roundings, and one of a few thousand, may lose.
_ROUNDING, _APPROXIMATE = 16, 1024
_RANDOM = 0.05  # of a mean or standard deviation over at least 10,000 draws; their error is near 0.01
_SPACING = {  # distance from 1 to the next larger number
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "complex64": 2.0**-23,
    "complex128": 2.0**-52,
    "float8_e4m3fn": 2.0**-3,
    "float8_e4m3fnuz": 2.0**-3,
    "float8_e5m2": 2.0**-2,
    "float8_e5m2fnuz": 2.0**-2,
    "float8_e8m0fnu": 1.0,
    "float4_e2m1fn": 2.0**-1,
}
_NARROW = 2.0**-6  # types with fewer bits are computed in float32: one rounding at the end is all that may differ


def tolerance(name: ToleranceName, dtype: np.dtype | str) -> Tolerance:
    """Return the limits for results of an element type. Integers, text and ``exact`` give zero.

    Integers compared as ``approximate`` may differ by one: quantized results round a float that may lie on the border.
    """
    spacing = _SPACING.get(np.dtype(dtype).name if not isinstance(dtype, str) else dtype)
    if name == "random":
        return Tolerance(name, _RANDOM, _RANDOM)
    if spacing is None:
        return Tolerance(name, 0.0, 1.0 if name == "approximate" and _is_integer(dtype) else 0.0)
    if name == "exact":
        return Tolerance(name, 0.0, 0.0)
    if spacing > _NARROW:
        return Tolerance(name, 2 * spacing, spacing)
    steps = _ROUNDING if name == "rounding" else _APPROXIMATE
    if spacing > 2.0**-20:  # half precision: accumulated in float32, so a few of its own steps are enough
        steps = 2 if name == "rounding" else 8
    return Tolerance(name, steps * spacing, steps * spacing)


@frozen
class Allowance:
    """A named tolerance, with other limits where somebody gives them: for numbers of every type, never for text."""

    name: ToleranceName
    relative: float | None = None
    absolute: float | None = None

    def limits(self, dtype: np.dtype) -> Tolerance:
        """Return the limits for results of an element type."""
        table = tolerance(self.name, dtype)
        if dtype.kind in "OSUTb":
            return table
        relative = table.relative if self.relative is None else self.relative
        absolute = table.absolute if self.absolute is None else self.absolute
        return Tolerance(self.name, relative, absolute)

    def __str__(self) -> str:
        given = {"relative": self.relative, "absolute": self.absolute}
        return ", ".join([self.name, *(f"{name} {value:g}" for name, value in given.items() if value is not None)])


def _is_integer(dtype: np.dtype | str) -> bool:
    name = dtype if isinstance(dtype, str) else dtype.name
    return name.startswith(("int", "uint"))


@frozen
class Comparison:
    """Facts of comparing two arrays of one shape and type; ``worst`` is the index of the largest excess."""

    count: int
    mismatches: int
    max_absolute: float
    max_relative: float
    worst: tuple[int, ...] | None
    tolerance: Tolerance

    @property
    def passes(self) -> bool:
        """Whether no element lies outside the tolerance."""
        return self.mismatches == 0

    def __str__(self) -> str:
        limits = (
            f"{self.tolerance.name}: relative {self.tolerance.relative:.3g}, absolute {self.tolerance.absolute:.3g}"
        )
        if self.passes:
            return f"{self.count} elements within {limits} (largest difference {self.max_absolute:.3g})"
        return (
            f"{self.mismatches} of {self.count} elements outside {limits}; largest difference {self.max_absolute:.3g} "
            f"(relative {self.max_relative:.3g}) at {list(self.worst or ())}"
        )


def compare(found: np.ndarray, expected: np.ndarray, name: ToleranceName | Allowance) -> Comparison:
    """Compare two arrays of equal shape. NaN equals NaN, an infinity only the same infinity.

    Raises:
        ValueError: the shapes differ.
    """
    if found.shape != expected.shape:
        raise ValueError(f"the shapes {list(found.shape)} and {list(expected.shape)} differ")
    limits = name.limits(expected.dtype) if isinstance(name, Allowance) else tolerance(name, expected.dtype)
    if limits.name == "random":
        return _compare_moments(found, expected, limits)
    if expected.dtype.kind in "OSUT":
        wrong = np.asarray(found != expected, bool)
        return _facts(wrong, wrong.astype(np.float64), wrong.astype(np.float64), limits)
    if expected.dtype.kind in "iub":
        return _compare_integers(found, expected, limits)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    left, right = found.astype(wide), expected.astype(wide)
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(left - right)
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        distance = np.where(same, 0.0, np.where(np.isfinite(distance), distance, np.inf))
        size = np.abs(right)
        allowed = limits.absolute + limits.relative * np.where(np.isfinite(size), size, 0.0)
    relative = np.divide(distance, size, out=np.where(distance > 0, np.inf, 0.0), where=(size > 0) & np.isfinite(size))
    return _facts(distance > allowed, distance, relative, limits)


def _compare_integers(found: np.ndarray, expected: np.ndarray, limits: Tolerance) -> Comparison:
    left, right = found.astype(object), expected.astype(object)  # exact for uint64 and int64 alike
    if np.array_equal(found, expected):
        zeros = np.zeros(expected.shape)
        return _facts(zeros > 0, zeros, zeros, limits)
    distance = np.abs(left - right).astype(np.float64)
    size = np.abs(right.astype(np.float64))
    relative = np.divide(distance, size, out=np.where(distance > 0, np.inf, 0.0), where=size > 0)
    return _facts(distance > limits.absolute, distance, relative, limits)


def _compare_moments(found: np.ndarray, expected: np.ndarray, limits: Tolerance) -> Comparison:
    left, right = found.astype(np.float64).ravel(), expected.astype(np.float64).ravel()
    if not left.size:
        return Comparison(0, 0, 0.0, 0.0, None, limits)
    scale = max(float(right.std()), abs(float(right.mean())), np.finfo(np.float64).tiny)
    distance = max(abs(float(left.mean() - right.mean())), abs(float(left.std() - right.std())))
    failed = distance > limits.absolute + limits.relative * scale
    return Comparison(left.size, int(failed) * left.size, distance, distance / scale, None, limits)


def _facts(wrong: np.ndarray, distance: np.ndarray, relative: np.ndarray, limits: Tolerance) -> Comparison:
    if not wrong.size:
        return Comparison(0, 0, 0.0, 0.0, None, limits)
    ranked = np.where(wrong, distance, -1.0) if wrong.any() else distance
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(ranked)), wrong.shape))
    return Comparison(wrong.size, int(wrong.sum()), float(distance.max()), float(relative.max()), worst, limits)
