"""Where OpenVINO resizes as ONNX says.

It leaves an axis alone whose size stays, also where its scale moves what is read (2 elements times 1.1 are 2), and its
``Upsample`` takes other neighbors unless each is repeated whole times.
"""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin import GraphView
from ort_core.plugin.claims import held_constant
from ort_core.plugin.ir import Node
from ort_core.plugin.ops import scaled_size
from ort_ep_openvino.lowering.rule import FLOATS, INDICES, Rule

_KEEPS_TWO = 1.5
"""From this scale on no axis of two or more elements keeps its size; a single element is read whatever the scale."""


def _scales(view: GraphView, node: Node, place: int) -> list[float] | None:
    value = node.input(place)
    constant = None if value is None else held_constant(view, value)
    return None if constant is None else constant.array().ravel().tolist()


def _keeps_a_scaled_axis(node: Node, scales: list[float]) -> bool:
    """Return whether an axis may have the same size and another scale."""
    x = node.input(0)
    shape = () if x is None or x.shape is None else x.shape
    named = node.ints_attribute("axes") or range(len(scales))
    for axis, scale in zip(named, scales, strict=True):
        size = shape[axis] if shape else None
        if isinstance(size, int):
            if size > 1 and scale != 1 and scaled_size(size, scale) == size:
                return True
        elif 1 < scale < _KEEPS_TWO:
            return True
    return False


def _resizes_as_onnx(view: GraphView, node: Node) -> str | None:
    if node.int_attribute("antialias", 0):
        return "OpenVINO's antialiasing is not ONNX's"
    if node.string_attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        return "OpenVINO ignores keep_aspect_ratio_policy"
    if node.string_attribute("mode", "nearest") == "cubic" and node.int_attribute("exclude_outside", 0):
        return "OpenVINO ignores exclude_outside"
    if node.string_attribute("coordinate_transformation_mode", "half_pixel") == "align_corners":
        return "OpenVINO is wrong for align_corners with scales"
    has_sizes = len(node.inputs) > 3 and node.input(3) is not None
    return None if has_sizes else _scaled_axes_change(view, node, 2)


def _scaled_axes_change(view: GraphView, node: Node, place: int) -> str | None:
    scales = _scales(view, node, place)
    if scales is None:
        return f"the scales of {node.op_type} are not constants: OpenVINO leaves axes alone that keep their size"
    if _keeps_a_scaled_axis(node, scales):
        return "OpenVINO leaves an axis alone that keeps its size, though it has another scale"
    return None


def _upsamples_as_onnx(view: GraphView, node: Node) -> str | None:
    reason = _scaled_axes_change(view, node, 1)
    if reason is not None or node.string_attribute("mode", "nearest") != "nearest":
        return reason
    scales = _scales(view, node, 1) or ()
    if all(float(scale).is_integer() for scale in scales):
        return None
    return "OpenVINO's Upsample takes other neighbors than ONNX's unless each is repeated whole times"


RESIZING: Mapping[str, Rule] = {
    "Resize": Rule(FLOATS, ports={3: INDICES}, conditions=(_resizes_as_onnx,), oldest=11),
    "Upsample": Rule(FLOATS, conditions=(_upsamples_as_onnx,), oldest=9),
}
"""Rules by operator."""
