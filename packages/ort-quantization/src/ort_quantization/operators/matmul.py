"""MatMul: the classes of onnxruntime's module of this name."""

from __future__ import annotations

from ort_quantization.operators import boundaries, integer_products, linear
from ort_quantization.operators.built_in import MarkedOperator, WrittenOperator


class QOpMatMul(WrittenOperator):
    """What the products have in common."""

    choice = integer_products.is_chosen_product


class MatMulInteger(QOpMatMul):
    """Writes MatMulInteger."""

    choice = integer_products.is_chosen_run_time_product
    writer = integer_products.write_matmul


class QLinearMatMul(QOpMatMul):
    """Writes QLinearMatMul."""

    writer = linear.write_matmul


class QDQMatMul(MarkedOperator):
    """Marks the values around MatMul."""

    marker = boundaries.mark_product
