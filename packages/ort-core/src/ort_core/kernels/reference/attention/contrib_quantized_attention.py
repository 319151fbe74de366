"""QAttention: Attention whose input and projection weights are 8-bit."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.widening import narrow, widen
from ort_core.kernels.reference.attention.attention_operands import check_widths, heads_of
from ort_core.kernels.reference.attention.contrib_attention import dense
from ort_core.kernels.reference.products.contrib_quantized_product import integer_product
from ort_core.ops.attention_forms import call_attention

Optional = np.ndarray | None


def _check_column_parameter(name: str, parameter: Optional, width: int) -> None:
    if parameter is None or (parameter.size == 1 and parameter.ndim <= 1):
        return
    if parameter.ndim != 1 or parameter.shape[0] != width:
        raise errors.InvalidArgument(
            f"Input '{name}' must be a scalar or a 1D tensor of size 3 * hidden_size ({width}); "
            f"found shape {parameter.shape}"
        )


@kernel("QAttention", domain="com.microsoft")
def quantized_attention(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    input_scale: np.ndarray,
    weight_scale: np.ndarray,
    mask_index: Optional = None,
    input_zero_point: Optional = None,
    weight_zero_point: Optional = None,
    past: Optional = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float | None = None,
    past_present_share_buffer: int = 0,
    scale: float | None = None,
    unidirectional: int = 0,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Project 8-bit input with 8-bit weights, scale to float, then attend."""
    if bias.ndim != 1 or bias.shape[0] % 3:
        raise errors.InvalidArgument(f"Input 'bias' dimension 0 must be a multiple of 3, found shape {bias.shape}")
    width = bias.shape[0]
    _check_column_parameter("weight_scale", weight_scale, width)
    _check_column_parameter("weight_zero_point", weight_zero_point, width)
    inputs = (x, weight, bias, input_scale, weight_scale, mask_index, input_zero_point, weight_zero_point, past)
    record = call_attention(
        "QAttention", "com.microsoft", inputs, num_heads=num_heads, do_rotary=do_rotary,
        mask_filter_value=mask_filter_value, past_present_share_buffer=past_present_share_buffer, scale=scale,
        unidirectional=unidirectional,
    )  # fmt: skip
    assert record.projection is not None, "it projects"
    check_widths(record.projection, width, num_heads)
    total = integer_product(x, weight, input_zero_point, weight_zero_point)
    projected = (total * (widen(input_scale).reshape(()) * widen(weight_scale).astype(np.float64))).astype(np.float32)
    found = dense(record, inputs, heads_of(record, inputs, projected + widen(bias)))
    return narrow(found.output, bias.dtype), found.present(bias.dtype)
