"""SkipLayerNormFusion, BiasSkipLayerNormFusion: the residual addition in front of a normalization becomes part of it.

    s = Add(a, b)    y = LayerNormalization(s, scale, bias)    ->  y, , , s = SkipLayerNormalization(a, b, scale, bias)
    s = Add(Add(m, v), skip) in the same place, v a vector
        ->  ... = SkipLayerNormalization(m, skip, scale, bias, v)

and the same with SimplifiedLayerNormalization -> SkipSimplifiedLayerNormalization. The sum is an output of the fused
operator, so it may have other readers. Both operands must be known to have the same shape, of rank 3 or 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ort_core.frozen import frozen
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.values import Value
from ort_core.passes.fusions.operands import (
    ONNXRUNTIME,
    dim,
    dtype_of,
    fixed_dim,
    has_equal_shapes,
    is_vector_of,
    refuse_dtype,
    same_dim,
)
from ort_core.rewrite.fuse import build_fused_body
from ort_core.rewrite.matcher import Match
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import OpPattern, Pattern, constant, one_of, op, optional, var
from ort_core.rewrite.rule import RewriteRule

_RMS = ("SimplifiedLayerNormalization", "RMSNormalization")
_EMITS = ((ONNXRUNTIME, "SkipLayerNormalization"), (ONNXRUNTIME, "SkipSimplifiedLayerNormalization"))


def _is_over_last_axis(node: Node) -> bool:
    axis = node.int_attribute("axis", -1)
    source = node.input(0)
    return axis == -1 or (source is not None and source.rank is not None and axis == source.rank - 1)


@frozen
class _Skip:
    """Which operand is normalized with which, and by what."""

    x: Value
    skip: Value
    added_bias: Value | None


class SkipLayerNormFusion(RewriteRule[_Skip]):
    """Fuse an addition into the normalization that reads it."""

    name = "SkipLayerNormFusion"
    emits: ClassVar[tuple[tuple[str, str], ...]] = _EMITS

    def build_pattern(self) -> Pattern:
        """Return both normalizations of a sum."""
        total = op("Add", var("a"), var("b"), name="sum", shared=True)
        return _normalized(total)

    def check(self, match: Match) -> _Skip | Rejection:
        """The operands must have the same shape, which the fused operator takes."""
        refusal = _refuse(match, match["a"], match["b"])
        return _Skip(match["a"], match["b"], None) if refusal is None else refusal

    def rewrite(self, match: Match, bindings: _Skip) -> GraphPatch:
        """Put the fused operator there; the sum is its fourth output."""
        op_type = "SkipSimplifiedLayerNormalization" if match.root.op_type in _RMS else "SkipLayerNormalization"
        total = match.node("sum").output
        is_read = total.is_graph_output or total.use_count > 1
        outputs = (match.output, None, None, total) if is_read else (match.output,)
        inputs = _inputs(op_type, bindings, match["scale"], match.get("bias"))
        return _replace(match, op_type, inputs, match.root.float_attribute("epsilon", 1e-5), outputs, match.nodes)


class BiasSkipLayerNormFusion(RewriteRule[_Skip]):
    """Fuse the bias of the matrix product in front into a SkipLayerNormalization."""

    name = "BiasSkipLayerNormFusion"
    emits: ClassVar[tuple[tuple[str, str], ...]] = _EMITS

    def build_pattern(self) -> Pattern:
        """Return a skip one of whose operands is a product with a bias."""
        product = var("product", where=lambda v: v.producer is not None and v.producer.op_type in _PRODUCTS)
        biased = op("Add", product, constant("vector", where=lambda c: len(c.shape) == 1))
        skip, scale, bias = var("skip"), var("scale"), optional(var("bias"))
        layer, simplified = "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"
        return one_of(
            op(layer, biased, skip, scale, bias, domain=ONNXRUNTIME),
            op(layer, skip, biased, scale, bias, domain=ONNXRUNTIME),
            op(simplified, biased, skip, scale, domain=ONNXRUNTIME),
            op(simplified, skip, biased, scale, domain=ONNXRUNTIME),
        )

    def check(self, match: Match) -> _Skip | Rejection:
        """The bias must be as long as the last axis."""
        if not is_vector_of(match["vector"], dim(match["product"], -1)):
            return Rejection(f"{match['vector'].name!r} is not known to be as long as the last axis", match.root)
        return _Skip(match["product"], match["skip"], match["vector"])

    def rewrite(self, match: Match, bindings: _Skip) -> GraphPatch:
        """Put the operator with the bias in the place of the one without."""
        old = match.root
        inputs = _inputs(old.op_type, bindings, match["scale"], match.get("bias"))
        return _replace(match, old.op_type, inputs, old.float_attribute("epsilon", 1e-12), old.outputs, match.nodes)


_PRODUCTS = frozenset({"MatMul", "FusedMatMul", "MatMulNBits", "DynamicQuantizeMatMul", "MatMulIntegerToFloat"})


def _normalized(total: OpPattern) -> Pattern:
    return one_of(
        op("LayerNormalization", total, var("scale"), optional(var("bias")), where=_is_over_last_axis),
        op(_RMS, total, var("scale"), where=_is_over_last_axis),
    )


def _refuse(match: Match, left: Value, right: Value) -> Rejection | None:
    if left.rank not in (2, 3) or not has_equal_shapes(left, right):
        return Rejection(
            f"{left.name!r} and {right.name!r} are not known to have the same shape of rank 2 or 3", match.root
        )
    for weight in (match["scale"], match.get("bias")):
        if weight is not None and not (_is_row(weight, left) and dtype_of(weight) == dtype_of(left)):
            return Rejection(f"{weight.name!r} is not a row of the type and last axis of the sum", match.root)
    if any(value is not None for value in match.root.outputs[1:]):
        return Rejection("the mean or the deviation is an output", match.root)
    return refuse_dtype(left, match.root)


def _is_row(weight: Value, x: Value) -> bool:
    """Return whether a weight is a vector as long as the last axis; one element would be repeated along others."""
    return weight.rank == 1 and (same_dim(dim(weight, 0), dim(x, -1)) or (fixed_dim(weight, 0) or 1) > 1)


def _inputs(op_type: str, skip: _Skip, scale: Value, bias: Value | None) -> list[Value | None]:
    inputs = [skip.x, skip.skip, scale, bias, skip.added_bias]
    if op_type == "SkipSimplifiedLayerNormalization":
        del inputs[3]
    while inputs[-1] is None:
        inputs.pop()
    return inputs


def _replace(
    match: Match,
    op_type: str,
    inputs: Sequence[Value | None],
    epsilon: float,
    outputs: Sequence[Value | None],
    nodes: Sequence[Node],
) -> GraphPatch:
    """Put the fused operator in the place of ``nodes``; outputs that are ``None`` are left out of it."""
    patch = GraphPatch(match.model, match.root)
    first = next(value for value in outputs if value is not None)
    body = build_fused_body(nodes, inputs, [value or first for value in outputs])
    types = [None if value is None else value.type for value in outputs]
    node = patch.node(op_type, inputs, {"epsilon": epsilon}, outputs=types, domain=ONNXRUNTIME, body=body)
    for index, old in enumerate(outputs):
        new = node.outputs[index]
        assert new is not None
        if old is None:
            node.detach_output(index)
        else:
            patch.replace(old, new)
    patch.remove(*nodes)
    return patch
