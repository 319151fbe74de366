"""Projections with quantized weights behind one normalized input, and weights of 8 and 4 bits in floating point."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.ir.types import DataType
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.bit_unpacking import unpack_bits
from ort_core.kernels.reference.arrays.gates import fast_gelu, gelu, silu
from ort_core.kernels.reference.arrays.widening import narrow, widen
from ort_core.kernels.reference.normalization.contrib_normalization import rms_norm
from ort_core.kernels.reference.products.contrib_block_quantized import dequantize_blocks, once_per_weight

Optional = np.ndarray | None
_GATES = {"silu": silu, "swish": silu, "gelu": gelu, "fastgelu": fast_gelu}


def _normalized(a: np.ndarray, skip: Optional, scale: Optional, epsilon: float) -> tuple[np.ndarray, np.ndarray | None]:
    """Return (input of the projections, sum of input and skip if there is one), the first rounded to A's type."""
    total = widen(a) if skip is None else widen(a) + widen(skip)
    result = total
    if scale is not None:
        result = widen(narrow(rms_norm(total, epsilon)[0] * widen(scale), a.dtype))
    return result, None if skip is None else narrow(total, a.dtype)


def _project(
    x: np.ndarray,
    weight: tuple[np.ndarray, np.ndarray, Optional],
    shape: tuple[int, int, int],
    dtype: np.dtype,
    ctx: KernelContext,
    slot: str,
) -> np.ndarray:
    """Return x @ W.T + bias rounded to ``dtype``; ``shape`` is (N, K, bits)."""
    packed, scales, bias = weight
    rows, width, bits = shape

    def build() -> np.ndarray:
        return dequantize_blocks(packed, scales, None, bits, rows, width)

    product = x @ once_per_weight(ctx, (packed, scales), build, slot).T
    return narrow(product if bias is None else product + widen(bias), dtype)


@kernel("MatMulNBitsMlp", domain="com.microsoft")
def matmul_n_bits_mlp(
    a: np.ndarray,
    skip: Optional,
    norm_scale: Optional,
    gate_b: np.ndarray,
    gate_scales: np.ndarray,
    gate_bias: Optional,
    up_b: np.ndarray,
    up_scales: np.ndarray,
    up_bias: Optional = None,
    *,
    K: int,
    N: int,
    activation: str,
    block_size: int,
    accuracy_level: int = 0,
    bits: int = 4,
    epsilon: float = 9.999999747378752e-06,
    ctx: KernelContext,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Y = activation(gate projection) * up projection of the (skipped and) normalized input."""
    if activation.lower() not in _GATES:
        raise errors.InvalidArgument(f"activation {activation!r}: expected one of {', '.join(_GATES)}")
    x, total = _normalized(a, skip, norm_scale, epsilon)
    gate = _project(x, (gate_b, gate_scales, gate_bias), (N, K, bits), a.dtype, ctx, "gate")
    up = _project(x, (up_b, up_scales, up_bias), (N, K, bits), a.dtype, ctx, "up")
    return narrow(_GATES[activation.lower()](widen(gate)) * widen(up), a.dtype), total


@kernel("MatMulNBitsQkv", domain="com.microsoft")
def matmul_n_bits_qkv(
    a: np.ndarray,
    skip: Optional,
    norm_scale: np.ndarray,
    q_b: np.ndarray,
    q_scales: np.ndarray,
    q_bias: Optional,
    k_b: np.ndarray,
    k_scales: np.ndarray,
    k_bias: Optional,
    v_b: np.ndarray,
    v_scales: np.ndarray,
    v_bias: Optional = None,
    *,
    K: int,
    Nkv: int,
    Nq: int,
    block_size: int,
    accuracy_level: int = 0,
    bits: int = 4,
    epsilon: float = 9.999999974752427e-07,
    ctx: KernelContext,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Queries, keys and values of the (skipped and) normalized input."""
    x, total = _normalized(a, skip, norm_scale, epsilon)
    return (
        _project(x, (q_b, q_scales, q_bias), (Nq, K, bits), a.dtype, ctx, "query"),
        _project(x, (k_b, k_scales, k_bias), (Nkv, K, bits), a.dtype, ctx, "key"),
        _project(x, (v_b, v_scales, v_bias), (Nkv, K, bits), a.dtype, ctx, "value"),
        total,
    )


def _block_scaled(values: np.ndarray, scales: np.ndarray, block_size: int) -> np.ndarray:
    """Return float32 values (N, K) times one scale per ``block_size`` columns."""
    return values.astype(np.float32) * np.repeat(scales.astype(np.float32), block_size, axis=1)[:, : values.shape[1]]


@kernel("MatMulBlockQuantizedFp8Weight", domain="com.microsoft")
def matmul_fp8_weight(
    a: np.ndarray,
    b: np.ndarray,
    b_scale: np.ndarray,
    a_scale: Optional = None,
    bias: Optional = None,
    *,
    block_size: int = 128,
) -> np.ndarray:
    """Y = A @ (fp8 weights times block scales).T + bias; A itself is rounded to fp8 when its scale is given."""
    x = widen(a)
    if a_scale is not None:
        factor = a_scale.reshape(()).astype(np.float32)
        # Values beyond the type's range saturate: its conversion would give NaN.
        x = np.clip(x / factor, -448, 448).astype(DataType.FLOAT8E4M3FN.numpy).astype(np.float32) * factor
    product = x @ _block_scaled(b, b_scale, block_size).T
    return narrow(product if bias is None else product + widen(bias), a.dtype)


@kernel("MatMulBlockQuantizedFp4Weight", domain="com.microsoft")
def matmul_fp4_weight(
    a: np.ndarray,
    b: np.ndarray,
    weight_scale: np.ndarray,
    weight_scale_2: np.ndarray,
    input_scale: Optional = None,
    bias: Optional = None,
    *,
    block_size: int = 16,
) -> np.ndarray:
    """Y = A @ (4-bit float weights times fp8 block scales and one global scale).T + bias."""
    magnitudes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    values = np.concatenate([magnitudes, -magnitudes])[unpack_bits(b.view(np.uint8), 4)]
    scales = weight_scale.view(DataType.FLOAT8E4M3FN.numpy).astype(np.float32)
    weights = _block_scaled(values, scales, block_size) * weight_scale_2.reshape(()).astype(np.float32)
    product = widen(a) @ weights.T
    return narrow(product if bias is None else product + widen(bias), a.dtype)
