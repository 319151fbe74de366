"""NoopElimination: adding zero, subtracting zero, multiplying or dividing by one.

    y = Add(x, 0)   y = Sub(x, 0)   y = Mul(x, 1)   y = Div(x, 1)     ->  readers of y read x

Holds when the constant does not broadcast x to more elements or dimensions. Adding +0.0 turns -0.0 into 0.0, which
compares equal; ``x - 0.0`` and the others are exact for every x.
"""

from __future__ import annotations

from ort_core.ir.constants import Constant
from ort_core.ir.rejection import Rejection
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, constant, one_of, op, var
from ort_core.rewrite.rule import RewriteRule, replace_by

MAX_SIZE = 1 << 16  # elements looked at in search of a constant that is all zeros or ones


def _is_all(number: int) -> object:
    def holds(found: Constant) -> bool:
        if not (found.dtype.is_float or found.dtype.is_integer) or not 0 < found.size <= MAX_SIZE:
            return False
        array = found.array()
        return bool(array.item(0) == number) and (found.size == 1 or bool((array == number).all()))

    return holds


class NoopElimination(RewriteRule[Match]):
    """Remove arithmetic with a neutral element."""

    name = "NoopElimination"

    def build_pattern(self) -> Pattern:
        """Return the four operators with their neutral element."""
        x = var("x")
        zero, one = constant("c", where=_is_all(0)), constant("c", where=_is_all(1))  # type: ignore[arg-type]  # a predicate on Constant
        return one_of(op("Add", x, zero), op("Sub", x, zero), op("Mul", x, one), op("Div", x, one))

    def check(self, match: Match) -> Match | Rejection:
        """The constant must not widen the result."""
        shape, small = match["x"].shape, match.constant("c").shape
        if all(size == 1 for size in small) and match["x"].rank is not None and match["x"].rank >= len(small):
            return match
        if shape is None:
            return Rejection("the shape of the other operand is not known", match.root)
        if len(small) > len(shape):
            return Rejection("the constant adds dimensions", match.root)
        pairs = zip(reversed(shape), reversed(small), strict=False)
        if any(size != 1 and size != dim for dim, size in pairs):
            return Rejection("the constant may broadcast the other operand", match.root)
        return match

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Replace the result by the operand."""
        return replace_by(match, "x")
