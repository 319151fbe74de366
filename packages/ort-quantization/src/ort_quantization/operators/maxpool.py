"""MaxPool: the classes of onnxruntime's module of this name."""

from __future__ import annotations

from ort_quantization.operators import boundaries, movement
from ort_quantization.operators.direct_q8 import Direct8BitOp, QDQDirect8BitOp


class QMaxPool(Direct8BitOp):
    """Lets MaxPool read quantized numbers."""

    writer = movement.write_max_pool


class QDQMaxPool(QDQDirect8BitOp):
    """Marks the values around MaxPool."""

    marker = boundaries.mark_max_pool
