"""Quantised tensors: to and from float32, and products of them."""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin.ir import DataType
from ort_ep_openvino.lowering.rule import BYTES, FLOATS, Rule

_ACCUMULATED = BYTES | {DataType.INT32}
_SCALES = dict.fromkeys((1, 4, 6), FLOATS)

QUANTIZATION: Mapping[str, Rule] = {
    "QuantizeLinear": Rule(BYTES, ports={0: FLOATS, 1: FLOATS}),
    "DequantizeLinear": Rule(_ACCUMULATED, ports={1: FLOATS}, results={0: FLOATS}),
    "QLinearMatMul": Rule(BYTES, ports=_SCALES),
    "QLinearConv": Rule(BYTES, ports={**_SCALES, 8: frozenset({DataType.INT32})}),
}
"""Rules by operator."""
