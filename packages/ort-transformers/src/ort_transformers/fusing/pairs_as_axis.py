"""Pairs of neighboring features as an axis of two, of which one is taken: every second feature, as fusions know it.

    Gather(Reshape(x, (b, n, h, pairs, 2)), 1, axis=4)
        ->  Slice(Reshape(x, (b, n, h, 2 * pairs)), 1, end, axis=3, step=2)

Rotations that are written as products of complex numbers have it, and those that unbind pairs: a Squeeze of a Split or
of a Slice, or the Slice alone where the pairs are stacked again.
"""

from __future__ import annotations

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.ir import Node, TensorType, Value
from ort_core.plugin.passes import Level, RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, constant, one_of, op, var
from ort_transformers.fusing.joined_axes import numbers_of

_AXES = 5
_END = 2**31 - 1
_STACKING = frozenset({"Concat", "Neg"})  # what reads an element of pairs that keeps the axis
_INPUTS = 4  # of a Slice that names its axes


class PairsAsAxis(RewriteRule[tuple[int, ...]]):
    """Take every second feature in place of one element of each pair."""

    name = "PairsAsAxis"

    def build_pattern(self) -> Pattern:
        """Return one element of an axis."""
        index = constant("index", where=lambda each: each.size == 1 and not each.shape)
        slices = op("Slice", var("whole"), constant("start"), constant("end"), more_inputs=True, name="slice")
        return one_of(op("Gather", var("apart"), index), op("Squeeze", var("piece"), more_inputs=True), slices)

    def check(self, match: Match) -> tuple[int, ...] | Rejection:
        """The last of five axes must have two elements, and the sizes be known."""
        found = _taken(match)
        node = None if found is None else found[0].producer
        if found is None or node is None or node.op_type != "Reshape" or node.inputs[0] is None:
            return Rejection("it is not one element of an axis that a Reshape made", match.root)
        shape, x = found[0].shape, node.inputs[0].shape
        if shape is None or x is None or len(shape) != _AXES or shape[-1] != 2 or not isinstance(shape[-2], int):
            return Rejection("the last of five axes is not known to be of pairs", match.root)
        kept = next((at for at, pair in enumerate(zip(x, shape, strict=False)) if pair[0] != pair[1]), len(x))
        numbers = numbers_of((*shape[:3], 2 * shape[-2]), x[:kept])
        return Rejection("more than one size is not known", match.root) if numbers is None else numbers

    def rewrite(self, match: Match, bindings: tuple[int, ...]) -> GraphPatch:
        """Put the Slice there."""
        patch = GraphPatch(match.model, match.root)
        found = _taken(match)
        assert found is not None
        apart, index = found
        assert apart.producer is not None
        assert isinstance(apart.type, TensorType)
        assert apart.shape is not None
        made = TensorType(apart.type.dtype, (*apart.shape[:3], bindings[-1]))
        numbers = patch.constant(np.array(bindings, np.int64), "features")
        features = patch.op("Reshape", [apart.producer.inputs[0], numbers], type=made)
        bounds = (index, _END, 3, 2)
        given = [patch.constant(np.array([each], np.int64), "bound") for each in bounds]
        four = TensorType(apart.type.dtype, apart.shape[:-1])
        taken = patch.op("Slice", [features, *given], type=four)
        if match.root.op_type == "Slice":  # which keeps the axis
            kept = patch.constant(np.array([*bindings[:-1], apart.shape[-2], 1], np.int64), "kept")
            taken = patch.op("Reshape", [taken, kept], type=match.output.type)
        patch.replace(match.output, taken)
        patch.remove(match.root)
        return patch


def _taken(match: Match) -> tuple[Value, int] | None:
    """Return a value of five axes, and which element of the last one is taken."""
    if "apart" in match:
        is_last = match.root.int_attribute("axis", 0) in (-1, _AXES - 1)
        index = int(match.array("index"))
        return (match["apart"], index % 2) if is_last and index in (0, 1, -1, -2) else None
    if match.has_node("slice"):
        is_stacked = all(reader.op_type in _STACKING for reader, _ in match.output.uses)
        return _sliced(match.root) if is_stacked else None
    piece = match["piece"]
    split = piece.producer
    if split is not None and split.op_type == "Slice":
        return _sliced(split) if match.output.shape == (piece.shape or ())[:-1] else None
    if split is None or split.op_type != "Split" or piece.rank != _AXES or len(split.outputs) != 2:
        return None
    source = split.inputs[0]
    is_last = split.int_attribute("axis", 0) in (-1, _AXES - 1) and (piece.shape or ())[-1] == 1
    if source is None or not is_last or match.output.shape != (piece.shape or ())[:-1]:
        return None
    return source, split.outputs.index(piece)


def _sliced(node: Node) -> tuple[Value, int] | None:
    """Return a value of five axes and which element of the last one a Slice keeps."""
    source, made = node.inputs[0], node.output
    if source is None or len(node.inputs) < _INPUTS or node.graph is None:
        return None
    shape, result = source.shape, made.shape
    if shape is None or result is None or len(shape) != _AXES or shape[-1] != 2 or result != (*shape[:-1], 1):
        return None
    found = [None if each is None else node.graph.fixed_constant(each) for each in (node.inputs[1], node.inputs[3])]
    start, axis = (None if each is None or each.size != 1 else int(each.array().reshape(-1)[0]) for each in found)
    return (source, start % 2) if start in (0, 1, -1, -2) and axis in (-1, _AXES - 1) else None


PAIRS_AS_AXIS = RulePass("PairsAsAxis", [PairsAsAxis()], Level.EXTENDED)
