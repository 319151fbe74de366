"""LayerNormFusion: center, divide by the standard deviation, scale and shift, as one operator.

    mean = ReduceMean(x)   d = Sub(x, mean)   v = ReduceMean(Pow(d, 2))
    y = Add(Mul(Div(d, Sqrt(Add(v, epsilon))), scale), bias)            ->  y = LayerNormalization(x, scale, bias)

over trailing axes. The square may be ``Mul(d, d)``, the division a product with a reciprocal, the subtraction done
twice, the bias absent; x may be cast to float32 before and back behind (half-precision exports); or the scale and
shift may be applied to x itself (Keras): ``Add(Mul(x, g), Sub(bias, Mul(mean, g)))`` with ``g = scale / deviation``,
or with the mean negated. A mean over all but two axes may be a GlobalAveragePool; weights may have axes of one element.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.ir.values import Value
from ort_core.passes.fusions.operands import (
    FUSED_FLOATS,
    dim,
    dtype_of,
    first_refusal,
    fixed_dim,
    integers_of,
    is_one_element,
    is_vector_of,
    number_of,
    only_reader,
    same_dim,
)
from ort_core.rewrite.fuse import fuse
from ort_core.rewrite.matcher import Match, constant_of
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, ValuePattern, constant, is_scalar, one_of, op, var
from ort_core.rewrite.rule import RewriteRule

STANDARD_OPSET = 17
MAX_EPSILON = 0.1  # exporters use 1e-12 to 1e-3; something near 1 is another formula


@frozen
class Normalization:
    """What a normalization needs: the first of the trailing axes, epsilon, the element type it computes in."""

    axis: int
    epsilon: float
    stash: DataType


def mean_of(x: ValuePattern, name: str) -> ValuePattern:
    """Return the pattern of a mean that keeps the reduced axes; TensorFlow's converter has a pooling for it."""
    reduced = op(
        "ReduceMean", x, name=name, more_inputs=True, where=lambda node: node.int_attribute("keepdims", 1) == 1
    )
    return one_of(reduced, op("GlobalAveragePool", x, name=name))


def square_of(x: ValuePattern) -> ValuePattern:
    """Return the pattern of a square."""
    return one_of(op("Pow", x, is_scalar(2.0)), op("Mul", x, x))


def root_of(mean_square: ValuePattern) -> tuple[ValuePattern, ValuePattern]:
    """Return the patterns of the deviation and of its inverse."""
    padded = one_of(op("Add", mean_square, constant("epsilon", where=is_one_element)), mean_square)
    root = one_of(op("Sqrt", padded), op("Pow", padded, is_scalar(0.5)))
    inverse = one_of(op("Reciprocal", root), op("Div", is_scalar(1.0), root), op("Pow", padded, is_scalar(-0.5)))
    return root, inverse


def divided(x: ValuePattern, mean_square: ValuePattern) -> ValuePattern:
    """Return the pattern of ``x`` over the root of ``mean_square + epsilon``."""
    root, inverse = root_of(mean_square)
    return one_of(op("Div", x, root), op("Mul", x, inverse))


def maybe_cast(x: ValuePattern, name: str) -> ValuePattern:
    """Return the pattern of x, cast or not."""
    return one_of(op("Cast", x, name=name), x)


def reduced_axis(node: Node, rank: int | None) -> int | Rejection:
    """Return the first axis (negative) of a reduction over trailing axes."""
    if node.op_type == "GlobalAveragePool":
        return Rejection("the rank of the operand is not known", node) if rank is None else 2 - rank
    axes = node.ints_attribute("axes")
    if axes is None:
        axes = integers_of(node.input(1))
    if not axes:
        return Rejection("the axes of the mean are not known", node)
    if rank is None and any(axis >= 0 for axis in axes):
        return Rejection("the rank of the operand is not known", node)
    counted = sorted(axis if axis < 0 else axis - (rank or 0) for axis in axes)
    if counted != list(range(-len(counted), 0)):
        return Rejection(f"the mean is over axes {list(axes)}, not over the last ones", node)
    return counted[0]


def find_normalization(match: Match, means: tuple[str, ...], x: Value, y: Value) -> Normalization | Rejection:
    """Return the facts that layer norm and RMS norm share: axes, epsilon and types of ``x`` in and ``y`` out."""
    axes = {reduced_axis(match.node(name), x.rank) for name in means}
    refused = next((axis for axis in axes if isinstance(axis, Rejection)), None)
    if refused is not None:
        return refused
    if len(axes) != 1:
        return Rejection("the two means are over different axes", match.root)
    epsilon = number_of(match["epsilon"]) if "epsilon" in match else 0.0
    if epsilon is None or not 0 <= epsilon <= MAX_EPSILON:
        return Rejection(f"{epsilon} is not an epsilon", match.root)
    if None not in (x.rank, y.rank) and x.rank != y.rank:
        return Rejection("a constant of one element gives the result further axes", match.root)
    if dtype_of(x) not in FUSED_FLOATS or dtype_of(y) != dtype_of(x):
        return Rejection(
            f"the element types {dtype_of(x).text} in and {dtype_of(y).text} out are not fused", match.root
        )
    stash = dtype_of(match.node(means[0]).output)
    if stash not in (DataType.FLOAT, dtype_of(x)):
        return Rejection(f"the mean is computed in {stash.text}", match.root)
    axis = axes.pop()
    assert isinstance(axis, int)
    if any(fixed_dim(x, offset) == 0 for offset in range(axis, 0)):
        return Rejection("onnxruntime refuses to normalize rows of no elements", match.root)
    return Normalization(axis, epsilon, stash)


