"""Quantized tensors: to and from float32, and products of them."""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin import GraphView
from ort_core.plugin.claims import dtype_of, held_constant
from ort_core.plugin.ir import DataType, Node
from ort_ep_openvino.lowering.rule import BYTES, FLOATS, SHORTS, Rule

ROUNDS = 11  # the opset from which on there is Round, and bounds of Clip are inputs
_ACCUMULATED = BYTES | SHORTS | {DataType.INT32}
_FLOAT = frozenset({DataType.FLOAT})
_SCALES = dict.fromkeys((1, 4, 6), FLOATS)
_NORMALIZED = frozenset({"LayerNormalization", "MeanVarianceNormalization"})
_JOINED = frozenset({"Identity", "Neg", "Mul", "Div", "Add", "Sub"})  # with a normalization and what quantizes it
_MOST_JOINED = 4
_SMALL_POINT = 255


def _given_scale(view: GraphView, node: Node) -> str | None:
    """Scales and zero points that are computed become a quotient that is rounded (``legalization``)."""
    scale, point = node.input(1), node.input(2)
    if all(value is None or held_constant(view, value) is not None for value in (scale, point)):
        return None
    if view.opset(node) < ROUNDS:
        return f"before opset {ROUNDS} there is nothing that rounds a quotient by a scale that is not a constant"
    return None


def _of_no_scaled_matrix(view: GraphView, node: Node) -> str | None:
    """OpenVINO makes one kernel of a matrix that is scaled by column and quantized, which takes scales of others."""
    value = node.input(0)
    if value is None or (value.rank is not None and value.rank != 2):
        return None
    reached = [value]
    for _ in range(_MOST_JOINED):
        producers = [each.producer for each in reached if each.producer is not None]
        if any(each.op_type in _NORMALIZED or _scales_by_column(view, each) for each in producers):
            return "OpenVINO takes scales of other columns where a matrix is scaled and then quantized"
        reached = [found for each in producers if each.op_type in _JOINED for found in each.present_inputs()]
    return None


def _scales_by_column(view: GraphView, node: Node) -> bool:
    if node.op_type not in ("Mul", "Div"):
        return False
    known = (held_constant(view, value) for value in node.present_inputs())
    return any(constant is not None and constant.size > 1 for constant in known)


def _near_zero_point(view: GraphView, node: Node) -> str | None:
    """OpenVINO takes the scaled zero point from the scaled number, which loses digits where both are large."""
    value, point = node.input(0), node.input(2)
    if value is None or point is None or dtype_of(value) not in SHORTS:
        return None
    known = held_constant(view, point)
    if known is not None and (abs(known.array().astype(int)) <= _SMALL_POINT).all():
        return None
    return f"OpenVINO multiplies before it takes {point.name!r} off, and loses digits of 16-bit numbers"


def _one_scale_for_all(view: GraphView, node: Node) -> str | None:
    if node.int_attribute("group", 1) != 1:
        return "OpenVINO sums a grouped QLinearConv in float32, and rounds some values to the neighbor"
    for index in (4, 5):
        value = node.input(index)
        if value is not None and value.shape != () and value.shape != (1,):
            return f"OpenVINO is wrong for QLinearConv with {value.name!r} for each channel"
    return None


QUANTIZATION: Mapping[str, Rule] = {
    "QuantizeLinear": Rule(BYTES, ports={0: FLOATS, 1: FLOATS}, conditions=(_given_scale, _of_no_scaled_matrix)),
    "DequantizeLinear": Rule(_ACCUMULATED, ports={1: FLOATS}, results={0: FLOATS}, conditions=(_near_zero_point,)),
    "DynamicQuantizeLinear": Rule(BYTES, ports={0: _FLOAT}, results={1: _FLOAT}),
    "QLinearMatMul": Rule(BYTES, ports=_SCALES),
    "QLinearConv": Rule(BYTES, ports={**_SCALES, 8: frozenset({DataType.INT32})}, conditions=(_one_scale_for_all,)),
}
"""Rules by operator."""
