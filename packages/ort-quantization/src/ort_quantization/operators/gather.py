"""Gather: the classes of onnxruntime's module of this name."""

from __future__ import annotations

from ort_quantization.operators import boundaries, movement
from ort_quantization.operators.built_in import MarkedOperator, WrittenOperator


class GatherQuant(WrittenOperator):
    """Lets Gather read quantized numbers."""

    choice = movement.is_chosen_gather
    writer = movement.write_gather


class QDQGather(MarkedOperator):
    """Marks the values around Gather and GatherElements."""

    marker = boundaries.mark_gather
