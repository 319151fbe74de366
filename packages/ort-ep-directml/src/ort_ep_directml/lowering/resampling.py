"""Resize and Upsample: nearest and linear, of up to four dimensions.

DirectML reads an output element at ``(output - output offset) / scale - input offset`` of the input. Each way of ONNX
to compute coordinates is a choice of scale and offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ort_core.plugin.ir import Node
from ort_core.plugin.ops import TIE, ResizedAxis, changed_axes, goes_by_scale, plan_resized_axes
from ort_ep_directml.lowering.attributes import from_front
from ort_ep_directml.lowering.emission import EmissionState
from ort_ep_directml.lowering.operand import Operand
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.lowering.rule import Rule
from ort_ep_directml.schema.enumerators import AxisDirection, InterpolationMode
from ort_ep_directml.schema.tensor_types import TENSOR_TYPES

_MAX_RANK = TENSOR_TYPES["RESAMPLE2"].ranks[1]
_NEAREST = {
    "floor": (-TIE, AxisDirection.DECREASING),
    "ceil": (TIE, AxisDirection.INCREASING),
    "round_prefer_floor": (0.5, AxisDirection.INCREASING),  # half a step back, then up
    "round_prefer_ceil": (-0.5, AxisDirection.DECREASING),
}
"""What is added to the input offset, and which way coordinates are rounded then: exact integers stay what they are."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension: its sizes, and how coordinates are computed."""

    size: int
    made: int
    scale: float
    input_offset: float = 0.5
    output_offset: float = -0.5

    @property
    def is_kept(self) -> bool:
        """Whether elements stay where they are."""
        return self.size == self.made and self.scale == 1.0


def _axis(resized: ResizedAxis, way: str, *, by_scale: bool) -> Axis:
    size, made, scale = resized.size, resized.made, resized.scale
    axis = Axis(size, made, scale)
    if axis.is_kept or way == "half_pixel":
        return axis
    if way == "half_pixel_symmetric":
        shift = size / 2 * (1 - made / (scale * size))
        return replace(axis, input_offset=0.5 - shift)
    if way == "pytorch_half_pixel":
        return axis if made > 1 else replace(axis, input_offset=0.0, output_offset=0.0)
    if way == "align_corners":
        length = scale * size if by_scale else made
        steps = (length - 1) / (size - 1) if length != 1 and size > 1 else made / size
        return Axis(size, made, steps, 0.0, 0.0)
    if way == "asymmetric":
        return replace(axis, input_offset=0.0, output_offset=0.0)
    if way == "tf_half_pixel_for_nn":
        return replace(axis, input_offset=0.0)
    raise Refused(f"coordinates by {way} are left to others")


def _resized_axes(to: EmissionState, node: Node, sizes: Sequence[int], made: Sequence[int]) -> list[ResizedAxis]:
    """Return each dimension with its scale, as the node gives it or as its sizes tell.

    Raises:
        Refused: scales, or sizes that keep an aspect ratio, are not constants.
    """
    rank = len(sizes)
    axes = [from_front(axis, rank) for axis in node.ints_attribute("axes") or range(rank)]
    attribute = node.attribute("scales")  # Upsample before opset 9
    place = 1 if node.op_type == "Upsample" or to.context.opset(node) < 11 else 2
    given = to.context.constant(node.input(place))
    scales = attribute if isinstance(attribute, tuple) else None if given is None or not given.size else given.tolist()
    if scales is not None:
        return plan_resized_axes(sizes, axes, [float(scale) for scale in scales], None)
    if len(node.inputs) < 4 or node.input(3) is None:
        raise Refused("the scales are not constants, and DirectML has them in the operator")
    policy = node.string_attribute("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return plan_resized_axes(sizes, axes, None, [made[axis] for axis in axes])
    wanted = to.context.constant(node.input(3))
    if wanted is None:
        raise Refused("sizes that keep an aspect ratio are not constants")
    return plan_resized_axes(sizes, axes, None, [int(size) for size in wanted.ravel()], policy)


def _old_rounding(axes: Sequence[ResizedAxis]) -> str:
    """Return how nodes round that are older than ``nearest_mode``: down, but up along axes that shrink.

    Raises:
        Refused: one axis shrinks and another does not; DirectML rounds in one direction.
    """
    changed = [axes[index] for index in changed_axes(axes)]
    if len({axis.scale < 1 for axis in changed}) > 1:
        raise Refused("an old form rounds up along axes that shrink, and down along others; DirectML rounds one way")
    return "ceil" if changed and changed[0].scale < 1 else "floor"


def _mode(node: Node) -> InterpolationMode:
    mode = node.string_attribute("mode", "nearest")
    if mode not in ("nearest", "linear"):
        raise Refused(f"interpolation by {mode} is left to others; DirectML has nearest and linear")
    if node.int_attribute("antialias", 0):
        raise Refused("a Resize that smooths what it shrinks is left to others")
    return InterpolationMode.NEAREST_NEIGHBOR if mode == "nearest" else InterpolationMode.LINEAR


def _merged(axes: Sequence[Axis]) -> list[Axis]:
    """Return the dimensions with leading ones that are kept as one, where there are too many."""
    found = list(axes)
    while len(found) > _MAX_RANK and found[0].is_kept and found[1].is_kept:
        size = found[0].size * found[1].size
        found[:2] = [Axis(size, size, 1.0)]
    return found


def _resize(to: EmissionState, node: Node) -> Operand:
    x, sizes = to.operand(node.input(0)), to.sizes(node.output)
    mode = _mode(node)
    is_old = node.op_type == "Upsample" or to.context.opset(node) < 11
    way = "asymmetric" if is_old else node.string_attribute("coordinate_transformation_mode", "half_pixel")
    resized = _resized_axes(to, node, x.sizes, sizes)
    if not changed_axes(resized):
        return x
    is_nearest = mode is InterpolationMode.NEAREST_NEIGHBOR
    if is_nearest and is_old:
        rounding = _old_rounding(resized)
    else:
        rounding = node.string_attribute("nearest_mode", "round_prefer_floor")
    kind, opset = node.string_attribute("mode", "nearest"), to.context.opset(node)
    axes = _merged([_axis(each, way, by_scale=goes_by_scale(kind, each.scale, opset)) for each in resized])
    shift, halves = _NEAREST[rounding] if is_nearest else (0.0, AxisDirection.DECREASING)
    fields: dict[str, object] = {
        "InterpolationMode": int(mode),
        "RoundingDirection": int(halves),
        "Scales": tuple(axis.scale for axis in axes),
        "InputPixelOffsets": tuple(axis.input_offset + (0.0 if axis.is_kept else shift) for axis in axes),
        "OutputPixelOffsets": tuple(axis.output_offset for axis in axes),
    }
    flat = to.reshape(x, [axis.size for axis in axes])
    return to.reshape(to.emit("RESAMPLE2", (x.dtype, [axis.made for axis in axes]), Input=flat, **fields), sizes)


RESAMPLING: Mapping[str, Rule] = {"Resize": Rule(_resize, oldest=10), "Upsample": Rule(_resize, oldest=7)}
"""Rules by operator."""
