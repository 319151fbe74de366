"""AveragePool: the classes of onnxruntime's module of this name."""

from __future__ import annotations

from ort_quantization.operators import linear
from ort_quantization.operators.built_in import WrittenOperator


class QLinearPool(WrittenOperator):
    """Writes QLinearAveragePool."""

    writer = linear.write_unary
