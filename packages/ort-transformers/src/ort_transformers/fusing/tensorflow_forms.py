"""What TensorFlow's converter writes for an Einsum, in the form that exporters of PyTorch have.

    Reshape(Unsqueeze(x))                       ->  Reshape(x)
    Transpose(Unsqueeze(x, axes), perm)         ->  Unsqueeze(Transpose(x, perm without them), axes behind)
    Transpose(Reshape(Transpose(x)))            ->  Reshape(Transpose(x))     where batch and heads are stacked between
    Reshape(x, computed)                        ->  Reshape(x, numbers)       where the shape is known but for one size

Axes of one element that only stand for letters of an equation come and go around Transposes; without them what remains
is one Transpose and one Reshape, as fusions know them. All of it moves nothing else than before, and less often.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.ir import TensorType, Value
from ort_core.plugin.passes import Level, RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, one_of, op, var

_SHAPES = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")
_READS_SHAPE = frozenset({*_SHAPES, "Shape"})
_SWAP = (0, 2, 1)


class OneReshape(RewriteRule[list[int]]):
    """Make one Reshape to numbers of a Reshape to a computed shape, or of two changes of shape."""

    name = "OneReshape"

    def build_pattern(self) -> Pattern:
        """Return a change of shape, behind another one or not."""
        inner = one_of(*(op(kind, var("x"), name="inner", more_inputs=True, shared=True) for kind in _SHAPES))
        behind = one_of(*(op(kind, inner, more_inputs=True) for kind in ("Reshape", "Squeeze")))
        return one_of(behind, op("Reshape", var("x"), var("shape")))

    def check(self, match: Match) -> list[int] | Rejection:
        """At most one size may be unknown beside those that stay where they are."""
        x, result, root = match["x"], match.output, match.root
        inner = match.node("inner") if match.has_node("inner") else None
        kinds = {root.op_type} if inner is None else {root.op_type, inner.op_type}
        if "Reshape" not in kinds:
            return Rejection("axes of one element are left to those who read them", root)
        if inner is None and _fixed(root.inputs[1]):
            return Rejection("the shape is one of numbers", root)
        if inner is not None and any(each.op_type not in _READS_SHAPE for each in inner.output.consumers()):
            return Rejection("the shape between is read by others", root)
        return _entries(x, result) or Rejection("more than one size is not known", root)

    def rewrite(self, match: Match, bindings: list[int]) -> GraphPatch:
        """Put one Reshape there."""
        patch = GraphPatch(match.model, match.root)
        shape = patch.constant(np.array(bindings, np.int64), "shape")
        result = patch.op("Reshape", [match["x"], shape], opset=match.opset(), type=match.output.type)
        patch.replace(match.output, result)
        patch.remove(match.root)
        return patch


class TransposeBeforeUnsqueeze(RewriteRule[tuple[tuple[int, ...], tuple[int, ...]]]):
    """Transpose first and insert axes of one element afterwards, where a change of shape reads them."""

    name = "TransposeBeforeUnsqueeze"

    def build_pattern(self) -> Pattern:
        """Return a Transpose of inserted axes."""
        return op("Transpose", op("Unsqueeze", var("x"), var("axes"), name="lifted", shared=True))

    def check(self, match: Match) -> tuple[tuple[int, ...], tuple[int, ...]] | Rejection:
        """Only changes of shape may read it, and the axes must be known."""
        perm, axes = match.root.ints_attribute("perm"), _numbers(match["axes"])
        rank = match.output.rank
        if perm is None or axes is None or rank is None:
            return Rejection("the axes are not known", match.root)
        readers = match.output.consumers()
        if match.output.is_graph_output or not any(each.op_type in _SHAPES for each in readers):
            return Rejection("no change of shape reads it", match.root)
        inserted = {axis % rank for axis in axes}
        kept = [axis for axis in range(rank) if axis not in inserted]
        inner = tuple(kept.index(axis) for axis in perm if axis in kept)
        return inner, tuple(place for place, axis in enumerate(perm) if axis in inserted)

    def rewrite(self, match: Match, bindings: tuple[tuple[int, ...], tuple[int, ...]]) -> GraphPatch:
        """Put the Transpose in front."""
        patch = GraphPatch(match.model, match.root)
        perm, places = bindings
        turned = patch.op("Transpose", [match["x"]], {"perm": perm}, type=_permuted(match["x"], perm))
        axes = patch.constant(np.array(places, np.int64), "axes")
        patch.replace(match.output, patch.op("Unsqueeze", [turned, axes], opset=match.opset(), type=match.output.type))
        patch.remove(match.root)
        return patch


class TransposeBeforeStack(RewriteRule[tuple[tuple[int, ...], list[int]]]):
    """Swap the last axes of (batch, heads, m, n) before they are stacked, where a product reads the swapped."""

    name = "TransposeBeforeStack"

    def build_pattern(self) -> Pattern:
        """Return a swap of stacked matrices that were transposed before."""
        turned = op("Transpose", var("x"), name="turned", shared=True)
        stacked = op("Reshape", turned, var("shape"), name="stacked", shared=True)
        return op("Transpose", stacked)

    def check(self, match: Match) -> tuple[tuple[int, ...], list[int]] | Rejection:
        """The stack must keep the last two axes, and the product alone may read the result."""
        four, three = match.node("turned").output, match.node("stacked").output
        perm = match.node("turned").ints_attribute("perm")
        if match.root.ints_attribute("perm") != _SWAP or perm is None or four.rank != 4 or three.rank != 3:
            return Rejection("it is no swap of stacked matrices", match.root)
        sizes, stacked = four.shape or (), three.shape or ()
        if None in stacked[1:] or stacked[1:] != sizes[2:]:
            return Rejection("the stack is not known to keep its matrices", match.root)
        if {each.op_type for each in match.output.consumers()} != {"MatMul"}:
            return Rejection("it is not read by a product alone", match.root)
        swapped = (perm[0], perm[1], perm[3], perm[2])
        entries = [each if isinstance(each, int) else -1 for each in match.output.shape or ()]
        if entries.count(-1) > 1 or len(entries) != 3:
            return Rejection("more than one size is not known", match.root)
        return swapped, entries

    def rewrite(self, match: Match, bindings: tuple[tuple[int, ...], list[int]]) -> GraphPatch:
        """Put one Transpose in front of the stack."""
        patch = GraphPatch(match.model, match.root)
        perm, entries = bindings
        turned = patch.op("Transpose", [match["x"]], {"perm": perm}, type=_permuted(match["x"], perm))
        shape = patch.constant(np.array(entries, np.int64), "stack_shape")
        opset = match.node("stacked").opset
        patch.replace(match.output, patch.op("Reshape", [turned, shape], opset=opset, type=match.output.type))
        patch.remove(match.root)
        return patch


def _fixed(value: Value | None) -> bool:
    return value is not None and value.constant is not None


def _numbers(value: Value) -> tuple[int, ...] | None:
    found = value.constant
    return None if found is None or value.is_graph_input else tuple(int(each) for each in found.array().reshape(-1))


def _entries(x: Value, result: Value) -> list[int] | None:
    """Return the numbers of a Reshape from one to the other, ``None`` where they do not say it."""
    before, after = x.shape, result.shape
    if before is None or after is None or None in after or 0 in after:
        return None
    entries = []
    for place, size in enumerate(after):
        stays = place < len(before) and before[place] == size
        entries.append(size if isinstance(size, int) else 0 if stays else -1)
    return entries if entries.count(-1) <= 1 else None


def _permuted(value: Value, perm: Sequence[int]) -> TensorType | None:
    found = value.type
    if not isinstance(found, TensorType) or found.shape is None:
        return None
    return TensorType(found.dtype, tuple(found.shape[axis] for axis in perm))


TENSORFLOW_FORMS = RulePass(
    "TensorFlowForms",
    [TransposeBeforeUnsqueeze(), TransposeBeforeStack(), OneReshape()],
    Level.EXTENDED,
)
