"""Operators that only move numbers: the classes of onnxruntime's module of this name."""

from __future__ import annotations

from ort_quantization.operators import boundaries, movement
from ort_quantization.operators.built_in import MarkedOperator, WrittenOperator


class Direct8BitOp(WrittenOperator):
    """Lets an operator that moves numbers read quantized ones."""

    writer = movement.write_direct


class QDQDirect8BitOp(MarkedOperator):
    """Gives a result the range of what is moved."""

    marker = boundaries.mark_direct
