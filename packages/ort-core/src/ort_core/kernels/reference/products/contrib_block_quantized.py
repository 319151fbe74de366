"""Weights quantized in blocks along one axis: MatMulNBits, MatMulBnb4, GatherBlockQuantized."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.bit_unpacking import unpack_bits
from ort_core.kernels.reference.arrays.widening import narrow, widen

# Code books of bitsandbytes: 16 values between -1 and 1 that a 4-bit code stands for.
FP4_VALUES = np.array(
    [0, 5.208333e-03, 0.6666667, 1, 0.3333333, 0.5, 0.1666667, 0.25]
    + [0, -5.208333e-03, -0.6666667, -1, -0.3333333, -0.5, -0.1666667, -0.25],
    np.float32,
)
NF4_VALUES = np.array(
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453]
    + [-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0]
    + [0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224]
    + [0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0],
    np.float32,
)


def once_per_weight(
    ctx: KernelContext | None,
    weights: tuple[np.ndarray | None, ...],
    build: Callable[[], np.ndarray],
    slot: str = "weights",
) -> np.ndarray:
    """Return ``build()``, remembered in the node's state for as long as the very same read-only arrays come in.

    A writable array may change between runs, so what is built from it is built anew. A node with several weights
    names a ``slot`` for each.
    """
    if ctx is None or any(array is not None and array.flags.writeable for array in weights):
        return build()
    held = ctx.state.get(slot)
    if held is None or any(known is not given for known, given in zip(held[0], weights, strict=True)):
        held = (weights, build())
        ctx.state[slot] = held
    result: np.ndarray = held[1]
    return result


def dequantize_blocks(
    packed: np.ndarray, scales: np.ndarray, zero_points: np.ndarray | None, bits: int, rows: int, width: int
) -> np.ndarray:
    """Return float32 (rows, width) weights from bytes (rows, blocks, bytes per block), one scale per block.

    ``zero_points`` is packed like the weights (uint8), one float per block, or ``None`` for the middle code.
    """
    blocks = scales.size // rows
    codes = unpack_bits(packed.reshape(rows, blocks, -1), bits).astype(np.float32)
    if zero_points is None:
        middle: np.ndarray | np.float32 = np.float32(1 << (bits - 1))
    elif zero_points.dtype == np.uint8:
        middle = unpack_bits(zero_points.reshape(rows, -1), bits)[:, :blocks, None].astype(np.float32)
    else:
        middle = widen(zero_points).reshape(rows, blocks, 1)
    weights = (codes - middle) * widen(scales).reshape(rows, blocks, 1)
    return weights.reshape(rows, -1)[:, :width]


def _dequantize_groups(
    packed: np.ndarray,
    scales: np.ndarray,
    zeros: np.ndarray | None,
    groups: np.ndarray,
    bits: int,
    rows: int,
    width: int,
) -> np.ndarray:
    """Like ``dequantize_blocks``, the block of each column given by ``groups`` (width,)."""
    blocks = scales.size // rows
    chosen = groups[:width].astype(np.int64)
    wrong = np.flatnonzero((chosen < 0) | (chosen >= blocks))
    if wrong.size:
        raise errors.InvalidArgument(
            f"group_index value {int(chosen[wrong[0]])} at index {int(wrong[0])} is out of range [0, {blocks})"
        )
    codes = unpack_bits(packed.reshape(rows, -1), bits)[:, :width].astype(np.float32)
    if zeros is None:
        middle = np.full((rows, blocks), 1 << (bits - 1), np.float32)
    elif zeros.dtype == np.uint8:
        middle = unpack_bits(zeros.reshape(rows, -1), bits)[:, :blocks].astype(np.float32)
    else:
        middle = widen(zeros).reshape(rows, blocks)
    return (codes - middle[:, chosen]) * widen(scales).reshape(rows, blocks)[:, chosen]


def _check_blocks(b: np.ndarray, scales: np.ndarray, n: int, k: int, bits: int, block_size: int) -> None:
    blocks = -(-k // block_size)
    nbytes = block_size * bits // 8
    if b.size != n * blocks * nbytes or (b.ndim == 3 and b.shape != (n, blocks, nbytes)):
        raise errors.InvalidArgument(
            f"MatMulNBits PrePack: B initializer shape {b.shape} does not match the expected ({n}, {blocks}, {nbytes})"
        )
    if scales.size != n * blocks:
        raise errors.InvalidArgument(
            f"MatMulNBits PrePack: scales initializer shape {scales.shape} does not match the expected ({n}, {blocks})"
        )


@kernel("MatMulNBits", domain="com.microsoft")
def matmul_n_bits(
    a: np.ndarray,
    b: np.ndarray,
    scales: np.ndarray,
    zero_points: np.ndarray | None = None,
    g_idx: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    accuracy_level: int = 0,
    bits: int = 4,
    weight_prepacked: int = 0,
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Y = A @ dequantized(B).T + bias. ``accuracy_level`` allows less precision than float32, which is not used."""
    _check_blocks(b, scales, N, K, bits, block_size)

    def build() -> np.ndarray:
        if g_idx is not None:
            return _dequantize_groups(b, scales, zero_points, g_idx, bits, N, K)
        return dequantize_blocks(b, scales, zero_points, bits, N, K)

    product = np.matmul(widen(a), once_per_weight(ctx, (b, scales, zero_points, g_idx), build).T)
    return narrow(product if bias is None else product + widen(bias), a.dtype)


