"""Reductions and normalizations over axes, and the losses that are made of them."""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin import GraphView
from ort_core.plugin.claims import is_static
from ort_core.plugin.ir import Node
from ort_ep_openvino.lowering.conditions import counted_axes, fits_float32, nonempty_data
from ort_ep_openvino.lowering.rule import BOOL, FLOATS, INDICES, Rule

_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceProd", "ReduceSumSquare",
)  # fmt: skip

_UNCHANGED_BY_ONE = frozenset({"ReduceLogSumExp", "ReduceProd", "ReduceSum"})


def _reduces(view: GraphView, node: Node) -> str | None:
    axes = node.input(1)
    is_some = axes is not None and 0 not in (axes.shape or (0,)) and is_static(axes)
    if not node.int_attribute("noop_with_empty_axes", 0) or is_some or node.op_type in _UNCHANGED_BY_ONE:
        return None
    return f"OpenVINO hands on what {node.op_type} without axes makes something of"


_SOFTMAX_OF_ONE_AXIS = 13  # before, it ran over all axes from one on


def _of_one_axis(view: GraphView, node: Node) -> str | None:
    rank, axis = node.output.rank or 0, node.int_attribute("axis", 1)
    if view.opset(node) >= _SOFTMAX_OF_ONE_AXIS or axis in (-1, rank - 1):
        return None
    return f"before opset {_SOFTMAX_OF_ONE_AXIS} {node.op_type} runs over several axes, in OpenVINO over one"


def _normalizes_as_onnx(view: GraphView, node: Node) -> str | None:
    bias, size = node.float_attribute("bias", 1.0), node.int_attribute("size", 1)
    if bias != int(bias):
        return f"OpenVINO cuts the bias {bias} of LRN down to an integer"
    return None if size % 2 else f"OpenVINO reads an even number of channels ({size}) from another one on"


REDUCTIONS: Mapping[str, Rule] = {
    **{name: Rule(FLOATS, ports={1: INDICES}, conditions=(counted_axes, _reduces)) for name in _REDUCTIONS},
    "ReduceSum": Rule(FLOATS | INDICES, ports={1: INDICES}, conditions=(counted_axes, _reduces, fits_float32)),
    **{
        name: Rule(FLOATS | BOOL, ports={1: INDICES}, conditions=(counted_axes,)) for name in ("ReduceMax", "ReduceMin")
    },
    "ReduceMean": Rule(FLOATS, ports={1: INDICES}, conditions=(counted_axes, nonempty_data)),
    "Softmax": Rule(FLOATS, conditions=(_of_one_axis,)),
    "LogSoftmax": Rule(FLOATS),
    "Hardmax": Rule(FLOATS, conditions=(_of_one_axis,)),
    "LpNormalization": Rule(FLOATS),
    "MeanVarianceNormalization": Rule(FLOATS),
    "BatchNormalization": Rule(FLOATS, oldest=7),
    "InstanceNormalization": Rule(FLOATS, oldest=6),
    "GroupNormalization": Rule(FLOATS),
    "LayerNormalization": Rule(FLOATS),
    "RMSNormalization": Rule(FLOATS),
    "LRN": Rule(FLOATS, conditions=(_normalizes_as_onnx,)),
    "NegativeLogLikelihoodLoss": Rule(FLOATS, ports={1: INDICES}),
    "SoftmaxCrossEntropyLoss": Rule(FLOATS, ports={1: INDICES}),
}
"""Rules by operator."""
