"""Sizes that exports ask of the scores of an attention, taken from the inputs of the graph that have them.

    Shape(scores)  with  scores: float[B, 4, L, L], ids: int64[B, L]  ->  Concat(Shape(ids)[0], {4}, Shape(ids)[1], …)

A fused attention has no scores. Where their sizes alone are read, to cut a buffer or to make a mask, they would have to
be computed beside it.
"""

from __future__ import annotations

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.ir import Dim, Graph, SymbolicDim, Value, ValueType
from ort_core.plugin.passes import Level, RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, constant, op, var
from ort_transformers.fusing.einsum_forms import leads_to_softmax

Place = tuple[Value, int, int]  # an input, its axis, and how many times its size


class SizesOfScores(RewriteRule[list[int | Place]]):
    """Take the sizes of scores from graph inputs."""

    name = "SizesOfScores"

    def build_pattern(self) -> Pattern:
        """Return what is asked for the sizes of a value."""
        return op("Shape", var("scores"))

    def check(self, match: Match) -> list[int | Place] | Rejection:
        """Each size must be a number, or one of an input; and a softmax be near."""
        scores, graph = match["scores"], match.root.graph
        if scores.producer is None or scores.shape is None or graph is None or not leads_to_softmax(scores):
            return Rejection("it is not asked of scores", match.root)
        start, end = match.root.int_attribute("start", 0), match.root.attribute("end")
        sizes = scores.shape[start : end if isinstance(end, int) else None]
        found = [_place_of(size, graph) for size in sizes]
        known = [each for each in found if each is not None]
        if len(known) != len(found) or not found:
            return Rejection("no input of the graph is known to have these sizes", match.root)
        return known

    def rewrite(self, match: Match, bindings: list[int | Place]) -> GraphPatch:
        """Join the sizes."""
        patch = GraphPatch(match.model, match.root)
        parts = [_vector(patch, each) for each in bindings]
        patch.replace(match.output, patch.op("Concat", parts, {"axis": 0}, type=match.output.type))
        patch.remove(match.root)
        return patch


class SizeOfScores(RewriteRule[Place]):
    """Take one size of scores from a graph input."""

    name = "SizeOfScores"

    def build_pattern(self) -> Pattern:
        """Return one of the sizes of a value."""
        index = constant("index", where=lambda each: each.size == 1)
        return op("Gather", op("Shape", var("scores"), name="shape", shared=True), index)

    def check(self, match: Match) -> Place | Rejection:
        """The size must be one of an input, and a softmax be near."""
        scores, shape, graph = match["scores"], match.node("shape"), match.root.graph
        is_whole = shape.int_attribute("start", 0) == 0 and shape.attribute("end") is None
        if scores.producer is None or scores.shape is None or graph is None or not leads_to_softmax(scores):
            return Rejection("it is not asked of scores", match.root)
        index = int(match.array("index").reshape(-1)[0])
        is_there = is_whole and -len(scores.shape) <= index < len(scores.shape)
        place = _place_of(scores.shape[index], graph) if is_there else None
        if place is None or isinstance(place, int):
            return Rejection("no input of the graph is known to have this size", match.root)
        return place

    def rewrite(self, match: Match, bindings: Place) -> GraphPatch:
        """Read the size of the input."""
        patch = GraphPatch(match.model, match.root)
        shape = match.array("index").shape
        patch.replace(match.output, _size(patch, bindings, shape, match.output.type))
        patch.remove(*match.nodes)
        return patch


def _place_of(size: Dim, graph: Graph) -> int | Place | None:
    """Return a number, or the input and the axis that have a size, or a part of it."""
    if not isinstance(size, SymbolicDim):
        return size
    factor = size.terms[0][1] if len(size.terms) == 1 else 1
    for value in graph.inputs:
        for axis, other in enumerate(value.shape or ()):
            if isinstance(other, SymbolicDim) and (other == size or other * factor == size):
                return value, axis, 1 if other == size else factor
    return None


def _vector(patch: GraphPatch, size: int | Place) -> Value:
    if isinstance(size, int):
        return patch.constant(np.array([size], np.int64), "size")
    return _size(patch, size, (1,))


def _size(patch: GraphPatch, place: Place, shape: tuple[int, ...], type: ValueType | None = None) -> Value:
    """Return the size that is there, as a tensor of one element."""
    value, axis, factor = place
    index = patch.constant(np.full(shape, axis, np.int64), "axis")
    size = patch.op("Gather", [patch.op("Shape", [value]), index], type=type)
    if factor == 1:
        return size
    return patch.op("Mul", [size, patch.constant(np.full(shape, factor, np.int64), "factor")], type=type)


SCORE_SIZES = RulePass("SizesOfScores", [SizeOfScores(), SizesOfScores()], Level.EXTENDED)
