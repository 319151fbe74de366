"""Small identities of arithmetic and logic.

y = Mul(Div(1, a), b)        ->  y = Div(b, a)          (DivMulFusion)
y = Where(Not(c), a, b)      ->  y = Where(c, b, a)     (NotWhereFusion)
"""

from __future__ import annotations

from ort_core.ir.rejection import Rejection
from ort_core.ir.types import TensorType
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, is_scalar, op, var
from ort_core.rewrite.rule import RewriteRule


class DivMulFusion(RewriteRule[Match]):
    """Divide once instead of multiplying by a reciprocal."""

    name = "DivMulFusion"

    def build_pattern(self) -> Pattern:
        """Return ``Mul(Div(1, a), b)``."""
        return op("Mul", op("Div", is_scalar(1.0, name="one", relative=0.0), var("a")), var("b"))

    def check(self, match: Match) -> Match | Rejection:
        """Integers round between the two steps, and a one of many dimensions may widen the result."""
        value_type = match["a"].type
        if not isinstance(value_type, TensorType) or not value_type.dtype.is_float:
            return Rejection("the values are not known to be floats", match.root)
        if len(match.constant("one").shape) > (match["a"].rank or 0):
            return Rejection("the constant adds dimensions", match.root)
        return match

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Make the division."""
        patch = GraphPatch(match.model, match.root)
        patch.replace(match.output, patch.op("Div", [match["b"], match["a"]], type=match.output.type))
        patch.remove(*match.nodes)
        return patch


class NotWhereFusion(RewriteRule[Match]):
    """Swap the branches of a Where instead of negating its condition."""

    name = "NotWhereFusion"

    def build_pattern(self) -> Pattern:
        """Return ``Where(Not(c), a, b)``; others may read the negation."""
        return op("Where", op("Not", var("c"), shared=True), var("a"), var("b"))

    def check(self, match: Match) -> Match | Rejection:
        """Accept every match."""
        return match

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Swap the branches."""
        patch = GraphPatch(match.model, match.root)
        swapped = [match["c"], match["b"], match["a"]]
        patch.replace(match.output, patch.op("Where", swapped, type=match.output.type))
        patch.remove(*match.nodes)
        return patch
