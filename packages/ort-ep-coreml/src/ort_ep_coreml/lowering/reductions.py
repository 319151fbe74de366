"""Reductions, normalisations and what else goes along an axis."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_core.plugin.ir import Node
from ort_ep_coreml.lowering.asked import Asked, rank_of
from ort_ep_coreml.lowering.conditions import constant_inputs, only_attributes, ranks
from ort_ep_coreml.lowering.emission import EmissionState, axis_of
from ort_ep_coreml.lowering.rule import FLOATS, INTS, Lower, Rule
from ort_ep_coreml.mil import Operand


def reduced_axes(asked: Asked, node: Node) -> tuple[int, ...]:
    """Return the axes of a reduction, counted from the front; none where nothing is reduced."""
    rank = rank_of(node.input(0))
    given = asked.constant(node.input(1))
    axes = node.ints_attribute("axes") if given is None else tuple(int(each) for each in given.reshape(-1))
    if not axes:
        return () if node.int_attribute("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted(axis + rank if axis < 0 else axis for axis in axes))


def _reduce(kind: str) -> Lower:
    def lower(to: EmissionState, node: Node) -> Operand:
        axes = np.array(reduced_axes(to.asked, node), np.int32)
        keeps = bool(node.int_attribute("keepdims", 1))
        return to.emit(kind, x=to.operand(node.input(0)), axes=axes, keep_dims=keeps)

    return lower


def _reduces(asked: Asked, node: Node) -> str | None:
    if rank_of(node.input(0)) == 0:
        return "a scalar has no axis to reduce"
    return None if reduced_axes(asked, node) else "no axis is reduced: the operator does not reduce here"


def _softmax(to: EmissionState, node: Node) -> Operand:
    x, axis = to.operand(node.input(0)), _softmax_axis(to.asked, node)
    if node.op_type == "Softmax":
        return to.emit("softmax", x=x, axis=axis)
    total = to.emit("reduce_log_sum_exp", x=x, axes=np.array([axis], np.int32), keep_dims=True)
    return to.emit("sub", x=x, y=total)


def _softmax_axis(asked: Asked, node: Node) -> int:
    return axis_of(node, node.input(0), -1 if asked.opset(node) >= _SOFTMAX_OF_ONE_AXIS else 1)


def _over_one_axis(asked: Asked, node: Node) -> str | None:
    rank = rank_of(node.input(0))
    if rank == 0:
        return "a scalar has no axis"
    if asked.opset(node) >= _SOFTMAX_OF_ONE_AXIS or _softmax_axis(asked, node) == rank - 1:
        return None
    return f"{node.op_type} before opset {_SOFTMAX_OF_ONE_AXIS} runs over all axes from {_softmax_axis(asked, node)} on"


_SOFTMAX_OF_ONE_AXIS = 13


def _arg(kind: str) -> Lower:
    def lower(to: EmissionState, node: Node) -> Operand:
        keeps = bool(node.int_attribute("keepdims", 1))
        return to.emit(kind, x=to.operand(node.input(0)), axis=axis_of(node, node.input(0), 0), keep_dims=keeps)

    return lower


def _batch_norm(to: EmissionState, node: Node) -> Operand:
    x, gamma, beta, mean, variance = to.operands(node)
    epsilon = to.scalar(node.input(0), node.float_attribute("epsilon", 1e-5))
    return to.emit("batch_norm", x=x, mean=mean, variance=variance, gamma=gamma, beta=beta, epsilon=epsilon)


def _instance_norm(to: EmissionState, node: Node) -> Operand:
    x, gamma, beta = to.operands(node)
    epsilon = to.scalar(node.input(0), node.float_attribute("epsilon", 1e-5))
    return to.emit("instance_norm", x=x, gamma=gamma, beta=beta, epsilon=epsilon)


def _layer_norm(to: EmissionState, node: Node) -> Operand:
    x = node.input(0)
    axes = np.arange(axis_of(node, x, -1), rank_of(x), dtype=np.int32)
    epsilon = to.scalar(x, node.float_attribute("epsilon", 1e-5))
    found = to.emit("layer_norm", x=to.operand(x), axes=axes, epsilon=epsilon)
    found = to.emit("mul", x=found, y=to.operand(node.input(1)))
    return found if node.input(2) is None else to.emit("add", x=found, y=to.operand(node.input(2)))


def _rms_norm(to: EmissionState, node: Node) -> Operand:
    x = node.input(0)
    axes = np.arange(axis_of(node, x, -1), rank_of(x), dtype=np.int32)
    square = to.emit("mul", x=to.operand(x), y=to.operand(x))
    mean = to.emit("reduce_mean", x=square, axes=axes, keep_dims=True)
    shifted = to.emit("add", x=mean, y=to.scalar(x, node.float_attribute("epsilon", 1e-5)))
    root = to.emit("sqrt", x=shifted)
    return to.emit("mul", x=to.emit("real_div", x=to.operand(x), y=root), y=to.operand(node.input(1)))


def _cumulative(to: EmissionState, node: Node) -> Operand:
    axis = to.asked.constant(node.input(1))
    assert axis is not None, "constant_inputs was asked"
    place = int(axis.reshape(-1)[0])
    return to.emit(
        "cumsum",
        x=to.operand(node.input(0)),
        axis=place + rank_of(node.input(0)) if place < 0 else place,
        exclusive=bool(node.int_attribute("exclusive", 0)),
        reverse=bool(node.int_attribute("reverse", 0)),
    )


_REDUCTIONS = {
    "ReduceSum": "reduce_sum", "ReduceMean": "reduce_mean", "ReduceMax": "reduce_max", "ReduceMin": "reduce_min",
    "ReduceProd": "reduce_prod", "ReduceL1": "reduce_l1_norm", "ReduceL2": "reduce_l2_norm",
    "ReduceLogSum": "reduce_log_sum", "ReduceLogSumExp": "reduce_log_sum_exp",
    "ReduceSumSquare": "reduce_sum_square",
}  # fmt: skip
_EVALUATES = only_attributes(training_mode=0)

REDUCTIONS: Mapping[str, Rule] = {
    **{
        name: Rule(_reduce(kind), ports={1: INTS}, conditions=(constant_inputs(1), _reduces))
        for name, kind in _REDUCTIONS.items()
    },
    "ArgMax": Rule(_arg("reduce_argmax"), results={0: INTS}, conditions=(only_attributes(select_last_index=0),)),
    "ArgMin": Rule(_arg("reduce_argmin"), results={0: INTS}, conditions=(only_attributes(select_last_index=0),)),
    "Softmax": Rule(_softmax, conditions=(_over_one_axis,)),
    "LogSoftmax": Rule(_softmax, conditions=(_over_one_axis,)),
    "BatchNormalization": Rule(
        _batch_norm, conditions=(_EVALUATES, ranks(3, 5), constant_inputs(1, 2, 3, 4)), required=5, oldest=7
    ),
    "InstanceNormalization": Rule(
        _instance_norm, conditions=(ranks(3, 4), constant_inputs(1, 2)), required=3, oldest=6
    ),
    "LayerNormalization": Rule(_layer_norm, required=2),
    "RMSNormalization": Rule(_rms_norm, FLOATS, required=2),
    "CumSum": Rule(_cumulative, ports={1: INTS}, conditions=(constant_inputs(1),), required=2),
}
"""Rules by operator."""
