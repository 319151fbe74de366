"""Conv and ConvTranspose: the classes of onnxruntime's module of this name."""

from __future__ import annotations

from ort_quantization.operators import boundaries, integer_products, linear
from ort_quantization.operators.built_in import MarkedOperator, WrittenOperator


class ConvInteger(WrittenOperator):
    """Writes ConvInteger."""

    choice = integer_products.is_chosen_at_run_time
    writer = integer_products.write_conv


class QLinearConv(WrittenOperator):
    """Writes QLinearConv."""

    writer = linear.write_conv


class QDQConv(MarkedOperator):
    """Marks the values around Conv and ConvTranspose."""

    marker = boundaries.mark_conv
