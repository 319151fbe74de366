"""QAttention: Attention whose input and projection weights are 8-bit."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.contrib_attention import self_attention
from ort_core.kernels.reference.contrib_quantized_product import integer_product
from ort_core.kernels.reference.contrib_rotary import rotate_by_position
from ort_core.kernels.reference.head_attention import split_heads
from ort_core.kernels.reference.widening import narrow, widen, widen_optional

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
    total = integer_product(x, weight, input_zero_point, weight_zero_point)
    projected = (total * (widen(input_scale).reshape(()) * widen(weight_scale).astype(np.float64))).astype(np.float32)
    heads = [split_heads(part, num_heads) for part in np.split(projected + widen(bias), 3, axis=-1)]
    if do_rotary:
        positions = (0 if past is None else past.shape[3]) + np.arange(x.shape[1])
        heads[:2] = [rotate_by_position(part, positions) for part in heads[:2]]
    output, present = self_attention(
        (heads[0], heads[1], heads[2]),
        mask_index,
        widen_optional(past),
        None,
        None,
        scale=scale,
        mask_filter_value=mask_filter_value,
        unidirectional=unidirectional,
        shared=bool(past_present_share_buffer),
    )
    return narrow(output, bias.dtype), None if present is None else narrow(present, bias.dtype)
