"""GemmActivationFusion: the activation behind a Gemm is done while its result is at hand.

y = Relu(Gemm(a, b, c))     ->  y = FusedGemm(a, b, c) {activation = "Relu"}
"""

from __future__ import annotations

from typing import ClassVar

from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.passes.fusions.fused_activation import GEMM_ACTIVATIONS, activation_parameters
from ort_core.passes.fusions.operands import ONNXRUNTIME, refuse_dtype
from ort_core.rewrite.fuse import fuse
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, op, optional, var
from ort_core.rewrite.rule import RewriteRule


class GemmActivationFusion(RewriteRule[dict[str, float]]):
    """Fuse an activation into the Gemm in front; the bindings are its parameters."""

    name = "GemmActivationFusion"
    emits: ClassVar[tuple[tuple[str, str], ...]] = ((ONNXRUNTIME, "FusedGemm"),)

    def build_pattern(self) -> Pattern:
        """Return an activation of a Gemm."""
        return op(GEMM_ACTIVATIONS, op("Gemm", var("a"), var("b"), optional(var("c")), name="gemm"))

    def check(self, match: Match) -> dict[str, float] | Rejection:
        """The element type must be float32."""
        refusal = refuse_dtype(match["a"], match.root, frozenset({DataType.FLOAT}))
        return activation_parameters(match.root) if refusal is None else refusal

    def rewrite(self, match: Match, bindings: dict[str, float]) -> GraphPatch:
        """Put the fused Gemm there."""
        patch = GraphPatch(match.model, match.root)
        attributes: dict[str, object] = dict(match.node("gemm").attributes)
        attributes["activation"] = match.root.op_type
        attributes.update({f"activation_{name}": number for name, number in bindings.items()})
        inputs = [match["a"], match["b"], match.get("c")]
        fuse(patch, match, "FusedGemm", inputs if inputs[2] is not None else inputs[:2], attributes)
        return patch
