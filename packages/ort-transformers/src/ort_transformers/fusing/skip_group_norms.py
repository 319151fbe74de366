"""Sums in front of group norms for GPUs, as one operator: SkipGroupNorm of com.microsoft.

    y = GroupNorm(Transpose(Add(x, skip)))   ->  y, s = SkipGroupNorm(Transpose(x), Transpose(skip))

The skip is as large as the images, or has one number for each image and channel. The sum is an output of the operator,
so it may have other readers. A bias that was added to one side while the channels were last becomes an input, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from ort_core.plugin import Rejection
from ort_core.plugin.ir import Dim, TensorType, Value
from ort_core.plugin.passes import Level, RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, op, optional, var
from ort_transformers.fusing.fixed_constants import fixed_constant

MICROSOFT = "com.microsoft"
TO_LAST, FROM_LAST = (0, 2, 3, 1), (0, 3, 1, 2)


@dataclass(frozen=True, slots=True)
class Sides:
    """What is normalized with which, and whether a bias can be taken out of either."""

    x: Value
    skip: Value
    biased: Value | None  # one of them
    bias: Value | None


class SkipGroupNorms(RewriteRule[Sides]):
    """Fuse an addition into the GroupNorm that reads it with the channels last."""

    name = "SkipGroupNorms"
    emits = ((MICROSOFT, "SkipGroupNorm"),)

    def build_pattern(self) -> Pattern:
        """Return a GroupNorm of a sum."""
        total = op("Add", var("left"), var("right"), name="sum", shared=True, commutative=False)
        turned = op("Transpose", total, attributes={"perm": lambda found: tuple(found or ()) == TO_LAST})
        return op("GroupNorm", turned, var("gamma"), optional(var("beta")), domain=MICROSOFT, name="norm")

    def check(self, match: Match) -> Sides | Rejection:
        """One side must have the sizes of the images, the other the same or one number for each channel."""
        left, right, images = match["left"], match["right"], match.node("sum").output.shape
        if images is None or len(images) != len(TO_LAST) or None in images:
            return Rejection("the sizes of the images are not known", match.root)
        small = (*images[:2], 1, 1)
        for x, skip in ((left, right), (right, left)):
            if x.shape == images and skip.shape in (images, small):
                biased = next((each for each in (x, skip) if _bias_of(each) is not None), None)
                return Sides(x, skip, biased, None if biased is None else _bias_of(biased))
        return Rejection("SkipGroupNorm adds images of one size, or one number for each image and channel", match.root)

    def rewrite(self, match: Match, bindings: Sides) -> GraphPatch:
        """Put one SkipGroupNorm there; the sum is its second output where it has other readers."""
        patch, norm, total = GraphPatch(match.model, match.root), match.node("norm"), match.node("sum").output
        x, skip = (
            _without_bias(patch, side) if side is bindings.biased else with_channels_last(patch, side)
            for side in (bindings.x, bindings.skip)
        )
        is_read = total.is_graph_output or total.use_count > 1
        kind = norm.output.type
        fused = patch.node(
            "SkipGroupNorm",
            [x, norm.input(1), norm.input(2), skip, *([] if bindings.bias is None else [bindings.bias])],
            dict(norm.attributes),
            outputs=(kind, kind) if is_read else (kind,),
            domain=MICROSOFT,
        )
        patch.replace(match.output, fused.outputs[0])  # type: ignore[arg-type]  # it was made here
        if is_read:
            patch.replace(total, patch.op("Transpose", [fused.outputs[1]], {"perm": FROM_LAST}, type=total.type))
        patch.remove(*match.nodes)
        return patch


def with_channels_last(patch: GraphPatch, images: Value) -> Value:
    """Return images with the channels last: what a Transpose made the images of, or a Transpose of them."""
    before = images.producer
    if before is not None and before.op_type == "Transpose" and before.ints_attribute("perm") == FROM_LAST:
        source = before.input(0)
        assert source is not None
        return source
    return patch.op("Transpose", [images], {"perm": TO_LAST}, type=turned_type(images, TO_LAST))


def turned_type(value: Value, order: tuple[int, ...]) -> TensorType | None:
    """Return the type that a Transpose gives a value."""
    if not isinstance(value.type, TensorType) or value.shape is None:
        return None
    return TensorType(value.type.dtype, tuple(value.shape[axis] for axis in order))


def vector_added(value: Value, width: Dim | None) -> tuple[Value, Value] | None:
    """Return the parts of a sum with a constant vector of a width, the vector last, where a value is one."""
    node = value.producer
    if node is None or node.op_type != "Add" or node.domain != "":
        return None
    for rest, vector in (node.inputs, tuple(reversed(node.inputs))):
        if rest is None or vector is None or fixed_constant(vector) is None:
            continue
        if vector.shape == (width,) and rest.shape == value.shape:
            return rest, vector
    return None


def _bias_of(images: Value) -> Value | None:
    """Return the vector that was added to the rows of channels that images were made of."""
    parts = _rows_of(images)
    return None if parts is None else parts[1]


def _rows_of(images: Value) -> tuple[Value, Value, Value] | None:
    """Return rows without a bias, the bias, and the shape of images, of ``Transpose(Reshape(Add(rows, bias), shape))``.

    Nothing else may read what is in between, or the addition stays and nothing is gained.
    """
    turned = images.producer
    if turned is None or turned.op_type != "Transpose" or turned.ints_attribute("perm") != FROM_LAST:
        return None
    last = turned.input(0)
    restored = None if last is None else last.producer
    if last is None or restored is None or restored.op_type != "Reshape" or not _is_private(last):
        return None
    rows, shape = restored.input(0), restored.input(1)
    if rows is None or shape is None or rows.shape is None or last.shape is None or not _is_private(rows):
        return None
    if not isinstance(rows.shape[-1], int) or rows.shape[-1] != last.shape[-1]:
        return None
    found = vector_added(rows, rows.shape[-1])
    return None if found is None else (*found, shape)


def _is_private(value: Value) -> bool:
    return value.use_count == 1 and not value.is_graph_output


def _without_bias(patch: GraphPatch, images: Value) -> Value:
    found = _rows_of(images)
    assert found is not None, "the check looked"
    rows, _, shape = found
    return patch.op("Reshape", [rows, shape], type=turned_type(images, TO_LAST))


SKIP_GROUP_NORMS = RulePass("SkipGroupNormFusion", [SkipGroupNorms()], Level.EXTENDED)
