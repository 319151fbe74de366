"""Relu, Clip, Sigmoid and LeakyRelu: the classes of onnxruntime's module of this name."""

from __future__ import annotations

from ort_quantization.operators import boundaries, linear
from ort_quantization.operators.built_in import MarkedOperator, WrittenOperator


class QLinearActivation(WrittenOperator):
    """Writes Relu and Clip away, or QLinearSigmoid and QLinearLeakyRelu."""

    writer = linear.write_activation


class QDQRemovableActivation(MarkedOperator):
    """Marks the values around Relu and Clip, or removes the node."""

    marker = boundaries.mark_removable
