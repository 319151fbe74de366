"""Attentions of five axes, windows beside the batch, brought to the four that fusions know.

    MatMul(Softmax(Add(Mul(MatMul(q, k'), scale), bias)), v)  with  q: float[B, windows, heads, queries, size]

The first two axes become one in front of the products, and two again behind them. What is added to the scores must
have neither of them: MaxViT's biases are of heads, queries and keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.ir import Dim, Node, TensorType, Value
from ort_core.plugin.passes import Level, RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, op, var

_AXES = 5
_STEPS = 4  # scales and masks between a product and its softmax, of the exports that were looked at, and some more


@dataclass(frozen=True, slots=True)
class FiveAxes:
    """The product of queries and keys, and what is done to the scores in front of the softmax, the last first."""

    product: Node
    steps: tuple[tuple[Node, int], ...]  # a node, and which of its inputs the scores are


class AxesOfWindows(RewriteRule[FiveAxes]):
    """Join the first two of five axes around an attention."""

    name = "AxesOfWindows"

    def build_pattern(self) -> Pattern:
        """Return a product of shares and values."""
        return op("MatMul", op("Softmax", var("scores"), name="softmax"), var("values"))

    def check(self, match: Match) -> FiveAxes | Rejection:
        """All operands must have the same first three axes, and what is added to scores none of the first two."""
        softmax, values = match.node("softmax"), match["values"]
        if softmax.output.rank != _AXES or softmax.attribute("axis") not in (-1, _AXES - 1):
            return Rejection("the scores do not have five axes, the softmax over the last", match.root)
        found = _steps_to_product(match["scores"])
        if found is None:
            return Rejection("the scores are no product that is scaled and masked", match.root)
        operands = [*found.product.inputs, values]
        shapes = [None if each is None else each.shape for each in operands]
        if any(shape is None or len(shape) != _AXES or None in shape[:3] for shape in shapes):
            return Rejection("the operands are not known to have five axes", match.root)
        if len({shape[:3] for shape in shapes if shape is not None}) != 1:
            return Rejection("the operands do not have the same windows and heads", match.root)
        return found

    def rewrite(self, match: Match, bindings: FiveAxes) -> GraphPatch:
        """Put the same nodes there, over four axes."""
        patch = GraphPatch(match.model, match.root)
        queries, keys = bindings.product.inputs
        assert queries is not None
        assert keys is not None
        scores = _product(patch, _joined(patch, queries), _joined(patch, keys))
        for node, index in reversed(bindings.steps):
            operands = list(node.inputs)
            operands[index] = scores
            scores = patch.op(node.op_type, operands, type=scores.type)
        shares = patch.op("Softmax", [scores], {"axis": -1}, type=scores.type)
        result = _product(patch, shares, _joined(patch, match["values"]))
        sizes = [_sizes(patch, queries, 0, 4), _sizes(patch, match["values"], 4, 5)]
        shape = patch.op("Concat", sizes, {"axis": 0})
        patch.replace(match.output, patch.op("Reshape", [result, shape], type=match.output.type))
        patch.remove(match.root, match.node("softmax"), *(node for node, _ in bindings.steps), bindings.product)
        return patch


def _steps_to_product(scores: Value) -> FiveAxes | None:
    """Return the product behind scales and masks that have at most three axes, each read by the next alone."""
    steps: list[tuple[Node, int]] = []
    value = scores
    for _ in range(_STEPS):
        node = value.producer
        if node is None or node.domain != "" or len(value.consumers()) != 1:
            return None
        if node.op_type == "MatMul":
            return FiveAxes(node, tuple(steps))
        if node.op_type not in ("Mul", "Div", "Add", "Sub"):
            return None
        ranks = [None if each is None else each.rank for each in node.inputs]
        index = next((place for place, rank in enumerate(ranks) if rank == _AXES), None)
        other = None if index is None else ranks[1 - index]
        if index is None or other is None or other > 3 or (index == 1 and node.op_type in ("Div", "Sub")):
            return None
        steps.append((node, index))
        inner = node.inputs[index]
        assert inner is not None
        value = inner
    return None


def _product(patch: GraphPatch, left: Value, right: Value) -> Value:
    assert isinstance(left.type, TensorType)
    assert left.shape is not None
    assert right.shape is not None
    return patch.op("MatMul", [left, right], type=TensorType(left.type.dtype, (*left.shape[:-1], right.shape[-1])))


def _joined(patch: GraphPatch, five: Value) -> Value:
    """Return a value of five axes with the first two as one."""
    assert isinstance(five.type, TensorType)
    assert five.shape is not None
    first = patch.constant(np.array([-1], np.int64), "joined")
    shape = patch.op("Concat", [first, _sizes(patch, five, 2, _AXES)], {"axis": 0})
    return patch.op("Reshape", [five, shape], type=TensorType(five.type.dtype, (_times(five.shape), *five.shape[2:])))


def _times(shape: tuple[Dim | None, ...]) -> Dim | None:
    """Return the product of the first two sizes, where both are known."""
    first, second = shape[:2]
    return None if first is None or second is None else first * second


def _sizes(patch: GraphPatch, value: Value, start: int, end: int) -> Value:
    """Return some sizes of a value, as a constant where they are numbers."""
    assert value.shape is not None
    sizes = value.shape[start:end]
    if all(isinstance(size, int) for size in sizes):
        return patch.constant(np.array(sizes, np.int64), "sizes")
    axes = patch.constant(np.arange(start, end, dtype=np.int64), "axes")
    return patch.op("Gather", [patch.op("Shape", [value]), axes], {"axis": 0})


FIVE_AXES = RulePass("AxesOfWindows", [AxesOfWindows()], Level.EXTENDED)
