"""Neighboring features that are rotated and written as two halves, as fusions of rotations know them.

    a, b = x[..., 0::2], x[..., 1::2];  Concat(a * cos - b * sin, b * cos + a * sin)
        ->  the same of the halves a, b of Concat(a, b)
    Concat(rest, …, …) likewise, where features that are not rotated stand in front

DeepSeek's models read pairs of neighbors and write halves: queries and keys both have their features in that order.
"""

from __future__ import annotations

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.ir import TensorType, Value
from ort_core.plugin.passes import Level, RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, one_of, op, var
from ort_transformers.fusing.fixed_constants import constant_array, fixed_constant

_SIZES_AS_INPUT = 13  # of Split, since this opset


class EvenAndOdd(RewriteRule[Value]):
    """Join the two kinds of features, and rotate the halves of that."""

    name = "EvenAndOdd"

    def build_pattern(self) -> Pattern:
        """Return both halves of a rotation, joined."""
        a, b, cosine, sine = var("a"), var("b"), var("cosine"), var("sine")
        low = op("Sub", op("Mul", a, cosine), op("Mul", b, sine))
        high = op("Add", op("Mul", b, cosine), op("Mul", a, sine))
        alone = op("Concat", low, high, commutative=False)
        return one_of(alone, op("Concat", var("rest"), low, high, commutative=False))

    def check(self, match: Match) -> Value | Rejection:
        """They must be every other feature of one value, the even ones first."""
        rank = match.output.rank
        if rank is None or match.root.int_attribute("axis", 0) not in (-1, rank - 1):
            return Rejection("the halves are not joined along the last axis", match.root)
        first, second = _every_other(match["a"], rank), _every_other(match["b"], rank)
        if first is None or second is None or first[0] is not second[0] or (first[1], second[1]) != (0, 1):
            return Rejection("the halves are not made of even and odd features of one value", match.root)
        source = first[0]
        if not isinstance(source.type, TensorType) or source.shape is None or match.opset() < _SIZES_AS_INPUT:
            return Rejection("the features are of no known size", match.root)
        width = source.shape[-1]
        is_even = isinstance(width, int) and width % 2 == 0
        return source if is_even else Rejection("the number of features is not known to be even", match.root)

    def rewrite(self, match: Match, bindings: Value) -> GraphPatch:
        """Put the same products there, of the halves of both kinds joined."""
        patch, kind = GraphPatch(match.model, match.root), bindings.type
        assert isinstance(kind, TensorType)
        assert bindings.shape is not None
        half = int(str(bindings.shape[-1])) // 2
        part = TensorType(kind.dtype, (*bindings.shape[:-1], half))
        joined = patch.op("Concat", [match["a"], match["b"]], {"axis": -1}, type=kind)
        sizes = patch.constant(np.array([half, half], np.int64), "halves")
        a, b = patch.node("Split", [joined, sizes], {"axis": -1}, outputs=(part, part)).outputs
        cosine, sine = match["cosine"], match["sine"]
        low = patch.op("Sub", [patch.op("Mul", [a, cosine]), patch.op("Mul", [b, sine])])
        high = patch.op("Add", [patch.op("Mul", [b, cosine]), patch.op("Mul", [a, sine])])
        rotated = patch.op("Concat", [low, high], {"axis": -1}, type=kind)
        if "rest" in match:
            rotated = patch.op("Concat", [match["rest"], rotated], {"axis": -1}, type=match.output.type)
        patch.replace(match.output, rotated)
        patch.remove(*match.nodes)
        return patch


def _every_other(value: Value, rank: int) -> tuple[Value, int] | None:
    """Return what a Slice takes every second feature of, and whether it begins with the first or the second."""
    node = value.producer
    if node is None or node.op_type != "Slice" or node.domain != "":
        return None
    bounds = [node.input(place) for place in range(1, 5)]
    if any(fixed_constant(each) is None for each in bounds):
        return None
    starts, stops, axes, steps = (constant_array(each).reshape(-1) for each in bounds if each is not None)
    source = node.input(0)
    width = None if source is None or source.shape is None else source.shape[-1]
    if source is None or not isinstance(width, int) or len(axes) != 1 or axes[0] not in (-1, rank - 1):
        return None
    return (source, int(starts[0])) if steps[0] == 2 and starts[0] in (0, 1) and stops[0] >= width else None


EVEN_AND_ODD = RulePass("EvenAndOdd", [EvenAndOdd()], Level.EXTENDED)
