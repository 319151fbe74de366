"""MatMulIntegerToFloatFusion, DynamicQuantizeMatMulFusion: an integer product with all that makes floats of it.

    y = Add(Mul(Cast(MatMulInteger(a, b, za, zb)), Mul(sa, sb)), bias)
        ->  y = MatMulIntegerToFloat(a, b, sa, sb, za, zb, bias)
    with a, sa, za from DynamicQuantizeLinear(x) that nothing else reads
        ->  y = DynamicQuantizeMatMul(x, b, sb, zb, bias)

The bias is optional. Scales of b are one number or one a column; a's scale is one number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ort_core.ir.dims import SymbolicDim
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.ir.values import Value
from ort_core.passes.fusions.operands import ONNXRUNTIME, dim, dtype_of, is_vector_of, only_reader
from ort_core.rewrite.fuse import fuse
from ort_core.rewrite.matcher import Match, constant_of
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, one_of, op, optional, var
from ort_core.rewrite.rule import RewriteRule


class MatMulIntegerToFloatFusion(RewriteRule[None]):
    """Fuse the product, the cast, the scales and the bias."""

    name = "MatMulIntegerToFloatFusion"
    emits: ClassVar[tuple[tuple[str, str], ...]] = ((ONNXRUNTIME, "MatMulIntegerToFloat"),)

    def build_pattern(self) -> Pattern:
        """Return the scaled product, with a bias where there is one."""
        product = op("MatMulInteger", var("a"), var("b"), optional(var("za")), optional(var("zb")))
        number = op("Cast", product, attributes={"to": int(DataType.FLOAT)})
        scales = op("Mul", var("sa", where=_is_number), var("sb", where=_is_scale), shared=True)
        scaled = op("Mul", number, scales)
        return one_of(op("Add", scaled, var("bias", where=lambda value: value.rank == 1)), scaled)

    def check(self, match: Match) -> Rejection | None:
        """Scales and bias must have the shapes that the fused operator takes."""
        columns = dim(match["b"], -1)
        scale, bias = match["sb"], match.get("bias")
        if dim(scale, 0) not in (1, None) and scale.rank == 1 and not is_vector_of(scale, columns):
            return Rejection(f"the scale {scale.name!r} has neither one element nor one a column", match.root)
        if bias is not None and not is_vector_of(bias, columns):
            return Rejection(f"the bias {bias.name!r} is not known to have one element a column", match.root)
        if bias is None and _has_bias_behind(match.output, columns):
            return Rejection("the bias behind is fused with it", match.root)
        return _refuse_zero_point(match, columns)

    def rewrite(self, match: Match, bindings: None) -> GraphPatch:
        """Put the fused product there."""
        patch = GraphPatch(match.model, match.root)
        names = ("a", "b", "sa", "sb", "za", "zb", "bias")
        fuse(patch, match, "MatMulIntegerToFloat", without_trailing([match.get(name) for name in names]))
        return patch


class DynamicQuantizeMatMulFusion(RewriteRule[None]):
    """Fuse the quantization of the operand as well, where the product alone uses it."""

    name = "DynamicQuantizeMatMulFusion"
    emits: ClassVar[tuple[tuple[str, str], ...]] = ((ONNXRUNTIME, "DynamicQuantizeMatMul"),)

    def build_pattern(self) -> Pattern:
        """Return MatMulIntegerToFloat of a dynamically quantized operand."""
        quantized = op("DynamicQuantizeLinear", var("x"))
        return op(
            "MatMulIntegerToFloat",
            quantized,
            var("b"),
            quantized.output(1),
            var("sb"),
            quantized.output(2),
            optional(var("zb")),
            optional(var("bias")),
            domain=ONNXRUNTIME,
        )

    def check(self, match: Match) -> Rejection | None:
        """The second operand must be a constant, as it is quantized ahead."""
        if constant_of(match["b"]) is None:
            return Rejection(f"{match['b'].name!r} is not a constant", match.root)
        return None

    def rewrite(self, match: Match, bindings: None) -> GraphPatch:
        """Put the product that quantizes by itself there."""
        patch = GraphPatch(match.model, match.root)
        fuse(
            patch,
            match,
            "DynamicQuantizeMatMul",
            without_trailing([match.get(n) for n in ("x", "b", "sb", "zb", "bias")]),
        )
        return patch


def without_trailing(inputs: Sequence[Value | None]) -> list[Value | None]:
    """Return inputs without the absent ones at the end."""
    kept = list(inputs)
    while kept and kept[-1] is None:
        kept.pop()
    return kept


def _has_bias_behind(value: Value, columns: int | SymbolicDim | None) -> bool:
    reader = only_reader(value)
    if reader is None or reader.op_type != "Add":
        return False
    return any(is_vector_of(operand, columns) for operand in reader.present_inputs())


def _is_number(value: Value) -> bool:
    return value.shape in ((), (1,)) and dtype_of(value) is DataType.FLOAT


def _is_scale(value: Value) -> bool:
    return value.rank in (0, 1) and dtype_of(value) is DataType.FLOAT


def _refuse_zero_point(match: Match, columns: object) -> Rejection | None:
    for name in ("za", "zb"):
        zero = match.get(name)
        if zero is None or zero.shape in ((), (1,)):
            continue
        if name == "za" or zero.rank != 1 or dim(zero, 0) != columns:
            return Rejection(
                f"the zero point {zero.name!r} has not the shape that the fused operator takes", match.root
            )
    return None
