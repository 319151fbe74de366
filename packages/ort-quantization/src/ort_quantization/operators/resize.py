"""Resize: the classes of onnxruntime's module of this name."""

from __future__ import annotations

from ort_quantization.operators import boundaries, movement
from ort_quantization.operators.direct_q8 import Direct8BitOp, QDQDirect8BitOp


class QResize(Direct8BitOp):
    """Lets Resize read quantized numbers."""

    writer = movement.write_resize


class QDQResize(QDQDirect8BitOp):
    """Marks the values around Resize."""

    marker = boundaries.mark_resize
