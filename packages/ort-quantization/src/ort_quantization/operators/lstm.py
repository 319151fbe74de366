"""LSTM: the classes of onnxruntime's module of this name."""

from __future__ import annotations

from ort_quantization.operators import contributed, integer_products
from ort_quantization.operators.built_in import WrittenOperator


class LSTMQuant(WrittenOperator):
    """Writes DynamicQuantizeLSTM."""

    choice = integer_products.is_chosen_at_run_time
    writer = contributed.write_lstm
