"""Normalizations: the classes of onnxruntime's module of this name."""

from __future__ import annotations

from ort_quantization.operators import boundaries
from ort_quantization.operators.built_in import MarkedOperator


class QDQNormalization(MarkedOperator):
    """Marks the values around normalizations."""

    marker = boundaries.mark_normalization
