"""Zeros that are made to be added: `torch.baddbmm` with beta 0, which denoisers use for their scores without a mask.

    Add(x, Mul(Expand(0, shape), 0))   Add(x, Mul(ConstantOfShape(shape), 0))   ->  x

The zeros would be read as a mask of attentions, which then have no packed or faster form.
"""

from __future__ import annotations

from ort_core.plugin import Rejection
from ort_core.plugin.ir import Value
from ort_core.plugin.passes import Level, RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, op, var
from ort_transformers.fusing.fixed_constants import fixed_constant

_FILLS = ("Expand", "ConstantOfShape")
_STEPS = 4  # products and moves of zeros, and some more


class ZeroAddends(RewriteRule[None]):
    """Drop an addend that is known to be nothing but zeros and no larger than the sum's other part."""

    name = "ZeroAddends"

    def build_pattern(self) -> Pattern:
        """Return a sum with zeros of a size that is computed."""
        return op("Add", var("x"), var("zeros", where=_is_all_zeros))

    def check(self, match: Match) -> Rejection | None:
        """The zeros must not make the sum larger."""
        x, shape = match["x"], match.output.shape
        if shape is None or None in shape or x.shape != shape:
            return Rejection(f"{match['zeros'].name!r} may make {x.name!r} larger", match.root)
        return None

    def rewrite(self, match: Match, bindings: None) -> GraphPatch:
        """Replace the sum by its other part."""
        patch = GraphPatch(match.model, match.root)
        patch.replace(match.output, match["x"])
        patch.remove(match.root)
        return patch


def _is_all_zeros(value: Value) -> bool:
    """Return whether a value is zeros of some size, perhaps times finite numbers."""
    for _ in range(_STEPS):
        node = value.producer
        if node is None or node.domain != "":
            return False
        if node.op_type in _FILLS:
            return _fills_with_zeros(value)
        if node.op_type != "Mul":
            return False
        factors = [each for each in node.inputs if each is not None]
        filled = next((each for each in factors if each.producer is not None), None)
        if filled is None or not all(each is filled or _is_finite(each) for each in factors):
            return False
        value = filled
    return False


def _fills_with_zeros(value: Value) -> bool:
    node = value.producer
    assert node is not None
    if node.op_type == "ConstantOfShape":
        fill = node.attribute("value")
        return fill is None or not fill.array().any()  # type: ignore[attr-defined]  # a tensor, by the schema
    found = fixed_constant(node.input(0))
    return found is not None and found.size == 1 and not found.array().any()


def _is_finite(value: Value) -> bool:
    found = fixed_constant(value)
    return found is not None and found.size == 1 and abs(float(found.array().reshape(-1)[0])) < float("inf")


ZERO_ADDENDS = RulePass("ZeroAddends", [ZeroAddends()], Level.EXTENDED)
