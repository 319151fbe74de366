"""GeluApproximation: the exact Gelu is replaced by its approximation, where somebody asks for speed by name.

    y = Gelu(x)              ->  y = FastGelu(x)
    y = BiasGelu(x, bias)    ->  y = FastGelu(x, bias)

The results differ by up to 5e-4, so no level includes it.
"""

from __future__ import annotations

from typing import ClassVar

from ort_core.ir.rejection import Rejection
from ort_core.passes.fusions.operands import ONNXRUNTIME
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, one_of, op, var
from ort_core.rewrite.rule import RewriteRule


class GeluApproximation(RewriteRule[Match]):
    """Replace the exact forms of onnxruntime by FastGelu."""

    name = "GeluApproximation"
    emits: ClassVar[tuple[tuple[str, str], ...]] = ((ONNXRUNTIME, "FastGelu"),)

    def build_pattern(self) -> Pattern:
        """Return both operators."""
        return one_of(
            op("Gelu", var("x"), domain=ONNXRUNTIME), op("BiasGelu", var("x"), var("bias"), domain=ONNXRUNTIME)
        )

    def check(self, match: Match) -> Match | Rejection:
        """Accept all: who enables the pass accepts the difference."""
        return match

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Put the approximation there."""
        patch = GraphPatch(match.model, match.root)
        made = patch.op("FastGelu", match.root.inputs, type=match.output.type, domain=ONNXRUNTIME)
        patch.replace(match.output, made)
        patch.remove(match.root)
        return patch
