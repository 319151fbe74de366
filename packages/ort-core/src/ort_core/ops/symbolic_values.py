"""Contents of small tensors while a graph is analyzed: object arrays of numbers, symbolic sizes, and unknowns.

An element is an ``int``, a ``float``, a ``SymbolicDim``, or ``None`` where nothing is known. Every function here
works on one or two elements; numpy broadcasts them over arrays (see ``map_elements``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from ort_core.ir.dims import DimTooLarge, SymbolicDim, ceil_div, floor_div, is_never_negative, maximum, minimum, modulo

Element = int | float | SymbolicDim | None
SymbolicValue = np.ndarray  # of dtype object, holding Elements
COUNTABLE = 2**60  # numpy counts bytes in 64 bits, of empty arrays as well; an element here takes 8
MAX_ELEMENTS = 128  # shapes have under 10 dimensions and pads twice that; above lies data, not shape arithmetic
MAX_AXES = 32  # of an array whose elements numpy's own iterators take; shape arithmetic has one or two


def as_elements(array: np.ndarray) -> SymbolicValue | None:
    """Return the elements of a numeric or boolean array, ``None`` when it is large, has many axes or another kind."""
    if array.size > MAX_ELEMENTS or array.ndim > MAX_AXES or array.dtype.kind not in "iubf":
        return None
    found = np.empty(array.shape, object)
    if array.dtype.kind == "b":
        array = array.astype(np.int64)
    found.reshape(-1)[:] = array.reshape(-1).tolist()
    return found


def has_same_elements(left: SymbolicValue, right: SymbolicValue) -> bool:
    """Return whether two arrays have one shape and the same elements; a size is not the name that it reads like."""
    return left.shape == right.shape and all(map(_is_same, left.reshape(-1), right.reshape(-1)))


def _is_same(left: Element, right: Element) -> bool:
    if isinstance(left, SymbolicDim) or isinstance(right, SymbolicDim):
        return left == right
    return repr(left) == repr(right)  # the text tells 1 from 1.0


def counted(sizes: Sequence[int]) -> int:
    """Return how many elements numpy counts for sizes when it makes an array: an empty axis takes nothing away."""
    return math.prod(max(size, 1) for size in sizes)


def make_value(elements: list[Element] | tuple[Element, ...]) -> SymbolicValue:
    """Return elements as a vector."""
    found = np.empty(len(elements), object)
    found[:] = elements
    return found


def map_elements(function: Callable[..., Element], *arrays: SymbolicValue) -> SymbolicValue | None:
    """Apply a function element by element with broadcasting; ``None`` when the shapes do not fit.

    Elements whose expression outgrows what sizes can be become unknown.
    """

    def bounded(*elements: Element) -> Element:
        try:
            return function(*elements)
        except DimTooLarge:
            return None

    try:
        with np.errstate(invalid="ignore"):  # comparing a NaN is no news here
            result = np.frompyfunc(bounded, len(arrays), 1)(*arrays)
    except ValueError:
        return None
    if isinstance(result, np.ndarray):
        return result
    found = np.empty((), object)
    found[()] = result
    return found


def whole(number: Element) -> Element:
    """Return a float with an integral value as an int, so that it can meet symbolic sizes."""
    if isinstance(number, float) and math.isfinite(number) and number.is_integer():
        return int(number)
    return number


def _arithmetic(combine: Callable[[object, object], Element]) -> Callable[[Element, Element], Element]:
    def apply(left: Element, right: Element) -> Element:
        left, right = whole(left), whole(right)
        if left is None or right is None:
            return None
        if isinstance(left, SymbolicDim) and isinstance(right, float):
            return None
        if isinstance(right, SymbolicDim) and isinstance(left, float):
            return None
        return combine(left, right)

    return apply


add = _arithmetic(lambda a, b: a + b)  # type: ignore[operator]  # both are numbers or sizes here
subtract = _arithmetic(lambda a, b: a - b)  # type: ignore[operator]  # elements are numbers or symbolic sizes, checked by the caller
_product = _arithmetic(lambda a, b: a * b)  # type: ignore[operator]  # elements are numbers or symbolic sizes, checked by the caller


def multiply(left: Element, right: Element) -> Element:
    """Return the product; a symbolic size times a fraction stays exact where it divides."""
    if (left == 0 and not isinstance(left, float)) or (right == 0 and not isinstance(right, float)):
        return 0
    if isinstance(right, SymbolicDim):
        left, right = right, left
    if isinstance(left, SymbolicDim) and isinstance(right, float) and not right.is_integer() and math.isfinite(right):
        ratio = Fraction(right).limit_denominator(64)
        if float(ratio) != right:
            return None
        scaled = left * ratio.numerator
        return floor_div(scaled, ratio.denominator) if modulo(scaled, ratio.denominator) == 0 else None
    return _product(left, right)


def divide_integers(left: Element, right: Element) -> Element:
    """Return the quotient of integers rounded toward zero as ONNX's Div does."""
    left, right = whole(left), whole(right)
    if left is None or right is None or isinstance(left, float) or isinstance(right, float) or right == 0:
        return None
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    if is_non_negative(left) and is_non_negative(right):
        return floor_div(left, right)
    if isinstance(right, int) and right > 0:  # a size less a constant, which may be below 0
        if is_non_negative(left + right - 1):
            return maximum(floor_div(left, right), 0)
        return floor_div(maximum(left, 0), right) - floor_div(maximum(-left, 0), right)
    return None


