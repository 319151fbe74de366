"""Where: the classes of onnxruntime's module of this name."""

from __future__ import annotations

from ort_quantization.operators import boundaries, contributed, linear
from ort_quantization.operators.built_in import MarkedOperator, WrittenOperator


class QLinearWhere(WrittenOperator):
    """Writes QLinearWhere."""

    choice = contributed.is_chosen
    writer = linear.write_where


class QDQWhere(MarkedOperator):
    """Marks the values around Where."""

    marker = boundaries.mark_where
