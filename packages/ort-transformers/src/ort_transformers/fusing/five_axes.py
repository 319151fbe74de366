"""Attentions of five axes brought to the four that fusions know.

    MatMul(Softmax(Add(Mul(MatMul(q, k'), scale), bias)), v)
        with  q: float[B, windows, heads, queries, size]                windows beside the batch
        with  q: float[B, heads, repeats, queries, size], one repeat of keys and values      groups of queries

Of windows the first two axes become one in front of the products, and two again behind them. What is added to the
scores is repeated for them where it has them. Of groups the second and the third become one, and keys and values are
repeated, as those who write such attentions with four axes do it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.ir import DataType, Dim, Node, TensorType, Value
from ort_core.plugin.passes import Level, RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, op, var

_AXES = 5
_STEPS = 6  # scales and masks between a product and its softmax, of the exports that were looked at, and some more
_AXES_AS_INPUT = 13  # of Squeeze and Unsqueeze, since this opset
_SWAP = (0, 1, 3, 2)


@dataclass(frozen=True, slots=True)
class FiveAxes:
    """The product of queries and keys, and what is done to the scores in front of the softmax, the last first."""

    product: Node
    steps: tuple[tuple[Node, int], ...]  # a node, and which of its inputs the scores are

    def others(self) -> list[Value]:
        """Return what scales and masks the scores."""
        return [
            each
            for node, index in self.steps
            for place, each in enumerate(node.inputs)
            if place != index and each is not None
        ]

    def again(self, patch: GraphPatch, scores: Value, brought: Callable[[Value], Value]) -> Value:
        """Put the same steps behind other scores, with what each of them reads besides brought to their axes."""
        for node, index in reversed(self.steps):
            operands = [each if each is None else brought(each) for each in node.inputs]
            operands[index] = scores
            scores = patch.op(node.op_type, operands, type=scores.type)
        return scores


class _FiveAxesRule(RewriteRule[FiveAxes]):
    """What both rules have in common: the pattern, and the walk from the softmax to the product."""

    def build_pattern(self) -> Pattern:
        """Return a product of shares and values."""
        return op("MatMul", op("Softmax", var("scores"), name="softmax"), var("values"))

    def check(self, match: Match) -> FiveAxes | Rejection:
        """The scores must be a product of five axes that is scaled and masked, and the operands fit."""
        softmax = match.node("softmax")
        if softmax.output.rank != _AXES or softmax.attribute("axis") not in (-1, _AXES - 1):
            return Rejection("the scores do not have five axes, the softmax over the last", match.root)
        found = _steps_to_product(match["scores"])
        if found is None:
            return Rejection("the scores are no product that is scaled and masked", match.root)
        operands = [*found.product.inputs, match["values"]]
        shapes = [each.shape for each in operands if each is not None and each.shape is not None]
        if len(shapes) != 3 or any(len(shape) != _AXES or None in shape[:3] for shape in shapes):
            return Rejection("the operands are not known to have five axes", match.root)
        refusal = self.refuse(match, found, shapes)
        return found if refusal is None else refusal

    def refuse(self, match: Match, found: FiveAxes, shapes: list[tuple[Dim | None, ...]]) -> Rejection | None:
        """Return why the sizes do not fit this rule; ``shapes`` are those of queries, turned keys and values."""
        raise NotImplementedError


class AxesOfWindows(_FiveAxesRule):
    """Join the first two of five axes around an attention."""

    name = "AxesOfWindows"

    def refuse(self, match: Match, found: FiveAxes, shapes: list[tuple[Dim | None, ...]]) -> Rejection | None:
        """All operands must have the same first three axes."""
        if len({shape[:3] for shape in shapes}) != 1:
            return Rejection("the operands do not have the same windows and heads", match.root)
        return None

    def rewrite(self, match: Match, bindings: FiveAxes) -> GraphPatch:
        """Put the same nodes there, over four axes."""
        patch = GraphPatch(match.model, match.root)
        queries, keys = bindings.product.inputs
        assert queries is not None
        assert keys is not None
        repeated: dict[Value, Value] = {}

        def brought(value: Value) -> Value:
            if (value.rank or 0) < 4:
                return value
            if value not in repeated:
                ones = patch.constant(np.ones(3, np.int64), "same")
                shape = patch.op("Concat", [_sizes(patch, queries, 0, 2), ones], {"axis": 0})
                repeated[value] = _joined(patch, patch.op("Expand", [value, shape], type=_repeated(value, queries)))
            return repeated[value]

        scores = _product(patch, _joined(patch, queries), _joined(patch, keys))
        shares = patch.op("Softmax", [bindings.again(patch, scores, brought)], {"axis": -1}, type=scores.type)
        result = _product(patch, shares, _joined(patch, match["values"]))
        sizes = [_sizes(patch, queries, 0, 4), _sizes(patch, match["values"], 4, 5)]
        shape = patch.op("Concat", sizes, {"axis": 0})
        patch.replace(match.output, patch.op("Reshape", [result, shape], type=match.output.type))
        patch.remove(match.root, match.node("softmax"), *(node for node, _ in bindings.steps), bindings.product)
        return patch


class AxesOfGroups(_FiveAxesRule):
    """Join heads and the queries that share them, and repeat keys and values."""

    name = "AxesOfGroups"

    def refuse(self, match: Match, found: FiveAxes, shapes: list[tuple[Dim | None, ...]]) -> Rejection | None:
        """Keys and values must have the heads of queries, and one repeat; masks neither of both axes."""
        queries, keys, values = shapes
        fixed = [queries[1], queries[2], queries[4], values[4]]
        if not all(isinstance(each, int) and each > 0 for each in fixed):
            return Rejection("the number and the size of the heads are not known", match.root)
        once = [(*queries[:2], 1), (queries[0], 1, queries[2])]
        if keys[:3] != values[:3] or keys[:3] not in once:
            return Rejection("keys and values are not those of the heads, once for all queries of a group", match.root)
        masks = [each for each in found.others() if (each.rank or 0) > 2]
        if any(each.rank is None or each.shape is None or set(each.shape[-4:-2]) != {1} for each in masks):
            return Rejection("what is added to the scores differs by head", match.root)
        return None

    def rewrite(self, match: Match, bindings: FiveAxes) -> GraphPatch:
        """Put the same nodes there, over four axes."""
        patch = GraphPatch(match.model, match.root)
        queries, keys = bindings.product.inputs
        assert queries is not None
        assert keys is not None
        assert queries.shape is not None
        assert keys.shape is not None
        place = 2 if keys.shape[2] == 1 else 1  # of the axis that keys do not have
        order = (0, 1, 2, 3, 4) if place == 2 else (0, 2, 1, 3, 4)
        heads, repeats, size = (int(str(queries.shape[axis])) for axis in (3 - place, place, 4))
        opset, values = match.opset(), match["values"]
        value_size = int(str((values.shape or ())[4]))
        dtype, batch, rows = _dtype(queries), queries.shape[0], queries.shape[3]
        lead = (batch, heads * repeats, rows)
        numbers = patch.constant(np.array([0, heads * repeats, -1, size], np.int64), "heads")
        joined = patch.op("Reshape", [_ordered(patch, queries, order), numbers], type=TensorType(dtype, (*lead, size)))
        turned = patch.op("Transpose", [_without(patch, keys, place, opset)], {"perm": _SWAP})
        wide = _heads_repeated(patch, turned, heads, repeats, size, opset)
        scores_type = TensorType(dtype, (*lead, keys.shape[4]))
        scores = patch.op("MatMul", [joined, patch.op("Transpose", [wide], {"perm": _SWAP})], type=scores_type)
        masked = bindings.again(patch, scores, lambda each: _without(patch, each, -3, opset))
        shares = patch.op("Softmax", [masked], {"axis": -1}, type=scores_type)
        weighed = _heads_repeated(patch, _without(patch, values, place, opset), heads, repeats, value_size, opset)
        result = patch.op("MatMul", [shares, weighed], type=TensorType(dtype, (*lead, value_size)))
        numbers = patch.constant(np.array([0, heads, repeats, -1, value_size], np.int64), "groups")
        apart = TensorType(dtype, (batch, heads, repeats, rows, value_size))
        patch.replace(match.output, _ordered(patch, patch.op("Reshape", [result, numbers], type=apart), order))
        patch.remove(match.root, match.node("softmax"), *(node for node, _ in bindings.steps), bindings.product)
        return patch


def _ordered(patch: GraphPatch, value: Value, order: tuple[int, ...]) -> Value:
    """Return a value with its axes in an order."""
    if order == tuple(range(len(order))):
        return value
    assert isinstance(value.type, TensorType)
    assert value.shape is not None
    made = TensorType(value.type.dtype, tuple(value.shape[axis] for axis in order))
    return patch.op("Transpose", [value], {"perm": order}, type=made)


def _without(patch: GraphPatch, value: Value, axis: int, opset: int) -> Value:
    """Return a value without an axis of one element, in front of a Transpose; up to three axes stay as they are."""
    if value.rank is None or value.rank < 4:
        return value
    place, turned = axis % value.rank, value.producer
    perm = turned.ints_attribute("perm") if turned is not None and turned.op_type == "Transpose" else None
    if turned is None or perm is None or turned.inputs[0] is None:
        return _squeezed(patch, value, place, opset)
    order = tuple(each - (each > perm[place]) for at, each in enumerate(perm) if at != place)
    inner = _squeezed(patch, turned.inputs[0], perm[place], opset)
    made = None
    if isinstance(inner.type, TensorType) and inner.shape is not None:
        made = TensorType(inner.type.dtype, tuple(inner.shape[each] for each in order))
    return patch.op("Transpose", [inner], {"perm": order}, type=made)


def _squeezed(patch: GraphPatch, value: Value, place: int, opset: int) -> Value:
    made = None
    if isinstance(value.type, TensorType) and value.shape is not None:
        made = TensorType(value.type.dtype, (*value.shape[:place], *value.shape[place + 1 :]))
    if opset < _AXES_AS_INPUT:
        return patch.op("Squeeze", [value], {"axes": [place]}, type=made)
    return patch.op("Squeeze", [value, patch.constant(np.array([place], np.int64), "axis")], type=made)


def _heads_repeated(patch: GraphPatch, four: Value, heads: int, repeats: int, size: int, opset: int) -> Value:
    """Return heads of four axes, each as often as there are queries in its group."""
    if opset < _AXES_AS_INPUT:
        five = patch.op("Unsqueeze", [four], {"axes": [2]})
    else:
        five = patch.op("Unsqueeze", [four, patch.constant(np.array([2], np.int64), "axis")])
    wide = patch.op("Expand", [five, patch.constant(np.array([1, 1, repeats, 1, 1], np.int64), "repeats")])
    return patch.op("Reshape", [wide, patch.constant(np.array([0, heads * repeats, -1, size], np.int64), "heads")])


def _steps_to_product(scores: Value) -> FiveAxes | None:
    """Return the product behind scales and masks, each read by the next alone."""
    steps: list[tuple[Node, int]] = []
    value = scores
    for _ in range(_STEPS):
        node = value.producer
        if node is None or node.domain != "" or len(value.consumers()) != 1 or value.is_graph_output:
            return None
        if node.op_type == "MatMul":
            return FiveAxes(node, tuple(steps))
        index = _index_of_scores(node, value)
        inner = None if index is None else node.inputs[index]
        if index is None or inner is None:
            return None
        steps.append((node, index))
        value = inner
    return None


def _index_of_scores(node: Node, value: Value) -> int | None:
    """Return which input of a scale or a mask the scores are: the one of the result's sizes that a product leads to."""
    places = {"Mul": (0, 1), "Add": (0, 1), "Div": (0,), "Sub": (0,), "Where": (1, 2)}.get(node.op_type, ())
    for place in places:
        inner = node.inputs[place]
        if inner is not None and inner.rank == _AXES and inner.shape == value.shape and _comes_from_product(inner):
            return place
    return None


def _comes_from_product(value: Value) -> bool:
    for _ in range(_STEPS):
        node = value.producer
        if node is None or node.op_type == "MatMul":
            return node is not None
        inner = next((each for each in node.present_inputs() if each.rank == _AXES), None)
        if inner is None:
            return False
        value = inner
    return False


def _product(patch: GraphPatch, left: Value, right: Value) -> Value:
    assert isinstance(left.type, TensorType)
    assert left.shape is not None
    assert right.shape is not None
    return patch.op("MatMul", [left, right], type=TensorType(left.type.dtype, (*left.shape[:-1], right.shape[-1])))


def _dtype(value: Value) -> DataType:
    assert isinstance(value.type, TensorType)
    return value.type.dtype


def _repeated(value: Value, queries: Value) -> TensorType | None:
    if not isinstance(value.type, TensorType) or value.shape is None or queries.shape is None:
        return None
    return TensorType(value.type.dtype, (*queries.shape[:2], *value.shape[-3:]))


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


FIVE_AXES = RulePass("FiveAxes", [AxesOfWindows(), AxesOfGroups()], Level.EXTENDED)
