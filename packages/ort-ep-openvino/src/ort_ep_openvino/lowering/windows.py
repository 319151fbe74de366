"""Products, convolutions, pooling, resizing, and what else reads windows of its input."""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin import GraphView
from ort_core.plugin.ir import DataType, Node
from ort_ep_openvino.lowering.conditions import without_attributes
from ort_ep_openvino.lowering.rule import BYTES, FLOATS, INDICES, Rule

INT64 = frozenset({DataType.INT64})


def _text(node: Node, name: str, default: str) -> str:
    return node.string_attribute(name, default)


def _resize_is_right(view: GraphView, node: Node) -> str | None:
    if node.int_attribute("antialias", 0):
        return "OpenVINO's antialiasing is not ONNX's"
    if _text(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
        return "OpenVINO ignores keep_aspect_ratio_policy"
    if _text(node, "mode", "nearest") == "cubic" and node.int_attribute("exclude_outside", 0):
        return "OpenVINO ignores exclude_outside"
    if _text(node, "coordinate_transformation_mode", "half_pixel") == "align_corners":
        return "OpenVINO is wrong for align_corners with scales"
    return None


WINDOWS: Mapping[str, Rule] = {
    "MatMul": Rule(FLOATS),
    "Gemm": Rule(FLOATS, oldest=7),
    "Einsum": Rule(FLOATS),
    "Conv": Rule(FLOATS),
    "ConvTranspose": Rule(FLOATS),
    "AveragePool": Rule(FLOATS),
    "MaxPool": Rule(FLOATS, results={1: INT64}, conditions=(without_attributes(ceil_mode=0),)),
    "LpPool": Rule(FLOATS),
    "GlobalAveragePool": Rule(FLOATS),
    "GlobalMaxPool": Rule(FLOATS),
    "GlobalLpPool": Rule(FLOATS),
    "Resize": Rule(FLOATS, ports={3: INDICES}, conditions=(_resize_is_right,), oldest=11),
    "Upsample": Rule(FLOATS, oldest=9),
    "GridSample": Rule(FLOATS),
    "AffineGrid": Rule(FLOATS, ports={1: INDICES}),
    "RoiAlign": Rule(FLOATS, ports={2: INDICES}, conditions=(without_attributes(mode="avg"),)),
    "NonMaxSuppression": Rule(FLOATS, ports={2: INT64}, results={0: INT64}, oldest=10),
    "HannWindow": Rule(FLOATS, ports={0: INDICES}),
    "HammingWindow": Rule(FLOATS, ports={0: INDICES}),
    "BlackmanWindow": Rule(FLOATS, ports={0: INDICES}),
    "MatMulInteger": Rule(BYTES, results={0: INDICES}),
    "ConvInteger": Rule(BYTES, results={0: INDICES}),
}
"""Rules by operator."""
