"""Quantized tensors: to and from float32, and products of them."""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin import GraphView
from ort_core.plugin.claims import held_constant, is_static
from ort_core.plugin.ir import DataType, Node
from ort_ep_openvino.lowering.rule import BYTES, FLOATS, SHORTS, Rule

_ACCUMULATED = BYTES | SHORTS | {DataType.INT32}
_SCALES = dict.fromkeys((1, 4, 6), FLOATS)


def _given_scale(view: GraphView, node: Node) -> str | None:
    scale = node.input(1)
    if scale is not None and scale.rank and not is_static(scale):
        return "OpenVINO takes scales of an axis whose number is known before a run"
    if scale is None or scale.producer is None or held_constant(view, scale) is not None:
        return None
    return "OpenVINO multiplies by the reciprocal of a computed scale, and rounds some values to the neighbor"


QUANTIZATION: Mapping[str, Rule] = {
    "QuantizeLinear": Rule(BYTES, ports={0: FLOATS, 1: FLOATS}, conditions=(_given_scale,)),
    "DequantizeLinear": Rule(_ACCUMULATED, ports={1: FLOATS}, results={0: FLOATS}),
    "QLinearMatMul": Rule(BYTES, ports=_SCALES),
    "QLinearConv": Rule(BYTES, ports={**_SCALES, 8: frozenset({DataType.INT32})}),
}
"""Rules by operator."""
