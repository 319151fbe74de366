"""MatMulNBitsFusion: the bias behind a product with block-quantized weights becomes its input.

y = Add(MatMulNBits(a, b, scales, zero_points, g_idx), bias)
    ->  y = MatMulNBits(a, b, scales, zero_points, g_idx, bias)
"""

from __future__ import annotations

from typing import ClassVar

from ort_core.ir.rejection import Rejection
from ort_core.passes.fusions.operands import ONNXRUNTIME, dtype_of, is_vector_of
from ort_core.rewrite.fuse import fuse
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, op, optional, var
from ort_core.rewrite.rule import RewriteRule


class MatMulNBitsFusion(RewriteRule[None]):
    """Fuse a bias vector into MatMulNBits."""

    name = "MatMulNBitsFusion"
    emits: ClassVar[tuple[tuple[str, str], ...]] = ((ONNXRUNTIME, "MatMulNBits"),)

    def build_pattern(self) -> Pattern:
        """Return the sum of a product without a bias and a vector."""
        inputs = (var("a"), var("b"), var("scales"), optional(var("zero_points")), optional(var("g_idx")))
        product = op("MatMulNBits", *inputs, domain=ONNXRUNTIME, name="product")
        return op("Add", product, var("bias", where=lambda value: value.rank == 1))

    def check(self, match: Match) -> Rejection | None:
        """The bias must have one element a column."""
        columns = match.node("product").int_attribute("N", 0)
        if not is_vector_of(match["bias"], columns) or dtype_of(match["bias"]) != dtype_of(match["a"]):
            return Rejection(f"{match['bias'].name!r} is not known to be a vector of {columns}", match.root)
        return None

    def rewrite(self, match: Match, bindings: None) -> GraphPatch:
        """Put the product with a bias there."""
        patch = GraphPatch(match.model, match.root)
        names = ("a", "b", "scales", "zero_points", "g_idx", "bias")
        fuse(patch, match, "MatMulNBits", [match.get(n) for n in names], dict(match.node("product").attributes))
        return patch
