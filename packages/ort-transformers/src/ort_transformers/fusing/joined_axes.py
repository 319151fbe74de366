"""Axes that are split or merged beside a Transpose that keeps them side by side: moved to its other side.

    Reshape(Transpose(x, (0, 2, 3, 1, 4)), (b, g * r, n, d))   ->  Transpose(Reshape(x, (b, n, g * r, d)), (0, 2, 1, 3))
    Transpose(Reshape(x, (b, g, r, n, d)), (0, 3, 1, 2, 4))    ->  Reshape(Transpose(x, (0, 2, 1, 3)), (b, n, g, r, d))

Beside other Reshapes what remains is one Transpose of heads, as fusions know it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.ir import Dim, TensorType
from ort_core.plugin.passes import Level, RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, op, var

_AXES = 5
Sizes = tuple[Dim | None, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """The order of axes, and the numbers of the Reshape, on the other side."""

    perm: tuple[int, ...]
    numbers: tuple[int, ...]


class MergeBeforeTranspose(RewriteRule[Moved]):
    """Merge two axes in front of a Transpose."""

    name = "MergeBeforeTranspose"

    def build_pattern(self) -> Pattern:
        """Return a Reshape behind a Transpose of what was split."""
        split = op("Reshape", var("x"), var("apart"), name="split", shared=True)
        return op("Reshape", op("Transpose", split, name="turned"), var("shape"))

    def check(self, match: Match) -> Moved | Rejection:
        """Two axes must be merged that stand side by side, in this order, on both sides."""
        perm = match.node("turned").ints_attribute("perm")
        wide, narrow = match.node("turned").output.shape, match.output.shape
        place = None if wide is None or narrow is None else merged_axis(wide, narrow)
        if perm is None or place is None or perm[place + 1] != perm[place] + 1:
            return Rejection("two axes that stay side by side are not merged", match.root)
        source = match.node("split").output.shape
        axis = perm[place]
        inner = tuple(each - (each > axis) for each in perm if each != axis + 1)
        merged = None if source is None else _merged(source, axis)
        numbers = None if merged is None else numbers_of(merged, (source or ())[: axis + 1])
        return Rejection("more than one size is not known", match.root) if numbers is None else Moved(inner, numbers)

    def rewrite(self, match: Match, bindings: Moved) -> GraphPatch:
        """Merge first."""
        patch = GraphPatch(match.model, match.root)
        shape = patch.constant(np.array(bindings.numbers, np.int64), "merged")
        joined = patch.op("Reshape", [match.node("split").output, shape])
        patch.replace(match.output, patch.op("Transpose", [joined], {"perm": bindings.perm}, type=match.output.type))
        patch.remove(match.root, match.node("turned"))
        return patch


class SplitBehindTranspose(RewriteRule[Moved]):
    """Split an axis behind a Transpose."""

    name = "SplitBehindTranspose"

    def build_pattern(self) -> Pattern:
        """Return a Transpose of what was split, of which a Reshape reads the result."""
        split = op("Reshape", var("x"), var("apart"), name="split")
        return op("Reshape", op("Transpose", split, name="turned"), var("shape"))

    def check(self, match: Match) -> Moved | Rejection:
        """One axis must be split, and its parts stay side by side."""
        perm = match.node("turned").ints_attribute("perm")
        narrow, wide = match["x"].shape, match.node("split").output.shape
        axis = None if wide is None or narrow is None else merged_axis(wide, narrow)
        if perm is None or axis is None or narrow is None or perm.index(axis) + 1 != perm.index(axis + 1):
            return Rejection("one axis is not split to two that stay side by side", match.root)
        inner = tuple(each - (each > axis) for each in perm if each != axis + 1)
        turned = match.node("turned").output.shape
        numbers = (
            None if turned is None else numbers_of(turned, tuple(narrow[each] for each in inner)[: inner.index(axis)])
        )
        return Rejection("more than one size is not known", match.root) if numbers is None else Moved(inner, numbers)

    def rewrite(self, match: Match, bindings: Moved) -> GraphPatch:
        """Split behind."""
        patch = GraphPatch(match.model, match.root)
        x = match["x"]
        made = None
        if isinstance(x.type, TensorType) and x.shape is not None:
            made = TensorType(x.type.dtype, tuple(x.shape[axis] for axis in bindings.perm))
        turned = patch.op("Transpose", [x], {"perm": bindings.perm}, type=made)
        shape = patch.constant(np.array(bindings.numbers, np.int64), "apart")
        apart = patch.op("Reshape", [turned, shape], type=match.node("turned").output.type)
        result = patch.op("Reshape", [apart, match["shape"]], dict(match.root.attributes), type=match.output.type)
        patch.replace(match.output, result)
        patch.remove(match.root, match.node("turned"), match.node("split"))
        return patch


def merged_axis(wide: Sizes, narrow: Sizes) -> int | None:
    """Return the axis that a Reshape merged with the next, where that is known to be all it did with five axes.

    Axes of one element are left to those who lift and squeeze them.
    """
    if len(wide) != _AXES or len(narrow) != _AXES - 1 or None in wide or None in narrow or 1 in wide:
        return None
    return next((axis for axis in range(len(narrow)) if _merged(wide, axis) == tuple(narrow)), None)


def _merged(wide: Sizes, axis: int) -> Sizes | None:
    first, second = wide[axis], wide[axis + 1]
    if first is None or second is None:
        return None
    return (*wide[:axis], first * second, *wide[axis + 2 :])


def numbers_of(wanted: Sizes, kept: Sizes) -> tuple[int, ...] | None:
    """Return the numbers of a Reshape: a size that stays in its place may be open, and one other."""
    numbers = []
    for place, size in enumerate(wanted):
        stays = place < len(kept) and kept[place] == size
        numbers.append(size if isinstance(size, int) else 0 if stays else -1)
    return tuple(numbers) if numbers.count(-1) <= 1 else None


JOINED_AXES = RulePass("JoinedAxes", [MergeBeforeTranspose(), SplitBehindTranspose()], Level.EXTENDED)
