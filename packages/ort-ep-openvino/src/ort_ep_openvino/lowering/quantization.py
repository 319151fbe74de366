"""Quantized tensors: to and from float32, and products of them."""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin import GraphView
from ort_core.plugin.claims import held_constant
from ort_core.plugin.ir import DataType, Node
from ort_ep_openvino.lowering.rule import BYTES, FLOATS, SHORTS, Rule

ROUNDS = 11  # the opset from which on there is Round, and bounds of Clip are inputs
_ACCUMULATED = BYTES | SHORTS | {DataType.INT32}
_SCALES = dict.fromkeys((1, 4, 6), FLOATS)


def _given_scale(view: GraphView, node: Node) -> str | None:
    """A scale is a constant; a zero point that is none is added behind the rounding (``legalization``)."""
    scale, point = node.input(1), node.input(2)
    if all(value is None or held_constant(view, value) is not None for value in (scale, point)):
        return None
    if view.opset(node) < ROUNDS:
        return f"before opset {ROUNDS} there is nothing that rounds a quotient by a scale that is no constant"
    if scale is None or held_constant(view, scale) is not None:
        return None
    return "OpenVINO multiplies by the reciprocals of computed scales, and rounds some values to the neighbor"


def _one_scale_for_all(view: GraphView, node: Node) -> str | None:
    if node.int_attribute("group", 1) != 1:
        return "OpenVINO sums a grouped QLinearConv in float32, and rounds some values to the neighbor"
    for index in (4, 5):
        value = node.input(index)
        if value is not None and value.shape != () and value.shape != (1,):
            return f"OpenVINO is wrong for QLinearConv with {value.name!r} for each channel"
    return None


QUANTIZATION: Mapping[str, Rule] = {
    "QuantizeLinear": Rule(BYTES, ports={0: FLOATS, 1: FLOATS}, conditions=(_given_scale,)),
    "DequantizeLinear": Rule(_ACCUMULATED, ports={1: FLOATS}, results={0: FLOATS}),
    "QLinearMatMul": Rule(BYTES, ports=_SCALES),
    "QLinearConv": Rule(BYTES, ports={**_SCALES, 8: frozenset({DataType.INT32})}, conditions=(_one_scale_for_all,)),
}
"""Rules by operator."""
