"""QuickGeluFusion: x times the sigmoid of a multiple of x; SiLU (Swish) is the case of factor 1.

y = Mul(x, Sigmoid(Mul(x, alpha)))    y = Mul(x, Sigmoid(x))     ->  y = QuickGelu(x) {alpha}
"""

from __future__ import annotations

from typing import ClassVar

from ort_core.ir.rejection import Rejection
from ort_core.passes.fusions.operands import (
    ONNXRUNTIME,
    first_refusal,
    is_one_element,
    number_of,
    refuse_dtype,
    refuse_widening,
)
from ort_core.rewrite.fuse import fuse
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, constant, one_of, op, var
from ort_core.rewrite.rule import RewriteRule


class QuickGeluFusion(RewriteRule[float]):
    """Fuse to QuickGelu; the binding is alpha."""

    name = "QuickGeluFusion"
    emits: ClassVar[tuple[tuple[str, str], ...]] = ((ONNXRUNTIME, "QuickGelu"),)

    def build_pattern(self) -> Pattern:
        """Return both cases; the scaled one is tried first."""
        x = var("x")
        scaled = op("Mul", x, constant("alpha", where=is_one_element))
        return one_of(op("Mul", x, op("Sigmoid", scaled)), op("Mul", x, op("Sigmoid", x)))

    def check(self, match: Match) -> float | Rejection:
        """Element type and rank must fit."""
        refusal = first_refusal(refuse_dtype(match["x"], match.root), refuse_widening(match, match["x"]))
        if refusal is not None:
            return refusal
        alpha = number_of(match.get("alpha"))
        return 1.0 if alpha is None else alpha

    def rewrite(self, match: Match, bindings: float) -> GraphPatch:
        """Put one QuickGelu there."""
        patch = GraphPatch(match.model, match.root)
        fuse(patch, match, "QuickGelu", [match["x"]], {"alpha": bindings})
        return patch
