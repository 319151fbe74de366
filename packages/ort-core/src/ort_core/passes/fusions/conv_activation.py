"""ConvActivationFusion, ConvAddActivationFusion: what follows a convolution is done while its result is at hand.

    y = Relu(Conv(x, w, b))              ->  y = FusedConv(x, w, b) {activation = "Relu"}
    y = Relu(Add(Conv(x, w, b), z))      ->  y = FusedConv(x, w, b, z) {activation = "Relu"}

z must be known to have the shape of the convolution's result.
"""

from __future__ import annotations

from typing import ClassVar

from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.ir.values import Value
from ort_core.passes.fusions.fused_activation import CONV_ACTIVATIONS, activation_parameters
from ort_core.passes.fusions.operands import ONNXRUNTIME, has_equal_shapes, refuse_dtype
from ort_core.rewrite.fuse import fuse
from ort_core.rewrite.matcher import Match, constant_of
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, one_of, op, optional, var
from ort_core.rewrite.rule import RewriteRule

_FLOAT = frozenset({DataType.FLOAT})


def _convolution() -> Pattern:
    return op("Conv", var("x"), var("w"), optional(var("b")), name="conv")


def _fuse(match: Match, addend: Value | None, activation: str | None, parameters: tuple[float, ...]) -> GraphPatch:
    patch = GraphPatch(match.model, match.root)
    attributes: dict[str, object] = dict(match.node("conv").attributes)
    if activation is not None:
        attributes["activation"] = activation
        attributes["activation_params"] = parameters or None
    inputs = [match["x"], match["w"], match.get("b"), addend]
    while inputs[-1] is None:
        inputs.pop()
    fuse(patch, match, "FusedConv", inputs, attributes)
    return patch


class ConvActivationFusion(RewriteRule[dict[str, float]]):
    """Fuse an activation into the convolution in front; the bindings are its parameters."""

    name = "ConvActivationFusion"
    emits: ClassVar[tuple[tuple[str, str], ...]] = ((ONNXRUNTIME, "FusedConv"),)

    def build_pattern(self) -> Pattern:
        """Return an activation of a convolution."""
        return op(CONV_ACTIVATIONS, _convolution(), more_inputs=True)  # type: ignore[arg-type]  # one operator's pattern

    def check(self, match: Match) -> dict[str, float] | Rejection:
        """The parameters must be constants, the element type float32."""
        refusal = refuse_dtype(match["x"], match.root, _FLOAT)
        return activation_parameters(match.root) if refusal is None else refusal

    def rewrite(self, match: Match, bindings: dict[str, float]) -> GraphPatch:
        """Put the fused convolution there."""
        return _fuse(match, None, match.root.op_type, tuple(bindings.values()))


class ConvAddActivationFusion(RewriteRule[Value]):
    """Fuse a residual addition, and Relu behind it, into the convolution; the binding is the addend."""

    name = "ConvAddActivationFusion"
    emits: ClassVar[tuple[tuple[str, str], ...]] = ((ONNXRUNTIME, "FusedConv"),)

    def build_pattern(self) -> Pattern:
        """Return the sum of a convolution and another value, with or without an activation behind."""
        total = op("Add", _convolution(), var("z"), name="sum")  # type: ignore[arg-type]  # one operator's pattern
        return one_of(op("Relu", total, name="activation"), total)

    def check(self, match: Match) -> Value | Rejection:
        """The addend must have the shape of the result and be no constant (that would be folded into the bias)."""
        z, made = match["z"], match.node("conv").output
        refusal = refuse_dtype(match["x"], match.root, _FLOAT)
        if refusal is not None:
            return refusal
        if constant_of(z) is not None:
            return Rejection("a constant belongs into the bias of the convolution", match.root)
        if not has_equal_shapes(z, made):
            return Rejection(f"{z.name!r} is not known to have the shape of the convolution's result", match.root)
        reader = match.output.consumers()
        if not match.has_node("activation") and any(_is_fusible_relu(node) for node in reader):
            return Rejection("the Relu behind is fused with it", match.root)
        return z

    def rewrite(self, match: Match, bindings: Value) -> GraphPatch:
        """Put the fused convolution with its addend there."""
        return _fuse(match, bindings, "Relu" if match.has_node("activation") else None, ())


def _is_fusible_relu(node: Node) -> bool:
    source = node.input(0)
    return node.op_type == "Relu" and source is not None and source.use_count == 1
