"""DoubleQDQPairsRemover: quantizing again with the same parameters gives back the same integers.

    q = QuantizeLinear(DequantizeLinear(p, s, z), s, z)     ->  readers of q read p

Exact: ``round((p - z) * s / s) + z`` is p for every p, if the floats between have some bits more than the integers
and hold the largest product. A pair with other parameters rounds anew and stays.
"""

from __future__ import annotations

import numpy as np

from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value
from ort_core.rewrite.matcher import Match, constant_of
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, op, optional, var
from ort_core.rewrite.rule import RewriteRule, replace_by

_SIGNIFICANT_BITS = {DataType.DOUBLE: 53, DataType.FLOAT: 24, DataType.FLOAT16: 11, DataType.BFLOAT16: 8}
_MORE_BITS = 3  # than the integers have: a product and a quotient that are rounded are a quarter of a step off then
_LAYOUT = ("axis", "block_size")  # attributes that must agree when a scale is not a scalar


class DoubleQDQPairsRemover(RewriteRule[Match]):
    """Remove a DequantizeLinear and QuantizeLinear that undo each other."""

    name = "DoubleQDQPairsRemover"

    def build_pattern(self) -> Pattern:
        """Return ``QuantizeLinear(DequantizeLinear(p))``; others may read the floats between."""
        dequantized = op("DequantizeLinear", var("p"), var("s1"), optional(var("z1")), name="dequantize", shared=True)
        return op("QuantizeLinear", dequantized, var("s2"), optional(var("z2")))

    def check(self, match: Match) -> Match | Rejection:
        """Scales, zero points and types must be equal."""
        before, after = match["p"].type, match.output.type
        if not (isinstance(before, TensorType) and isinstance(after, TensorType) and before.dtype == after.dtype):
            return Rejection("the integer types differ or are not known", match.root)
        if not before.dtype.is_integer:
            return Rejection("small floats round by other rules", match.root)
        if not _equal(match["s1"], match["s2"]) or not _equal_points(match.get("z1"), match.get("z2")):
            return Rejection("the scales or zero points differ", match.root)
        scale = constant_of(match["s1"])
        if scale is None or not (np.isfinite(scale.array()) & (scale.array() > 0)).all():
            return Rejection("the scale is not a positive constant", match.root)
        if not _are_exact(before.dtype, match.node("dequantize").output, scale.array()):
            return Rejection("the floats between round the integers", match.root)
        nodes = (match.node("dequantize"), match.root)
        if scale.size != 1 and any(len({node.attribute(name) for node in nodes}) > 1 for name in _LAYOUT):
            return Rejection("the scales run along different axes", match.root)
        return match

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Replace the second integers by the first."""
        return replace_by(match, "p")


def _are_exact(integers: DataType, real: Value, scales: np.ndarray) -> bool:
    """Return whether every integer's product with a scale, divided by the scale, rounds to the integer."""
    kind = real.type
    if not isinstance(kind, TensorType) or kind.dtype.numpy != scales.dtype:
        return False
    if integers.bits + _MORE_BITS > _SIGNIFICANT_BITS.get(kind.dtype, 0):
        return False
    with np.errstate(over="ignore"):
        largest = scales.max(initial=0) * scales.dtype.type(2.0**integers.bits)
    return bool(np.isfinite(largest))


def _equal(first: Value, second: Value) -> bool:
    if first is second:
        return True
    left, right = constant_of(first), constant_of(second)
    return left is not None and right is not None and np.array_equal(left.array(), right.array())


def _equal_points(first: Value | None, second: Value | None) -> bool:
    if first is None or second is None:
        given = constant_of(first or second)
        return first is second or (given is not None and not given.array().any())
    return _equal(first, second)
