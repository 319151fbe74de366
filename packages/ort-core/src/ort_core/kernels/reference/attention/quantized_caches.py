"""Key/value caches stored as 8-bit or packed 4-bit integers with one scale per tensor or per channel."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.reference.arrays.bit_unpacking import unpack_bits
from ort_core.kernels.reference.arrays.widening import narrow, widen


def _scale_for(scale: np.ndarray | None, kind: str, heads: int) -> np.ndarray:
    if scale is None:
        raise errors.InvalidArgument(f"a cache quantized {kind} needs its scale input")
    if kind == "PER_TENSOR":
        return scale.reshape(())
    return scale.reshape(1, heads, 1, -1)


def read_cache(stored: np.ndarray, scale: np.ndarray | None, kind: str, bits: int) -> np.ndarray:
    """Return a cache (B, N, T, H) as float32."""
    if kind == "NONE":
        return widen(stored)
    levels = stored.astype(np.float32)
    if bits == 4:
        levels = unpack_bits(stored.view(np.uint8), 4).astype(np.float32) - np.float32(8)
    return levels * _scale_for(scale, kind, stored.shape[1])


def write_cache(values: np.ndarray, dtype: np.dtype, scale: np.ndarray | None, kind: str, bits: int) -> np.ndarray:
    """Return float values (B, N, T, H) as the cache stores them."""
    if kind == "NONE":
        return narrow(values, dtype)
    with np.errstate(divide="ignore", invalid="ignore"):
        levels = np.nan_to_num(np.rint(values / _scale_for(scale, kind, values.shape[1])))
    if bits == 4:
        codes = (np.clip(levels, -8, 7) + 8).astype(np.uint8)
        if codes.shape[-1] % 2:
            codes = np.concatenate([codes, np.full_like(codes[..., :1], 8)], axis=-1)
        return (codes[..., 0::2] | (codes[..., 1::2] << 4)).view(dtype)
    low, high = (-448, 448) if dtype.name.startswith("float8") else (-128, 127)
    return np.clip(levels if low == -128 else values / _scale_for(scale, kind, values.shape[1]), low, high).astype(
        dtype
    )
