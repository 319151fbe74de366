"""GeluFusion, FastGeluFusion: the Gaussian error linear unit, spelled out by exporters in many ways.

    erf form      y = x * 0.5 * (1 + Erf(x / sqrt(2)))                                  ->  y = Gelu(x)
    tanh form     y = x * 0.5 * (1 + Tanh(sqrt(2/pi) * (x + 0.044715 * x^3)))           ->  y = FastGelu(x)
                  y = x * Sigmoid(2 * sqrt(2/pi) * (x + 0.044715 * x^3))                ->  y = FastGelu(x)

The factors may stand in any order; the division may be a multiplication by the inverse. From opset 20 on the
standard has Gelu itself, in both forms.
"""

from __future__ import annotations

import math
from typing import ClassVar

from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.passes.fusions.operands import FUSED_FLOATS, ONNXRUNTIME, first_refusal, refuse_dtype, refuse_widening
from ort_core.rewrite.fuse import fuse
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, ValuePattern, is_scalar, one_of, op, var
from ort_core.rewrite.rule import RewriteRule

STANDARD_GELU_OPSET = 20
_STANDARD_FLOATS = FUSED_FLOATS | {DataType.DOUBLE}


def halved(x: ValuePattern) -> ValuePattern:
    """Return the pattern of ``x / 2``."""
    return one_of(op("Mul", x, is_scalar(0.5)), op("Div", x, is_scalar(2.0)))


def gate(x: ValuePattern, opened: ValuePattern) -> ValuePattern:
    """Return the pattern of ``x * opened / 2``, whichever factor is halved."""
    return one_of(
        op("Mul", x, halved(opened)),
        op("Mul", halved(x), opened),
        halved(op("Mul", x, opened)),
    )


def erf_form(x: ValuePattern) -> ValuePattern:
    """Return the pattern of the exact form."""
    scaled = one_of(op("Div", x, is_scalar(math.sqrt(2))), op("Mul", x, is_scalar(math.sqrt(0.5))))
    return gate(x, op("Add", op("Erf", scaled), is_scalar(1.0)))


def tanh_form(x: ValuePattern) -> ValuePattern:
    """Return the pattern of the approximation by a hyperbolic tangent, or by the sigmoid of twice its argument."""
    root = math.sqrt(2 / math.pi)
    by_tanh = gate(x, op("Add", op("Tanh", bent(x, root)), is_scalar(1.0)))
    return one_of(by_tanh, op("Mul", x, op("Sigmoid", bent(x, 2 * root))))


def bent(x: ValuePattern, factor: float) -> ValuePattern:
    """Return the pattern of ``factor * (x + 0.044715 * x^3)``."""
    small, scale, one = is_scalar(0.044715), is_scalar(factor), is_scalar(1.0)
    square = one_of(op("Mul", x, x), op("Pow", x, is_scalar(2.0)))
    cube = one_of(op("Pow", x, is_scalar(3.0)), op("Mul", x, square))
    grown = op("Add", one_of(op("Mul", small, square), op("Mul", x, op("Mul", small, x))), one)
    multiplied = op("Add", op("Mul", is_scalar(factor * 0.044715), square), scale)
    return one_of(
        op("Mul", scale, one_of(op("Add", x, op("Mul", small, cube)), op("Mul", x, grown))),
        op("Mul", op("Mul", scale, x), grown),
        op("Mul", x, multiplied),
    )


class StandardGeluFusion(RewriteRule[None]):
    """Fuse either form to Gelu of opset 20."""

    name = "GeluFusionL1"

    def build_pattern(self) -> Pattern:
        """Return both forms."""
        x = var("x")
        return one_of(erf_form(x), tanh_form(x))

    def check(self, match: Match) -> Rejection | None:
        """The model's opset must have Gelu."""
        if match.opset() < STANDARD_GELU_OPSET:
            return Rejection(f"opset {match.opset()} has no Gelu, opset {STANDARD_GELU_OPSET} has", match.root)
        return first_refusal(refuse_dtype(match["x"], match.root, _STANDARD_FLOATS), refuse_widening(match, match["x"]))

    def rewrite(self, match: Match, bindings: None) -> GraphPatch:
        """Put one Gelu there; which form it was shows in the matched nodes."""
        patch = GraphPatch(match.model, match.root)
        form = "tanh" if any(node.op_type in ("Tanh", "Sigmoid") for node in match.nodes) else "none"
        fuse(patch, match, "Gelu", [match["x"]], {"approximate": form}, domain="")
        return patch


class GeluFusion(RewriteRule[None]):
    """Fuse the exact form to onnxruntime's Gelu."""

    name = "GeluFusionL2"
    emits: ClassVar[tuple[tuple[str, str], ...]] = ((ONNXRUNTIME, "Gelu"),)

    def build_pattern(self) -> Pattern:
        """Return the exact form."""
        return erf_form(var("x"))

    def check(self, match: Match) -> Rejection | None:
        """Element type and rank must fit."""
        return first_refusal(refuse_dtype(match["x"], match.root), refuse_widening(match, match["x"]))

    def rewrite(self, match: Match, bindings: None) -> GraphPatch:
        """Put one Gelu there."""
        patch = GraphPatch(match.model, match.root)
        fuse(patch, match, "Gelu", [match["x"]])
        return patch


class FastGeluFusion(RewriteRule[None]):
    """Fuse the tanh form to FastGelu."""

    name = "FastGeluFusion"
    emits: ClassVar[tuple[tuple[str, str], ...]] = ((ONNXRUNTIME, "FastGelu"),)

    def build_pattern(self) -> Pattern:
        """Return the tanh form."""
        return tanh_form(var("x"))

    def check(self, match: Match) -> Rejection | None:
        """Element type and rank must fit."""
        return first_refusal(refuse_dtype(match["x"], match.root), refuse_widening(match, match["x"]))

    def rewrite(self, match: Match, bindings: None) -> GraphPatch:
        """Put one FastGelu there."""
        patch = GraphPatch(match.model, match.root)
        fuse(patch, match, "FastGelu", [match["x"]])
        return patch
