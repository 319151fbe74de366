"""Softmaxes over the last axis but one, of scores of keys by queries, as those of queries by keys that fusions know.

    Softmax<axis = -2>(s)  with  s = MatMul(k, q)
        ->  Transpose(Softmax<axis = -1>(MatMul(Transpose(q), Transpose(k))))

and with s multiplied or divided by one number.

Attentions over the places of an image have it, as those of GANs: beta = softmax(f^T g) over the keys, and h beta.
"""

from __future__ import annotations

from ort_core.plugin import Rejection
from ort_core.plugin.ir import Node, TensorType, Value
from ort_core.plugin.passes import Level, RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, op, var

_PER_AXIS_OPSET = 13  # before, Softmax counted all axes from the given one on
_READERS = frozenset({"MatMul", "Transpose"})


class ColumnSoftmax(RewriteRule[tuple[int, ...]]):
    """Take the softmax over the last axis of turned scores, and turn the shares back."""

    name = "ColumnSoftmax"

    def build_pattern(self) -> Pattern:
        """Return a softmax."""
        return op("Softmax", var("scores"))

    def check(self, match: Match) -> tuple[int, ...] | Rejection:
        """The axis must be the last but one, scores a product with a factor at most, and their reader a product."""
        scores, root = match["scores"], match.root
        rank = scores.rank
        if rank not in (3, 4, 5) or match.opset() < _PER_AXIS_OPSET:
            return Rejection("the ranks are not those of scores", root)
        if root.int_attribute("axis", -1) not in (-2, rank - 2):
            return Rejection("it is not over the last axis but one", root)
        if any(reader.op_type not in _READERS for reader, _ in match.output.uses) or match.output.is_graph_output:
            return Rejection("its result weighs no values", root)
        product = _product_of(scores)
        if product is None:
            return Rejection("the scores are no product of queries and keys with one factor", root)
        if any(each is None or each.rank != rank for each in product.inputs):
            return Rejection("the scores are a product of other ranks, such as one with a matrix of weights", root)
        return (*range(rank - 2), rank - 1, rank - 2)

    def rewrite(self, match: Match, bindings: tuple[int, ...]) -> GraphPatch:
        """Make the scores anew, turned, and put the other softmax there."""
        patch = GraphPatch(match.model, match.root)
        shares = patch.op("Softmax", [_turned(patch, match["scores"], bindings)], {"axis": -1})
        patch.replace(match.output, patch.op("Transpose", [shares], {"perm": bindings}, type=match.output.type))
        patch.remove(match.root)
        return patch


def _product_of(scores: Value) -> Node | None:
    """Return the product that scores are, before factors of one element."""
    node = scores.producer
    while node is not None and node.op_type in ("Mul", "Div") and len(scores.uses) == 1:
        place = _factor_place(node)
        if place is None:
            return None
        scores = node.inputs[1 - place]  # type: ignore[assignment]  # both inputs are there
        node = scores.producer
    return node if node is not None and node.op_type == "MatMul" and len(scores.uses) == 1 else None


def _factor_place(node: Node) -> int | None:
    """Return at which place a node has a number that multiplies or divides."""
    for place in (1,) if node.op_type == "Div" else (0, 1):
        value = node.inputs[place]
        if value is not None and isinstance(value.type, TensorType) and value.graph is not None:
            found = value.graph.fixed_constant(value)
            if found is not None and found.array().size == 1 and found.array().ndim <= 1:
                return place
    return None


def _turned(patch: GraphPatch, scores: Value, swap: tuple[int, ...]) -> Value:
    node = scores.producer
    assert node is not None, "the check found what makes it"
    if node.op_type == "MatMul":
        left, right = (patch.op("Transpose", [each], {"perm": swap}) for each in (node.inputs[1], node.inputs[0]))
        return patch.op("MatMul", [left, right])
    place = _factor_place(node)
    assert place is not None, "the check found the number"
    inner = node.inputs[1 - place]
    assert isinstance(inner, Value)
    operands = [_turned(patch, inner, swap), node.inputs[place]]
    return patch.op(node.op_type, operands)


COLUMN_SOFTMAX = RulePass("ColumnSoftmax", [ColumnSoftmax()], Level.EXTENDED)
