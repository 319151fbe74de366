"""BatchNormalization in inference mode: a factor and a shift for each channel, fused as any elementwise operator is.

    y = x * f + (B - mean * f)      f = scale / sqrt(variance + epsilon)

``f`` and the shift are computed once, in float64.
"""

from __future__ import annotations

import numpy as np

from ort_core.cpu.lowering.dequantized_constants import parameter_of
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, PendingAnchor, PendingElementwise
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View
from ort_core.plugin.ir import DataType, Node, Value
from ort_core.plugin.loops import Scalar


def batch_normalization(lowering: Lowering, node: Node) -> None:
    """Describe the result as an expression over its operand and two constants."""
    value = node.input(0)
    dtype, shape = tensor_type(node.output)
    if value is None or dtype not in (DataType.FLOAT, DataType.DOUBLE) or len(shape) < 2:
        raise NotLowered("only float32 and float64 of rank 2 and more are generated")
    if node.int_attribute("training_mode", 0) or any(output is not None for output in node.outputs[1:]):
        raise NotLowered("the mode of training is not generated")
    if lowering.opset_of(node) < 9 and not (node.int_attribute("spatial", 1) and lowering.opset_of(node) >= 7):
        raise NotLowered("statistics for each element, and the forms before opset 7, are not generated")
    factor, shift = _channels(lowering, node, dtype, len(shape))
    state, x = _operand(lowering, node, value, factor, shift)
    if state.anchor is None:  # there may be as many channels as a run tells, and must be as many as these
        factor, shift = (lowering.operands.spread(each, shape) for each in (factor, shift))
    expression = x * state.add(factor) + state.add(shift)
    anchor = state.anchor
    if anchor is not None:
        operators = (*anchor.operators, node)
        lowering.set(node.output, PendingAnchor(anchor.anchor, expression, tuple(state.inputs), shape, operators))
    else:
        lowering.set(node.output, PendingElementwise(expression, tuple(state.inputs), shape, (node,)))


def _channels(lowering: Lowering, node: Node, dtype: DataType, rank: int) -> tuple[View, View]:
    """Return the factor and the shift of each channel, shaped to broadcast over the result."""
    parameters = [parameter_of(lowering, node.input(i)) for i in range(1, 5)]
    scale, offset, mean, variance = (None if p is None else p.astype(np.float64) for p in parameters)
    if scale is None or offset is None or mean is None or variance is None:
        raise NotLowered("scale, offset, mean and variance are not all constant")
    factor = scale / np.sqrt(variance + node.float_attribute("epsilon", 1e-5))
    constants = (factor, offset - mean * factor)
    along = (-1,) + (1,) * (rank - 2)
    views = [lowering.constant_view(c.astype(dtype.numpy).reshape(along), dtype) for c in constants]
    return views[0], views[1]


def _operand(lowering: Lowering, node: Node, value: Value, *others: View) -> tuple[FusionState, Scalar]:
    """Return how the expression reads ``value``: as the end of its anchor, where that can read the constants, too."""
    _, shape = tensor_type(node.output)
    known = lowering.pending(value)
    if isinstance(known, PendingAnchor) and not known.anchor.can_fuse(shape, [*known.inputs, *others]):
        state = FusionState()
        return state, state.add(lowering.view(value))
    state, (x,) = lowering.operands.fuse(node, [value], shape)
    return state, x
