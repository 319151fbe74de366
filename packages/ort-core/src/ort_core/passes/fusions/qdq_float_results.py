"""The QDQ rules without a quantization behind: a product that stays in float, and an argmax.

y = MatMul(DequantizeLinear(a), DequantizeLinear(b))    ->  y = MatMulIntegerToFloat(a, b, scales, zero points)
y = ArgMax(DequantizeLinear(x))                         ->  y = ArgMax(x)
"""

from __future__ import annotations

from typing import ClassVar

from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.passes.fusions.integer_product import without_trailing
from ort_core.passes.fusions.operands import ONNXRUNTIME
from ort_core.passes.fusions.qdq_selector import weights_of
from ort_core.passes.fusions.quantized_values import Quantized, find_dequantized, quantized_by
from ort_core.rewrite.fuse import fuse
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, op, var
from ort_core.rewrite.rule import RewriteRule


class DequantizedMatMul(RewriteRule[tuple[Quantized, Quantized]]):
    """Multiply integers where the float result is wanted as such."""

    name = "QDQMatMulIntegerToFloat"
    emits: ClassVar[tuple[tuple[str, str], ...]] = ((ONNXRUNTIME, "MatMulIntegerToFloat"),)

    def build_pattern(self) -> Pattern:
        """Return a product of dequantized operands."""
        a = op("DequantizeLinear", var("qa"), var("sa"), more_inputs=True, name="a", shared=True)
        return op("MatMul", a, op("DequantizeLinear", var("qb"), var("sb"), more_inputs=True, name="b", shared=True))

    def check(self, match: Match) -> tuple[Quantized, Quantized] | Rejection:
        """Both operands must be of 8 bits, and no quantization may follow."""
        a = find_dequantized(match.node("a").output)
        b = weights_of(match.node("b").output, -1, match.root)
        if isinstance(b, Rejection):
            return b
        if a is None or not a.has_one_scale:
            return Rejection("the first operand is not dequantized from 8 bits with one constant scale", match.root)
        if any(quantized_by(reader) is not None for reader in match.output.consumers()):
            return Rejection("a quantization follows", match.root)
        if a.dtype is DataType.INT8 and b.dtype is DataType.UINT8:
            return Rejection("onnxruntime has no product of int8 with uint8", match.root)
        return a, b

    def rewrite(self, match: Match, bindings: tuple[Quantized, Quantized]) -> GraphPatch:
        """Put the integer product there."""
        a, b = bindings
        patch = GraphPatch(match.model, match.root)
        inputs = without_trailing([a.tensor, b.tensor, a.scale, b.scale, a.zero, b.zero])
        fuse(patch, match, "MatMulIntegerToFloat", inputs)
        return patch


class DequantizedArgMax(RewriteRule[Quantized]):
    """Look for the greatest integer instead of the greatest number: positive scales keep the order."""

    name = "QDQArgMax"

    def build_pattern(self) -> Pattern:
        """Return an argmax of a dequantized tensor."""
        return op("ArgMax", op("DequantizeLinear", var("x"), var("s"), more_inputs=True, name="dq", shared=True))

    def check(self, match: Match) -> Quantized | Rejection:
        """There must be one positive scale."""
        x = find_dequantized(match.node("dq").output)
        if x is None or not x.has_one_scale or not x.keeps_order:
            return Rejection("the operand is not dequantized from 8 bits with one positive scale", match.root)
        return x

    def rewrite(self, match: Match, bindings: Quantized) -> GraphPatch:
        """Read the integers."""
        patch = GraphPatch(match.model, match.root)
        found = patch.op("ArgMax", [bindings.tensor], dict(match.root.attributes), type=match.output.type)
        patch.replace(match.output, found)
        patch.remove(*match.nodes)
        return patch
