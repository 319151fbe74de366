"""Movement of data that moves nothing: slices of everything, expansion and reshaping to the shape that is there.

    y = Slice(x, 0, big, axes, 1)               ->  readers of y read x       (EliminateSlice)
    y = Expand(x, shape of x)                   ->  readers of y read x       (ExpandElimination)
    y = Unsqueeze(constant, axes)               ->  a constant                (UnsqueezeElimination)
    s = Shape(Cast(x))                          ->  s = Shape(x)              (PreShapeNodeElimination)
    y = Reshape(x, shape of x), also Flatten, Squeeze, Unsqueeze
                                                ->  readers of y read x       (ReshapeElimination)
    y = Reshape(Reshape(x, a), b)               ->  y = Reshape(x, b)         (ReshapeElimination)

"The shape that is there" may be symbolic: equal dimensions of the types that inference found are equal in every run.
"""

from __future__ import annotations

import numpy as np

from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import Shape
from ort_core.ir.values import Value
from ort_core.ops.shape_arithmetic import is_beyond_end
from ort_core.rewrite.matcher import Match, constant_of
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, constant, op, optional, var
from ort_core.rewrite.rule import RewriteRule, replace_by

INPUT_SLICE_OPSET = 10  # before it, starts, ends and axes were attributes
_RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


def has_same_shape(first: Value, second: Value) -> bool:
    """Return whether two values have the same, wholly known shape (symbolic dimensions count as known)."""
    left, right = first.shape, second.shape
    return left is not None and left == right and all(dim is not None for dim in left)


class EliminateSlice(RewriteRule[Match]):
    """Remove a Slice that keeps everything."""

    name = "EliminateSlice"

    def build_pattern(self) -> Pattern:
        """Return any Slice."""
        return op("Slice", var("x"), more_inputs=True)

    def check(self, match: Match) -> Match | Rejection:
        """Every axis must be kept whole, in its order."""
        starts, ends, steps = slice_bounds(match.root, match.opset())
        if steps is None or any(step != 1 for step in steps):
            return Rejection("the steps are not known to be 1", match.root)
        if has_same_shape(match["x"], match.output):
            return match
        if starts is not None and ends is not None and not any(starts) and all(map(is_beyond_end, ends)):
            return match
        return Rejection("the slice may leave something out", match.root)

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Replace the result by the input."""
        return replace_by(match, "x")


def slice_bounds(node: Node, opset: int) -> tuple[list[int] | None, list[int] | None, list[int] | None]:
    """Return starts, ends and steps of a Slice, each ``None`` when it is not constant."""
    if opset < INPUT_SLICE_OPSET:
        starts, ends = node.ints_attribute("starts"), node.ints_attribute("ends")
        return (None if starts is None else list(starts), None if ends is None else list(ends), [1])
    steps = [1] if node.input(4) is None else _integers(node.input(4))
    return _integers(node.input(1)), _integers(node.input(2)), steps


def _integers(value: Value | None) -> list[int] | None:
    found = constant_of(value)
    return None if found is None else [int(number) for number in found.array().reshape(-1)]


class ExpandElimination(RewriteRule[Match]):
    """Remove an Expand that repeats nothing."""

    name = "ExpandElimination"

    def build_pattern(self) -> Pattern:
        """Return any Expand."""
        return op("Expand", var("x"), var("shape"))

    def check(self, match: Match) -> Match | Rejection:
        """The shape must be that of x, or of ones that add no dimension."""
        if has_same_shape(match["x"], match.output):
            return match
        shape, rank = constant_of(match["shape"]), match["x"].rank
        if shape is not None and rank is not None and shape.size <= rank and (shape.array() == 1).all():
            return match
        return Rejection("the shape may differ from the input's", match.root)

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Replace the result by the input."""
        return replace_by(match, "x")


