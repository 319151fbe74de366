"""Reductions and normalisations over axes, and the losses that are made of them."""

from __future__ import annotations

from collections.abc import Mapping

from ort_ep_openvino.lowering.conditions import counted_axes, nonempty_data
from ort_ep_openvino.lowering.rule import BOOL, FLOATS, INDICES, Rule

_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip

REDUCTIONS: Mapping[str, Rule] = {
    **{name: Rule(FLOATS, ports={1: INDICES}, conditions=(counted_axes,)) for name in _REDUCTIONS},
    **{
        name: Rule(FLOATS | BOOL, ports={1: INDICES}, conditions=(counted_axes,)) for name in ("ReduceMax", "ReduceMin")
    },
    "ReduceMean": Rule(FLOATS, ports={1: INDICES}, conditions=(counted_axes, nonempty_data)),
    "Softmax": Rule(FLOATS),
    "LogSoftmax": Rule(FLOATS),
    "Hardmax": Rule(FLOATS),
    "LpNormalization": Rule(FLOATS),
    "MeanVarianceNormalization": Rule(FLOATS),
    "BatchNormalization": Rule(FLOATS, oldest=7),
    "InstanceNormalization": Rule(FLOATS, oldest=6),
    "GroupNormalization": Rule(FLOATS),
    "LayerNormalization": Rule(FLOATS),
    "RMSNormalization": Rule(FLOATS),
    "LRN": Rule(FLOATS),
    "NegativeLogLikelihoodLoss": Rule(FLOATS, ports={1: INDICES}),
    "SoftmaxCrossEntropyLoss": Rule(FLOATS, ports={1: INDICES}),
}
"""Rules by operator."""
