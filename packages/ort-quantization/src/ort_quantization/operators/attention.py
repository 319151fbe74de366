"""com.microsoft's Attention: the classes of onnxruntime's module of this name."""

from __future__ import annotations

from ort_quantization.operators import contributed
from ort_quantization.operators.built_in import WrittenOperator


class AttentionQuant(WrittenOperator):
    """Writes QAttention."""

    choice = contributed.is_chosen_at_run_time
    writer = contributed.write_attention