class UnsqueezeElimination(RewriteRule[tuple[int, ...]]):
    """Reshape a constant at once instead of in every run."""

    name = "UnsqueezeElimination"

    def build_pattern(self) -> Pattern:
        """Return ``Unsqueeze`` of a constant."""
        return op("Unsqueeze", constant("x"), optional(constant("axes")))

    def check(self, match: Match) -> tuple[int, ...] | Rejection:
        """Return the axes, sorted and not negative."""
        axes = match.root.ints_attribute("axes")
        if axes is None and "axes" in match:
            axes = tuple(int(axis) for axis in match.array("axes").reshape(-1))
        if axes is None:
            return Rejection("the axes are not constant", match.root)
        rank = len(match.constant("x").shape) + len(axes)
        normalized = {axis + rank if axis < 0 else axis for axis in axes}
        if len(normalized) != len(axes) or not normalized <= set(range(rank)):
            return Rejection("the axes do not fit the rank", match.root)
        return tuple(sorted(normalized))

    def rewrite(self, match: Match, bindings: tuple[int, ...]) -> GraphPatch:
        """Make the constant with the new shape."""
        patch = GraphPatch(match.model, match.root)
        x = match.constant("x")
        reshaped = np.expand_dims(x.array(), bindings)
        patch.replace(match.output, patch.constant(reshaped, match["x"].name, x.dtype))
        patch.remove(match.root)
        return patch


_KEEPING_SHAPE = ("Cast", "Erf", "Neg", "Relu", "Sigmoid", "Softmax", "Sqrt", "Tanh")


class PreShapeNodeElimination(RewriteRule[Match]):
    """Ask the input of an operator that keeps shapes for the shape of its result, which may then be fused."""

    name = "PreShapeNodeElimination"

    def build_pattern(self) -> Pattern:
        """Return ``Shape(Cast(x))``, and the like; others may read the cast."""
        return op("Shape", op(_KEEPING_SHAPE, var("x"), name="keeper", shared=True))

    def check(self, match: Match) -> Match | Rejection:
        """Accept every match: all of these operators keep shapes."""
        return match

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Read the shape of the operator's input."""
        patch = GraphPatch(match.model, match.root)
        shape = patch.op("Shape", [match["x"]], match.root.attributes.values(), type=match.output.type)
        patch.replace(match.output, shape)
        patch.remove(match.root, match.node("keeper"))
        return patch


class ReshapeToSameShape(RewriteRule[Match]):
    """Remove a Reshape, Flatten, Squeeze or Unsqueeze (or two of them) that gives back the shape it started from."""

    name = "ReshapeToSameShape"

    def build_pattern(self) -> Pattern:
        """Return any of the four operators."""
        return op(_RESHAPES, var("x"), more_inputs=True)

    def check(self, match: Match) -> Match | Rejection:
        """The result must have the shape of the input, or of the input of a reshaping operator before."""
        if has_same_shape(match["x"], match.output) or self._origin(match) is not None:
            return match
        return Rejection("the shapes are not known to be equal", match.root)

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Replace the result by the value with that shape."""
        patch = GraphPatch(match.model, match.root)
        origin = match["x"] if has_same_shape(match["x"], match.output) else self._origin(match)
        assert origin is not None
        patch.replace(match.output, origin)
        patch.remove(match.root)
        return patch

    @staticmethod
    def _origin(match: Match) -> Value | None:
        before = match["x"].producer
        if before is None or before.op_type not in _RESHAPES or before.domain or before.graph is not match.graph:
            return None
        origin = before.input(0)
        return origin if origin is not None and has_same_shape(origin, match.output) else None


class ReshapeChain(RewriteRule[Match]):
    """Let a Reshape read what a reshaping operator before it read."""

    name = "ReshapeChain"

    def build_pattern(self) -> Pattern:
        """Return a Reshape to a constant shape behind any of the four operators."""
        first = op(_RESHAPES, var("x"), name="first", more_inputs=True)
        return op("Reshape", first, constant("shape", where=lambda found: found.size > 0))

    def check(self, match: Match) -> Match | Rejection:
        """A 0 in the shape copies a size of the value between, which the first input may not have there."""
        shape = match.array("shape").tolist()
        if any(size == 0 for size in shape) and not _keeps_zeros(shape, match["x"].shape, match["first"].shape):
            return Rejection("the shape copies a size of the intermediate value", match.root)
        return match

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Reshape once."""
        patch = GraphPatch(match.model, match.root)
        attributes = match.root.attributes.values()
        reshaped = patch.op("Reshape", [match["x"], match["shape"]], attributes, type=match.output.type)
        patch.replace(match.output, reshaped)
        patch.remove(match.root, match.node("first"))
        return patch


def _keeps_zeros(shape: list[int], outer: Shape | None, inner: Shape | None) -> bool:
    if outer is None or inner is None:
        return False
    copied = [axis for axis, size in enumerate(shape) if size == 0]
    return all(
        axis < min(len(outer), len(inner)) and outer[axis] is not None and outer[axis] == inner[axis] for axis in copied
    )
