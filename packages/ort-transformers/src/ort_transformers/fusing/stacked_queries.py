"""Queries of all heads stacked with their tokens, and one head of keys and values, as attentions of four axes.

    s = MatMul(q, k')        with  q: float[B, tokens * heads, size],  k: float[B, keys, size]
    p = Softmax(Where(mask, Reshape(s, (B, tokens, heads, keys)), low))
    y = MatMul(Reshape(p, (B, tokens * heads, keys)), v)
        ->  the same with  q: float[B, heads, tokens, size],  k: float[B, 1, keys, size]

Code models with one head of keys and values (GPT-BigCode, SantaCoder) were written so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.ir import Dim, Node, TensorType, Value
from ort_core.plugin.passes import Level, RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, op, var

_AXES_AS_INPUT = 13  # of Unsqueeze, since this opset
_STEPS = 6  # scales and masks in front of a softmax, and some more
_SWAP, _SHORT_SWAP, _TOKENS_AND_HEADS = (0, 1, 3, 2), (0, 2, 1), (0, 2, 1, 3)
_ORDERS = {3: (1, 0, 2), 4: _TOKENS_AND_HEADS}  # of what has axes for tokens and for heads, by rank
_SCALES = {"Mul": (0, 1), "Div": (0,), "Add": (0, 1), "Sub": (0,), "Where": (1, 2)}


@dataclass(frozen=True, slots=True)
class Stacked:
    """The product of stacked queries and keys, and the steps from it to the softmax, the first one first."""

    product: Node
    split: Node
    steps: tuple[tuple[Node, int], ...]  # a node, and which of its inputs the scores are


class StackedQueries(RewriteRule[Stacked]):
    """Give heads an axis of their own."""

    name = "StackedQueries"

    def build_pattern(self) -> Pattern:
        """Return a product of stacked shares and values."""
        shares = op("Softmax", var("scores"), name="softmax")
        return op("MatMul", op("Reshape", shares, var("shape"), name="stack"), var("values"))

    def check(self, match: Match) -> Stacked | Rejection:
        """Scores must come from three axes to (batch, tokens, heads, keys), and shares go back to them."""
        softmax, values = match.node("softmax"), match["values"]
        sizes = softmax.output.shape
        if sizes is None or len(sizes) != 4 or softmax.attribute("axis") not in (-1, 3) or values.rank != 3:
            return Rejection("the shares do not have four axes and the values three", match.root)
        if not isinstance(sizes[2], int) or match.node("stack").output.shape != _stacked(sizes):
            return Rejection("tokens and heads are not known to become one axis", match.root)
        found = _steps_to_product(match["scores"], sizes)
        if found is None:
            return Rejection("the scores are no product of three axes that is scaled and masked", match.root)
        queries, keys = found.product.inputs
        if queries is None or keys is None or queries.rank != 3 or keys.rank != 3:
            return Rejection("queries and keys do not have three axes", match.root)
        if not isinstance((queries.shape or (None,))[-1], int) or not isinstance((values.shape or (None,))[-1], int):
            return Rejection("the size of the heads is not known", match.root)
        return found

    def rewrite(self, match: Match, bindings: Stacked) -> GraphPatch:
        """Put the same nodes there, over four axes."""
        patch = GraphPatch(match.model, match.root)
        opset, sizes, values = match.opset(), match.node("softmax").output.shape, match["values"]
        queries, keys = bindings.product.inputs
        assert queries is not None
        assert queries.shape is not None
        assert keys is not None
        assert sizes is not None
        assert values.shape is not None
        apart = patch.constant(np.array([0, -1, sizes[2], queries.shape[2]], np.int64), "apart")
        four = _typed(queries, (*sizes[:3], queries.shape[2]))
        scores_type = _typed(queries, (sizes[0], sizes[2], sizes[1], sizes[3]))
        heads = _turned(patch, patch.op("Reshape", [queries, apart], type=four), _TOKENS_AND_HEADS)
        scores = patch.op("MatMul", [heads, _keys_of_all(patch, keys, opset)], type=scores_type)
        for node, index in bindings.steps:
            operands = [_brought(patch, each) for each in node.inputs]
            operands[index] = scores
            scores = patch.op(node.op_type, operands, type=scores_type)
        shares = patch.op("Softmax", [scores], {"axis": -1}, type=scores_type)
        weighed = _typed(queries, (sizes[0], sizes[2], sizes[1], values.shape[2]))
        result = patch.op("MatMul", [shares, _with_axis(patch, values, 1, opset)], type=weighed)
        merged = patch.constant(np.array([0, -1, values.shape[2]], np.int64), "merged")
        turned = _turned(patch, result, _TOKENS_AND_HEADS)
        patch.replace(match.output, patch.op("Reshape", [turned, merged], type=match.output.type))
        steps = (node for node, _ in bindings.steps)
        patch.remove(*match.nodes, *steps, bindings.split, bindings.product)
        return patch


def _stacked(sizes: tuple[Dim | None, ...]) -> tuple[Dim | None, ...] | None:
    batch, tokens, heads, keys = sizes
    return None if tokens is None or heads is None else (batch, tokens * heads, keys)


def _steps_to_product(scores: Value, sizes: tuple[Dim | None, ...]) -> Stacked | None:
    """Return the product behind scales and masks, each read by the next alone, and the Reshape among them."""
    steps: list[tuple[Node, int]] = []
    split, value = None, scores
    for _ in range(_STEPS):
        node = value.producer
        if node is None or node.domain != "" or len(value.consumers()) != 1 or value.is_graph_output:
            return None
        if node.op_type == "MatMul":
            return None if split is None else Stacked(node, split, tuple(reversed(steps)))
        inner = node.inputs[0]
        if node.op_type == "Reshape" and split is None and inner is not None and inner.shape == _stacked(sizes):
            split, value = node, inner
            continue
        index = _index_of_scores(node, value)
        if index is None or not all(_can_be_brought(each, place == index) for place, each in enumerate(node.inputs)):
            return None
        steps.append((node, index))
        value = node.inputs[index]  # type: ignore[assignment]  # it is there
    return None


def _index_of_scores(node: Node, value: Value) -> int | None:
    """Return which input of a scale or a mask has the sizes of its result, where one alone has them."""
    places = [
        place for place in _SCALES.get(node.op_type, ())
        if place < len(node.inputs) and (each := node.inputs[place]) is not None and each.shape == value.shape
    ]  # fmt: skip
    return places[0] if len(places) == 1 else None


def _can_be_brought(value: Value | None, is_scores: bool) -> bool:
    """Return whether a scale or a mask has an axis for tokens, or neither that nor one for heads."""
    return is_scores or (value is not None and value.rank in (0, 1, *_ORDERS))


def _brought(patch: GraphPatch, value: Value | None) -> Value | None:
    order = None if value is None or value.rank is None else _ORDERS.get(value.rank)
    return value if value is None or order is None else _turned(patch, value, order)


def _keys_of_all(patch: GraphPatch, keys: Value, opset: int) -> Value:
    """Return turned keys with an axis for heads; one that a Transpose turns gets it in front of that."""
    turned = keys.producer
    inner = None if turned is None or turned.op_type != "Transpose" else turned.inputs[0]
    if turned is None or inner is None or turned.ints_attribute("perm") != _SHORT_SWAP:
        return _with_axis(patch, keys, 1, opset)
    return _turned(patch, _with_axis(patch, inner, 1, opset), _SWAP)


def _with_axis(patch: GraphPatch, value: Value, axis: int, opset: int) -> Value:
    shape = value.shape
    made = None if shape is None else _typed(value, (*shape[:axis], 1, *shape[axis:]))
    if opset < _AXES_AS_INPUT:
        return patch.op("Unsqueeze", [value], {"axes": [axis]}, type=made)
    return patch.op("Unsqueeze", [value, patch.constant(np.array([axis], np.int64), "axis")], type=made)


def _turned(patch: GraphPatch, value: Value, order: tuple[int, ...]) -> Value:
    shape = value.shape
    made = None if shape is None else _typed(value, tuple(shape[axis] for axis in order))
    return patch.op("Transpose", [value], {"perm": order}, type=made)


def _typed(value: Value, shape: tuple[Dim | None, ...]) -> TensorType | None:
    return TensorType(value.type.dtype, shape) if isinstance(value.type, TensorType) else None


STACKED_QUERIES = RulePass("StackedQueries", [StackedQueries()], Level.EXTENDED)