def divide_reals(left: Element, right: Element) -> Element:
    """Return the quotient of real numbers, ``None`` where a symbolic one is not exact."""
    left, right = whole(left), whole(right)
    if left is None or right is None or right == 0:
        return None
    if isinstance(left, SymbolicDim) or isinstance(right, SymbolicDim):
        if isinstance(left, float) or isinstance(right, float):
            return multiply(left, 1 / right) if isinstance(right, float) else None
        return floor_div(left, right) if modulo(left, right) == 0 else None
    return whole(left / right)


def remainder(left: Element, right: Element) -> Element:
    """Return the remainder with the sign of the divisor."""
    if left is None or right is None or isinstance(left, float) or isinstance(right, float) or right == 0:
        return None
    return modulo(left, right)


def larger(left: Element, right: Element) -> Element:
    """Return the maximum."""
    return _extreme(left, right, maximum, max)


def smaller(left: Element, right: Element) -> Element:
    """Return the minimum."""
    return _extreme(left, right, minimum, min)


def _extreme(
    left: Element,
    right: Element,
    symbolic: Callable[[int | SymbolicDim, int | SymbolicDim], int | SymbolicDim],
    plain: Callable[..., int | float],
) -> Element:
    left, right = whole(left), whole(right)
    if left is None or right is None:
        return None
    if isinstance(left, SymbolicDim) or isinstance(right, SymbolicDim):
        return None if isinstance(left, float) or isinstance(right, float) else symbolic(left, right)
    return plain(left, right)


def negate(number: Element) -> Element:
    """Return the negative."""
    return None if number is None else -number


def absolute(number: Element) -> Element:
    """Return the absolute value where the sign is known."""
    if isinstance(number, SymbolicDim):
        return number if is_non_negative(number) else None
    return None if number is None else abs(number)


def floor(number: Element) -> Element:
    """Return the number rounded down."""
    return math.floor(number) if isinstance(number, float) and math.isfinite(number) else number


def ceiling(number: Element) -> Element:
    """Return the number rounded up."""
    return math.ceil(number) if isinstance(number, float) and math.isfinite(number) else number


def to_integer(number: Element) -> Element:
    """Return the number rounded toward zero, as a cast to an integer type does."""
    if isinstance(number, float):
        return int(number) if math.isfinite(number) else None
    return number


def is_non_negative(number: Element) -> bool:
    """Return whether a number is known to be at least 0; named sizes are."""
    if isinstance(number, SymbolicDim):
        return is_never_negative(number)
    return number is not None and number >= 0


def is_positive(number: Element) -> bool:
    """Return whether a number is known to be above 0."""
    if isinstance(number, SymbolicDim):
        return is_non_negative(number - 1)
    return number is not None and number > 0


def equal(left: Element, right: Element) -> Element:
    """Return 1 or 0 where it is decided; a size is never a negative number."""
    left, right = whole(left), whole(right)
    if left is None or right is None:
        return None
    if left == right:
        return 1
    if isinstance(left, SymbolicDim) or isinstance(right, SymbolicDim):
        if isinstance(left, float) or isinstance(right, float):
            return None
        difference = left - right
        decided = isinstance(difference, int) or is_positive(difference) or is_positive(-difference)
        return 0 if decided else None
    return 0


def greater(left: Element, right: Element) -> Element:
    """Return 1 or 0 where it is decided."""
    left, right = whole(left), whole(right)
    if left is None or right is None:
        return None
    if isinstance(left, SymbolicDim) or isinstance(right, SymbolicDim):
        if isinstance(left, float) or isinstance(right, float):
            return None
        if is_positive(left - right):
            return 1
        return 0 if is_non_negative(right - left) else None
    return int(left > right)


def greater_or_equal(left: Element, right: Element) -> Element:
    """Return 1 or 0 where it is decided."""
    less = greater(right, left)
    return None if less is None else 1 - int(less)  # type: ignore[arg-type]  # 0 or 1


def logical_not(number: Element) -> Element:
    """Return 1 for 0 and 0 for another decided number."""
    return None if number is None else int(number == 0)


def logical_and(left: Element, right: Element) -> Element:
    """Return 1 or 0 where it is decided."""
    if left == 0 or right == 0:
        return 0
    return None if left is None or right is None else 1


def logical_or(left: Element, right: Element) -> Element:
    """Return 1 or 0 where it is decided."""
    if left == 1 or right == 1:
        return 1
    return None if left is None or right is None else 0


def choose(condition: Element, left: Element, right: Element) -> Element:
    """Return ``left`` where the condition holds, ``right`` where not, what both agree on where it is undecided."""
    if condition is None:
        return left if left == right else None
    return left if condition else right


__all__ = [
    "MAX_ELEMENTS", "Element", "SymbolicValue", "absolute", "add", "as_elements", "ceil_div", "ceiling", "choose",
    "divide_integers", "divide_reals", "equal", "floor", "greater", "greater_or_equal", "is_non_negative",
    "is_positive", "larger", "logical_and", "logical_not", "logical_or", "make_value", "map_elements", "multiply",
    "negate", "remainder", "smaller", "subtract", "to_integer", "whole",
]  # fmt: skip
