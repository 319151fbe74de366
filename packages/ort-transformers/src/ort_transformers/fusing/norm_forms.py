"""Means and mean squares of norms as exporters and repositories write them, in the form that fusions know.

    ReduceSum(x) / n                             ->  ReduceMean(x)                 over n elements
    Reshape(ReduceMean(x, keepdims=0), …, 1)     ->  ReduceMean(x, keepdims=1)
    ReduceMean(x * x) - ReduceMean(x) ^ 2        ->  ReduceMean((x - ReduceMean(x)) ^ 2)

The last is the same number, with less of it lost where the mean is large.
"""

from __future__ import annotations

import math

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.ir import Node, Value
from ort_core.plugin.passes import Level, RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, constant, is_scalar, one_of, op, var

_AXES_AS_INPUT = {"ReduceMean": 18, "ReduceSum": 13}  # since these opsets
_RELATIVE = 1e-6  # a reciprocal that was rounded to float32


class SumOverCount(RewriteRule[Match]):
    """Make a mean of a sum over the number of its elements."""

    name = "SumOverCount"

    def build_pattern(self) -> Pattern:
        """Return a sum that is divided by a number, or multiplied by one."""
        total = op("ReduceSum", var("x"), name="sum", more_inputs=True)
        divisor = constant("divisor", where=lambda each: each.size == 1 and each.dtype.is_float)
        factor = constant("factor", where=lambda each: each.size == 1 and each.dtype.is_float)
        return one_of(op("Div", total, divisor), op("Mul", total, factor))

    def check(self, match: Match) -> Match | Rejection:
        """The number must be that of the elements that were added."""
        node, x = match.node("sum"), match["x"]
        axes, shape = axes_of(node), x.shape
        if axes is None or not axes or shape is None or match.output.rank != node.output.rank:
            return Rejection("the axes of the sum are not known", match.root)
        sizes = [shape[axis] for axis in axes if -len(shape) <= axis < len(shape)]
        if len(sizes) != len(axes) or not all(isinstance(size, int) and size > 0 for size in sizes):
            return Rejection("it is not known how many elements are added", match.root)
        count = math.prod(size for size in sizes if isinstance(size, int))
        number = float(match.array("divisor").reshape(-1)[0]) if "divisor" in match else 0.0
        if "factor" in match:
            factor = float(match.array("factor").reshape(-1)[0])
            number = 1.0 / factor if factor else 0.0
        is_count = abs(number - count) <= _RELATIVE * count
        return match if is_count else Rejection(f"{number} is not the number of elements, {count}", match.root)

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Put the mean there."""
        patch = GraphPatch(match.model, match.root)
        node = match.node("sum")
        patch.replace(match.output, _reduced(patch, match, node, match["x"], node.int_attribute("keepdims", 1)))
        patch.remove(*match.nodes)
        return patch


class KeptMean(RewriteRule[Match]):
    """Keep the axes of a mean that are put back behind it."""

    name = "KeptMean"

    def build_pattern(self) -> Pattern:
        """Return a change of shape behind a mean or a sum."""
        kinds = ("ReduceMean", "ReduceSum")
        mean = op(
            kinds, var("x"), name="mean", more_inputs=True, where=lambda each: each.int_attribute("keepdims", 1) == 0
        )
        return one_of(op("Reshape", mean, var("shape")), op("Unsqueeze", mean, more_inputs=True))

    def check(self, match: Match) -> Match | Rejection:
        """The result must have the sizes that the mean has when it keeps its axes."""
        x, axes = match["x"], axes_of(match.node("mean"))
        if x.shape is None or None in x.shape or not axes:
            return Rejection("the sizes are not known", match.root)
        places = {axis % len(x.shape) for axis in axes}
        kept = tuple(1 if place in places else size for place, size in enumerate(x.shape))
        return match if match.output.shape == kept else Rejection("it is another shape", match.root)

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Put one there that keeps them."""
        patch = GraphPatch(match.model, match.root)
        node = match.node("mean")
        patch.replace(match.output, _reduced(patch, match, node, match["x"], 1, node.op_type))
        patch.remove(*match.nodes)
        return patch


class VarianceOfSquares(RewriteRule[Match]):
    """Take the mean before squares are added, in place of its square from theirs."""

    name = "VarianceOfSquares"

    def build_pattern(self) -> Pattern:
        """Return the mean of squares less the square of the mean."""
        x = var("x")
        mean = op("ReduceMean", x, name="mean", more_inputs=True, shared=True)
        square = one_of(op("Pow", x, is_scalar(2.0, relative=0.0)), op("Mul", x, x))
        squares = op("ReduceMean", square, name="squares", more_inputs=True)
        return op("Sub", squares, one_of(op("Pow", mean, is_scalar(2.0, relative=0.0)), op("Mul", mean, mean)))

    def check(self, match: Match) -> Match | Rejection:
        """Both means must be over the same axes and keep them."""
        nodes = [match.node(name) for name in ("mean", "squares")]
        rank = match["x"].rank
        axes = [axes_of(each) for each in nodes]
        if rank is None or None in axes or any(_counted(each, rank) != _counted(axes[0], rank) for each in axes):
            return Rejection("both means are not known to be over the same axes", match.root)
        if any(each.int_attribute("keepdims", 1) != 1 for each in nodes):
            return Rejection("a mean does not keep its axes", match.root)
        return match

    def rewrite(self, match: Match, bindings: Match) -> GraphPatch:
        """Put the mean of squared differences there."""
        patch = GraphPatch(match.model, match.root)
        x, mean = match["x"], match.node("mean").output
        centered = patch.op("Sub", [x, mean], type=x.type)
        squared = patch.op("Mul", [centered, centered], type=x.type)
        patch.replace(match.output, _reduced(patch, match, match.node("squares"), squared, 1))
        patch.remove(*match.nodes)
        return patch


def _reduced(patch: GraphPatch, match: Match, like: Node, x: Value, keeps: int, op_type: str = "ReduceMean") -> Value:
    """Return a reduction over the axes of another one, of which it keeps them or not."""
    axes = list(axes_of(like) or ())
    if match.opset() < _AXES_AS_INPUT[op_type]:
        return patch.op(op_type, [x], {"axes": axes, "keepdims": keeps}, type=match.output.type)
    given = like.input(1) or patch.constant(np.array(axes, np.int64), "axes")
    attributes = {name: each for name, each in like.attributes.items() if name != "axes"}
    return patch.op(op_type, [x, given], {**attributes, "keepdims": keeps}, type=match.output.type)


def _counted(axes: tuple[int, ...] | None, rank: int) -> list[int]:
    return sorted(axis % rank for axis in axes or ())


def axes_of(node: Node) -> tuple[int, ...] | None:
    """Return the axes of a reduction, ``None`` where they are not known."""
    axes = node.ints_attribute("axes")
    given = node.input(1)
    if axes is not None or given is None:
        return axes
    found = None if given.is_graph_input else given.constant
    return None if found is None else tuple(int(each) for each in found.array().reshape(-1))


NORM_FORMS = RulePass("NormForms", [KeptMean(), SumOverCount(), VarianceOfSquares()], Level.EXTENDED)
