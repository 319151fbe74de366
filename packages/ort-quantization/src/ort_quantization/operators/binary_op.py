"""Add and Mul: the classes of onnxruntime's module of this name."""

from __future__ import annotations

from ort_quantization.operators import linear
from ort_quantization.operators.built_in import WrittenOperator


class QLinearBinaryOp(WrittenOperator):
    """Writes QLinearAdd and QLinearMul."""

    writer = linear.write_binary
