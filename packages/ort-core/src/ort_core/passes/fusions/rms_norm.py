"""SimplifiedLayerNormFusion: division by the root of the mean square, then a scale (RMS norm, LLaMA's layer norm).

    v = ReduceMean(Pow(x, 2))    y = Mul(Div(x, Sqrt(Add(v, epsilon))), scale)
        ->  y = SimplifiedLayerNormalization(x, scale)

The square, the root and the division have the variants of the layer norm; half-precision exports cast x to float32
and the quotient back. From opset 23 on the standard has RMSNormalization.
"""

from __future__ import annotations

from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.passes.fusions.layer_norm import (
    Normalization,
    divided,
    find_normalization,
    maybe_cast,
    mean_of,
    refuse_unfinished,
    refuse_weight,
    root_of,
    scale_or_ones,
    square_of,
)
from ort_core.passes.fusions.operands import dtype_of, first_refusal
from ort_core.rewrite.fuse import fuse
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, one_of, op, var
from ort_core.rewrite.rule import RewriteRule

STANDARD_OPSET = 23


class SimplifiedLayerNormFusion(RewriteRule[Normalization]):
    """Fuse to SimplifiedLayerNormalization, which onnxruntime keeps in the standard's domain, or RMSNormalization."""

    name = "SimplifiedLayerNormFusion"

    def build_pattern(self) -> Pattern:
        """Return the quotient times the scale."""
        x = var("x")
        inner = one_of(op("Cast", x, name="cast_in", shared=True), x)
        quotient = divided(inner, mean_of(square_of(inner), "mean"))
        scale = var("scale", where=lambda value: value.rank is not None and value.rank > 0 and value.producer is None)
        quotient = maybe_cast(quotient, "cast_out")
        scaled = op("Mul", quotient, scale)
        inverse = root_of(mean_of(square_of(inner), "mean"))[1]
        gained = op("Mul", inner, op("Mul", inverse, scale))  # as Keras has it
        first = divided(op("Mul", inner, scale), mean_of(square_of(inner), "mean"))  # scaled before it is normalized
        return one_of(scaled, op("Cast", scaled, name="cast_last"), gained, first, quotient)

    def check(self, match: Match) -> Normalization | Rejection:
        """Axes, epsilon, element types and the scale must fit."""
        x = match["x"]
        found = find_normalization(match, ("mean",), x, match.output)
        if isinstance(found, Rejection):
            return found
        refusal = first_refusal(
            refuse_weight(match.get("scale"), x, found.axis, match.root),
            None if "scale" in match else refuse_unfinished(match, ("Mul",)),
        )
        if refusal is not None:
            return refusal
        if dtype_of(x) is DataType.FLOAT16 and found.stash is DataType.FLOAT16 and not match.has_node("cast_in"):
            return Rejection("squares computed in float16 overflow where the fused operator does not", match.root)
        return found

    def rewrite(self, match: Match, bindings: Normalization) -> GraphPatch:
        """Put one normalization there."""
        patch = GraphPatch(match.model, match.root)
        attributes: dict[str, object] = {
            "axis": bindings.axis,
            "epsilon": bindings.epsilon,
            "stash_type": int(DataType.FLOAT),
        }
        op_type = "RMSNormalization" if match.opset() >= STANDARD_OPSET else "SimplifiedLayerNormalization"
        fuse(patch, match, op_type, [match["x"], scale_or_ones(patch, match, bindings)], attributes, domain="")
        return patch