def refuse_weight(weight: Value | None, x: Value, axis: int, node: Node) -> Rejection | None:
    """Return a rejection unless ``weight`` has exactly the sizes of the trailing axes of ``x``.

    Without a weight those sizes must be numbers, as a scale of ones is made.
    """
    if weight is None:
        is_known = all(fixed_dim(x, offset) is not None for offset in range(axis, 0))
        return None if is_known else Rejection(f"the normalized sizes of {x.name!r} are not known", node)
    shape = weight.shape
    if shape is not None and -axis < len(shape) <= (x.rank or 0) and constant_of(weight) is not None:
        shape = shape[axis:] if all(size == 1 for size in shape[:axis]) else shape
    if shape is None or len(shape) != -axis:
        return Rejection(f"{weight.name!r} has not the rank of the normalized axes", node)
    for offset in range(axis, 0):
        if not same_dim(shape[offset], dim(x, offset)):
            return Rejection(
                f"axis {offset} of {weight.name!r} is not known to be as long as that of the operand", node
            )
    if dtype_of(weight) != dtype_of(x):
        return Rejection(f"{weight.name!r} has another element type than the operand", node)
    return None


class LayerNormFusion(RewriteRule[Normalization]):
    """Fuse to LayerNormalization, which onnxruntime also has in models of an opset before 17."""

    emits: ClassVar[tuple[tuple[str, str], ...]] = (("", "LayerNormalization"),)

    def __init__(self, *, is_standard: bool) -> None:
        self.is_standard = is_standard
        self.name = "LayerNormFusionL1" if is_standard else "LayerNormFusionL2"  # type: ignore[misc]  # two rules, one class

    def build_pattern(self) -> Pattern:
        """Return the forms with and without a bias, longest first, and Keras' form."""
        x = var("x")
        scale, bias = var("scale", where=_is_weight), var("bias", where=_is_weight)
        inner = one_of(op("Cast", x, name="cast_in"), x)
        mean = mean_of(inner, "mean")
        centered = op("Sub", inner, mean)
        again = one_of(centered, op("Sub", inner, mean))
        normal = maybe_cast(divided(centered, mean_of(square_of(again), "variance")), "cast_out")
        scaled = one_of(op("Mul", normal, scale), normal)
        root, inverse = root_of(mean_of(square_of(op("Sub", inner, mean)), "variance"))
        gain = one_of(op("Mul", inverse, scale), op("Div", scale, root))
        shift = one_of(op("Sub", bias, op("Mul", mean, gain)), op("Add", op("Mul", op("Neg", mean), gain), bias))
        folded = op("Add", op("Mul", inner, gain), shift)
        return one_of(op("Add", scaled, bias), maybe_cast(op("Add", scaled, bias), "cast_last"), scaled, folded)

    def check(self, match: Match) -> Normalization | Rejection:
        """Axes, epsilon, element types and the shapes of the weights must fit."""
        if self.is_standard and match.opset() < STANDARD_OPSET:
            return Rejection(f"opset {match.opset()} has no LayerNormalization, opset 17 has", match.root)
        x, bias = match["x"], match.get("bias")
        found = find_normalization(match, ("mean", "variance"), x, match.output)
        if isinstance(found, Rejection):
            return found
        refusal = first_refusal(
            refuse_weight(match.get("scale"), x, found.axis, match.root),
            None if bias is None else refuse_weight(bias, x, found.axis, match.root),
            refuse_unfinished(match, ("Mul", "Add") if "scale" not in match else ("Add",)) if bias is None else None,
        )
        return found if refusal is None else refusal

    def rewrite(self, match: Match, bindings: Normalization) -> GraphPatch:
        """Put one LayerNormalization there."""
        patch = GraphPatch(match.model, match.root)
        attributes: dict[str, object] = {
            "axis": bindings.axis,
            "epsilon": bindings.epsilon,
            "stash_type": int(DataType.FLOAT),
        }
        inputs = [match["x"], scale_or_ones(patch, match, bindings)]
        bias = without_ones(patch, match.get("bias"), bindings.axis)
        fuse(patch, match, "LayerNormalization", inputs if bias is None else [*inputs, bias], attributes, domain="")
        return patch


def _is_weight(value: Value) -> bool:
    return value.rank is not None and value.rank > 0 and value.producer is None


def refuse_unfinished(match: Match, op_types: tuple[str, ...]) -> Rejection | None:
    """Return a rejection when what reads the result is a scale or shift that belongs to the normalization."""
    reader = only_reader(match.output)
    if reader is None or reader.op_type not in op_types:
        return None
    other = next((v for v in reader.present_inputs() if v is not match.output), None)
    if other is None or other.producer is not None or not is_vector_of(other, dim(match.output, -1)):
        return None
    return Rejection(f"the {reader.op_type} behind belongs to it and is fused with it", match.root)


def without_ones(patch: GraphPatch, weight: Value | None, axis: int) -> Value | None:
    """Return a weight without the axes of one element in front of the normalized ones."""
    constant = constant_of(weight)
    if weight is None or constant is None or weight.rank == -axis:
        return weight
    return patch.constant(constant.array().reshape(constant.shape[axis:]), weight.name)


def scale_or_ones(patch: GraphPatch, match: Match, found: Normalization) -> Value:
    """Return the matched scale, or a new one of ones (passes remove a multiplication by ones before)."""
    scale = match.get("scale")
    scale = without_ones(patch, scale, found.axis)
    if scale is not None:
        return scale
    x = match["x"]
    sizes = [fixed_dim(x, offset) or 0 for offset in range(found.axis, 0)]
    return patch.constant(np.ones(sizes, dtype_of(x).numpy), f"{match.root.name}_ones")
