"""GlobalAveragePool: the classes of onnxruntime's module of this name."""

from __future__ import annotations

from ort_quantization.operators import linear
from ort_quantization.operators.built_in import WrittenOperator


class QGlobalAveragePool(WrittenOperator):
    """Writes QLinearGlobalAveragePool."""

    writer = linear.write_global_pool
