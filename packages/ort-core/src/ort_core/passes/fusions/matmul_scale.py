"""MatMulScaleFusion: constant factors around a matrix product become its ``alpha``.

y = MatMul(Mul(a, s), Mul(b, t))          ->  y = FusedMatMul(a, b) {alpha = s * t}
y = Mul(MatMul(a, b), s)   Div(.., s)     ->  y = FusedMatMul(a, b) {alpha = s}
"""

from __future__ import annotations

from typing import ClassVar

from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.ir.values import Value
from ort_core.passes.fusions.operands import (
    ONNXRUNTIME,
    first_refusal,
    is_one_element,
    number_of,
    refuse_dtype,
    refuse_widening,
)
from ort_core.rewrite.fuse import fuse
from ort_core.rewrite.matcher import Match, constant_of
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, ValuePattern, constant, one_of, op, var
from ort_core.rewrite.rule import RewriteRule

FLOATS = frozenset({DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16})


def _scaled(x: ValuePattern, name: str) -> ValuePattern:
    """Return the pattern of a constant multiple; a scaled operand may have other readers, the product may not."""
    factor, label, is_operand = constant(name, where=is_one_element), f"scaled_{name}", name != "after"
    return one_of(
        op("Mul", x, factor, name=label, shared=is_operand), op("Div", x, factor, name=label, shared=is_operand)
    )


def _product(a: ValuePattern, b: ValuePattern) -> ValuePattern:
    return one_of(op("MatMul", a, b, name="product"), op("FusedMatMul", a, b, name="product", domain=ONNXRUNTIME))


class MatMulScaleFusion(RewriteRule[float]):
    """Fuse factors of the operands and of the result; the binding is alpha."""

    name = "MatMulScaleFusion"
    emits: ClassVar[tuple[tuple[str, str], ...]] = ((ONNXRUNTIME, "FusedMatMul"),)

    def build_pattern(self) -> Pattern:
        """Return a product with a factor behind it or before it."""
        a, b = var("a"), var("b")
        return one_of(
            _scaled(_product(a, b), "after"),
            _product(_scaled(a, "left"), _scaled(b, "right")),
            _product(_scaled(a, "left"), b),
            _product(a, _scaled(b, "right")),
        )

    def check(self, match: Match) -> float | Rejection:
        """The factors must be finite constants, and both operands of the product at least vectors."""
        refusal = first_refusal(refuse_dtype(match["a"], match.root, FLOATS), refuse_widening(match, match["a"]))
        if refusal is None:
            refusal = refuse_widening(match, match["b"])
        if refusal is not None:
            return refusal
        if any(constant_of(match[name]) is not None for name in ("a", "b")) and match["a"].rank is None:
            return Rejection("the rank of the operands is not known", match.root)
        alpha = match.node("product").float_attribute("alpha", 1.0)
        for name in ("after", "left", "right"):
            factor = number_of(match.get(name))
            if factor is not None:
                alpha = alpha * factor if match.node(f"scaled_{name}").op_type == "Mul" else _quotient(alpha, factor)
        return alpha if abs(alpha) < float("inf") else Rejection("a factor is zero or not finite", match.root)

    def rewrite(self, match: Match, bindings: float) -> GraphPatch:
        """Put the fused product there, which keeps what it transposed already."""
        patch = GraphPatch(match.model, match.root)
        attributes = {**product_attributes(match.node("product")), "alpha": bindings}
        fuse(patch, match, "FusedMatMul", [match["a"], match["b"]], attributes)
        return patch


def product_attributes(node: Node) -> dict[str, object]:
    """Return the attributes of a MatMul or FusedMatMul, as a FusedMatMul spells them."""
    names = ("transA", "transB", "transBatchA", "transBatchB")
    found: dict[str, object] = {name: node.int_attribute(name, 0) for name in names}
    found["alpha"] = node.float_attribute("alpha", 1.0)
    return found


def operands_of(node: Node) -> tuple[Value, Value]:
    """Return the two operands of a product."""
    a, b = node.inputs[:2]
    assert a is not None
    assert b is not None
    return a, b


def _quotient(number: float, divisor: float) -> float:
    return number / divisor if divisor else float("inf")