@kernel("MatMulNBitsQLoRA", domain="com.microsoft")
def matmul_n_bits_with_adapter(
    x: np.ndarray,
    w: np.ndarray,
    scales: np.ndarray,
    lora_a: np.ndarray,
    lora_a_scales: np.ndarray,
    lora_b: np.ndarray,
    lora_b_scales: np.ndarray,
    *,
    K: int,
    N: int,
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int = 32,
    lora_bits: int = 8,
    lora_block_size: int = 32,
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Y = X @ W.T + (X @ A.T) @ B.T, all weights quantized in blocks; an empty B: the base product only."""

    def weights(
        packed: np.ndarray, factors: np.ndarray, rows: int, width: int, size: int, block: int, slot: str
    ) -> np.ndarray:
        _check_blocks(packed, factors, rows, width, size, block)
        build = lambda: dequantize_blocks(packed, factors, None, size, rows, width)  # noqa: E731  # of these arguments
        return once_per_weight(ctx, (packed, factors), build, slot)

    base = narrow(np.matmul(widen(x), weights(w, scales, N, K, bits, block_size, "base").T), x.dtype)
    if not lora_b.size:
        return base
    rank = len(lora_a_scales)
    down = np.zeros((*x.shape[:-1], rank), np.float32)
    if lora_a.size:
        down = np.matmul(widen(x), weights(lora_a, lora_a_scales, rank, K, lora_bits, lora_block_size, "down").T)
    up = weights(lora_b, lora_b_scales, N, rank, lora_bits, lora_block_size, "up")
    added = narrow(np.matmul(widen(narrow(down, x.dtype)), up.T), x.dtype)
    return narrow(widen(base) + widen(added), x.dtype)


@kernel("MatMulBnb4", domain="com.microsoft")
def matmul_bnb4(
    a: np.ndarray,
    b: np.ndarray,
    absmax: np.ndarray,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    training_mode: int = 0,
    transB: int = 1,
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Y = A @ W.T (A @ W without transB), W (N, K) of 4-bit codes, high half first, scaled by block over all of W."""
    count = N * K
    if b.size < (count + 1) // 2:
        raise errors.InvalidArgument(f"b_quant tensor size {b.size} is too small: expected {(count + 1) // 2} bytes")
    blocks = -(-count // block_size)
    if absmax.size < blocks:
        raise errors.InvalidArgument(f"absmax tensor size {absmax.size} is too small: expected {blocks}")

    def build() -> np.ndarray:
        flat = b.reshape(-1)
        codes = np.stack([flat >> 4, flat & 15], axis=-1).reshape(-1)[:count]
        values = (NF4_VALUES if quant_type == 1 else FP4_VALUES)[codes]
        return (values * np.repeat(widen(absmax).reshape(-1), block_size)[:count]).reshape(N, K)

    weights = once_per_weight(ctx, (b, absmax), build)
    return narrow(np.matmul(widen(a), weights.T if transB else weights), a.dtype)


@kernel("GatherBlockQuantized", domain="com.microsoft")
def gather_block_quantized(
    data: np.ndarray,
    indices: np.ndarray,
    scales: np.ndarray,
    zero_points: np.ndarray | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> np.ndarray:
    """Gather slices of block-quantized data and dequantize them; an index out of range gives a slice of zeros."""
    rank, packed = data.ndim, data.dtype == np.uint8
    gather, along = gather_axis % rank, quantize_axis % rank
    is_float = data.dtype.name.startswith("float")
    whole_axis = block_size == 0 and is_float
    if not whole_axis and (block_size < 16 or block_size & (block_size - 1)):
        raise errors.InvalidArgument(f"'block_size' must be a power of 2 and not less than 16, found {block_size}")
    if packed and gather != 0:
        raise errors.InvalidArgument(f"gather_axis must be 0 for uint8 data, found {gather_axis}")
    _check_gather_types(data, indices, scales, zero_points)
    length = data.shape[gather]
    wanted = indices.astype(np.int64)
    wanted = np.where(wanted < 0, wanted + length, wanted)
    inside = (wanted >= 0) & (wanted < length)
    rows = np.where(inside, wanted, 0)

    def take(array: np.ndarray) -> np.ndarray:
        if array.shape[gather] == 1 and length != 1:
            return np.take(array, np.zeros_like(rows), axis=gather)
        return np.take(array, rows, axis=gather)

    def unpacked(array: np.ndarray) -> np.ndarray:
        return unpack_bits(array, bits) if packed and bits < 8 else array

    values = unpacked(take(data)).astype(np.float32)
    axis = along if along < gather else along + indices.ndim - 1
    size = values.shape[axis]
    block = np.arange(size) // (block_size or max(size, 1))
    if zero_points is not None:
        values = values - np.take(unpacked(take(zero_points)).astype(np.float32), block, axis=axis)
    elif packed:
        values = values - np.float32(1 << (bits - 1))
    values = values * np.take(widen(take(scales)), block, axis=axis)
    kept = inside.reshape((1,) * gather + inside.shape + (1,) * (rank - gather - 1))
    return narrow(np.where(kept, values, np.float32(0)), scales.dtype)


def _check_gather_types(
    data: np.ndarray, indices: np.ndarray, scales: np.ndarray, zero_points: np.ndarray | None
) -> None:
    known = {"uint8", "int4", "uint4"}
    if data.dtype.name not in known and not data.dtype.name.startswith("float8") and data.dtype.name != "float4_e2m1fn":
        raise errors.InvalidArgument(f"GatherBlockQuantized: data of type {data.dtype} is not a quantized type")
    if indices.dtype.name not in ("int32", "int64"):
        raise errors.InvalidArgument(f"GatherBlockQuantized: indices of type {indices.dtype}, expected int32 or int64")
    # bfloat16 scales of integers have no meaning in onnxruntime's CPU kernel either.
    wide = ("float32", "float16") if data.dtype.name in known else ("float32", "float16", "bfloat16")
    if scales.dtype.name not in wide:
        raise errors.InvalidArgument(f"GatherBlockQuantized: scales of type {scales.dtype}, expected one of {wide}")
    if zero_points is not None and zero_points.dtype != data.dtype:
        raise errors.InvalidArgument(
            f"GatherBlockQuantized: zero_points of type {zero_points.dtype}, expected {data.dtype} as for data"
        )


@kernel("MatMulFpQ4", domain="com.microsoft")
def matmul_fp_q4(a: np.ndarray, b: np.ndarray, b_shape: np.ndarray, *, blk_quant_type: int = 1) -> np.ndarray:
    """Y = A @ W for W (K, N) in a blob: column by column, blocks of a float scale, a zero point, 4-bit codes.

    A byte holds a code in its low half and the code 16 places later in its high half.
    """
    length, zero_bytes = 32, 1 if blk_quant_type else 0
    height, width = (int(size) for size in b_shape)
    blocks = -(-height // length)
    nbytes = 4 + zero_bytes + length // 2
    if b.size != width * blocks * nbytes:
        raise errors.InvalidArgument(
            f"MatMulFpQ4: B has {b.size} bytes; {width} columns of {blocks} blocks need {width * blocks * nbytes}"
        )
    blob = b.reshape(width, blocks, nbytes)
    scales = np.ascontiguousarray(blob[..., :4]).view("<f4").astype(np.float32)
    zero = blob[..., 4:5].astype(np.float32) if zero_bytes else np.float32(8)
    packed = blob[..., 4 + zero_bytes :].reshape(width, blocks, -1, 16)
    codes = np.concatenate([packed & 15, packed >> 4], axis=-1).reshape(width, blocks, length).astype(np.float32)
    weights = ((codes - zero) * scales).reshape(width, -1)[:, :height]
    return narrow(np.matmul(widen(a), weights.T), a.dtype)
