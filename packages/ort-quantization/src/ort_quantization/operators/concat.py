"""Concat: the classes of onnxruntime's module of this name."""

from __future__ import annotations

from ort_quantization.operators import linear
from ort_quantization.operators.built_in import WrittenOperator


class QLinearConcat(WrittenOperator):
    """Writes QLinearConcat."""

    writer = linear.write_concat
