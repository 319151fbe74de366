"""Pad: the classes of onnxruntime's module of this name."""

from __future__ import annotations

from ort_quantization.operators import boundaries, movement
from ort_quantization.operators.built_in import MarkedOperator, WrittenOperator


class QPad(WrittenOperator):
    """Lets Pad read quantized numbers."""

    writer = movement.write_pad


class QDQPad(MarkedOperator):
    """Marks the values around Pad."""

    marker = boundaries.mark_pad
