"""Split: the classes of onnxruntime's module of this name."""

from __future__ import annotations

from ort_quantization.operators import boundaries, movement
from ort_quantization.operators.built_in import MarkedOperator, WrittenOperator


class QSplit(WrittenOperator):
    """Lets Split read quantized numbers."""

    writer = movement.write_split


class QDQSplit(MarkedOperator):
    """Marks the values around Split."""

    marker = boundaries.mark_split
