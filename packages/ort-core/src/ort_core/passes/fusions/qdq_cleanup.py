"""ClipQuantRewrite, ReluQuantRewrite, QDQFinalCleanupTransformer: what quantization makes superfluous goes away.

q = QuantizeLinear(Relu(x), s, z)     ->  q = QuantizeLinear(x, s, z)      where z is the least integer
q = QuantizeLinear(Clip(x, a, b))     ->  q = QuantizeLinear(x)            where the grid reaches no further
q = QuantizeLinear(DequantizeLinear(x, s, z), s, z)     ->  q = x
"""

from __future__ import annotations

from ort_core.ir.rejection import Rejection
from ort_core.passes.fusions.fused_activation import activation_parameters
from ort_core.passes.fusions.quantized_values import find_dequantized, has_same_grid, quantized_by, real_range
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, op, var
from ort_core.rewrite.rule import RewriteRule, replace_by


class _SaturationRewrite(RewriteRule[None]):
    """Remove a bound that quantization keeps by saturating."""

    op_type: str

    def build_pattern(self) -> Pattern:
        """Return the quantization of a bounded value."""
        bounded = op(self.op_type, var("x"), more_inputs=True, name="bounded")
        return op("QuantizeLinear", bounded, more_inputs=True)

    def check(self, match: Match) -> Rejection | None:
        """The integers must express no number beyond the bounds."""
        made = quantized_by(match.root)
        reach = None if made is None else real_range(made)
        if reach is None:
            return Rejection("the result is not quantized to 8 bits with one constant scale", match.root)
        bounds = {"min": 0.0, "max": float("inf")}
        if self.op_type == "Clip":
            found = activation_parameters(match.node("bounded"))
            if isinstance(found, Rejection):
                return found
            bounds = found
        if bounds["min"] <= reach[0] and reach[1] <= bounds["max"]:
            return None
        return Rejection(f"the integers reach from {reach[0]:g} to {reach[1]:g}, beyond the bounds", match.root)

    def rewrite(self, match: Match, bindings: None) -> GraphPatch:
        """Let the quantization read the unbounded value."""
        patch = GraphPatch(match.model, match.root)
        bounded = match.node("bounded")
        patch.replace(bounded.output, match["x"])
        patch.remove(bounded)
        return patch


class ReluQuantRewrite(_SaturationRewrite):
    """Remove a Relu in front of a quantization that has no integer for negative numbers."""

    name = "ReluQuantRewrite"
    op_type = "Relu"


class ClipQuantRewrite(_SaturationRewrite):
    """Remove a Clip in front of a quantization that reaches no further."""

    name = "ClipQuantRewrite"
    op_type = "Clip"


class QDQFinalCleanup(RewriteRule[None]):
    """Remove a dequantization that is quantized again to the same grid."""

    name = "QDQFinalCleanupTransformer"

    def build_pattern(self) -> Pattern:
        """Return a quantization of a dequantized tensor."""
        source = op("DequantizeLinear", var("x"), var("s"), more_inputs=True, name="dq", shared=True)
        return op("QuantizeLinear", source, more_inputs=True)

    def check(self, match: Match) -> Rejection | None:
        """Both grids must be equal."""
        before, after = find_dequantized(match.node("dq").output), quantized_by(match.root)
        if before is None or after is None or not has_same_grid(before, after):
            return Rejection("the two grids are not known to be equal", match.root)
        return None

    def rewrite(self, match: Match, bindings: None) -> GraphPatch:
        """Read the integers as they were."""
        return replace_by(match, "x")
