"""Casts that change nothing, and chains of casts of which the last alone says everything.

    y = Cast<to>(x)  where x has that type               ->  readers of y read x              (CastElimination)
    y = Cast<to>(Cast<wider>(x))  where wider holds all values of x's type  ->  y = Cast<to>(x)   (CastElimination)
    y = Cast<type of x>(Cast<narrower>(x))               ->  readers of y read x              (CastChainElimination)

The last one drops the rounding to the narrower type, so it is opt-in.
"""

from __future__ import annotations

from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, op, var
from ort_core.rewrite.rule import RewriteRule, replace_by

_F16, _BF16, _F32, _F64 = DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT, DataType.DOUBLE
_WIDER = {
    _F16: {_F32, _F64},
    _BF16: {_F32, _F64},
    _F32: {_F64},
    DataType.UINT8: {DataType.UINT16, DataType.INT16, DataType.UINT32, DataType.INT32, DataType.UINT64, DataType.INT64},
    DataType.INT8: {DataType.INT16, DataType.INT32, DataType.INT64},
    DataType.UINT16: {DataType.UINT32, DataType.INT32, DataType.UINT64, DataType.INT64},
    DataType.INT16: {DataType.INT32, DataType.INT64},
    DataType.UINT32: {DataType.UINT64, DataType.INT64},
    DataType.INT32: {DataType.INT64},
}  # element type -> the types of its own kind that hold each of its values


class SameTypeCast(RewriteRule[Match]):
    """Remove a Cast to the type that its input has."""

    name = "SameTypeCast"

    def build_pattern(self) -> Pattern:
        """Return ``Cast(x)``."""
        return op("Cast", var("x"))

    def check(self, match: Match) -> Match | Rejection:
        """The input's element type must be known and the target's."""
        if _dtype(match["x"]) == match.root.int_attribute("to", 0):
            return match
        return Rejection("the cast changes the element type, or the type of its input is not known", match.root)

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Replace the result by the input."""
        return replace_by(match, "x")


class WideningCastChain(RewriteRule[Match]):
    """Let the second of two casts read the first one's input when the first loses nothing."""

    name = "WideningCastChain"

    def build_pattern(self) -> Pattern:
        """Return ``Cast(Cast(x))``; others may read the first."""
        return op("Cast", op("Cast", var("x"), name="first", shared=True))

    def check(self, match: Match) -> Match | Rejection:
        """The first cast must hold every value of x's type."""
        first = match.node("first").int_attribute("to", 0)
        source = _dtype(match["x"])
        if source is not None and first in _WIDER.get(source, ()):
            return match
        return Rejection("the first cast may lose values", match.root)

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Cast once."""
        patch = GraphPatch(match.model, match.root)
        cast = patch.op("Cast", [match["x"]], match.root.attributes.values(), type=match.output.type)
        patch.replace(match.output, cast)
        patch.remove(match.root, match.node("first"))
        return patch


class CastThereAndBack(RewriteRule[Match]):
    """Remove two casts that return to the first type, with the rounding between them."""

    name = "CastThereAndBack"

    def build_pattern(self) -> Pattern:
        """Return ``Cast(Cast(x))`` of floating-point values."""
        return op("Cast", op("Cast", var("x"), name="first", shared=True))

    def check(self, match: Match) -> Match | Rejection:
        """All three types must be floats, the first and the last equal."""
        source, middle = _dtype(match["x"]), match.node("first").int_attribute("to", 0)
        if source is None or source != match.root.int_attribute("to", 0):
            return Rejection("the casts do not return to the first type", match.root)
        if not (source.is_float and DataType(middle).is_float):
            return Rejection("a cast through integers cuts off fractions", match.root)
        return match

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Replace the result by the input."""
        return replace_by(match, "x")


def _dtype(value: Value) -> DataType | None:
    return value.type.dtype if isinstance(value.type, TensorType) else None
