"""Packing of 2-, 4- and 6-bit elements: one per byte in memory, several per byte in files and for pointers."""

from __future__ import annotations

import numpy as np

from ort_core.ir.types import DataType


def pack_bits(elements: np.ndarray, bits: int) -> np.ndarray:
    """Pack uint8 elements, of which the low ``bits`` count, into bytes from the low bits up."""
    if 8 % bits:  # 6 bits: elements reach over the borders of bytes
        return np.packbits(_bits_of(elements)[:, :bits], bitorder="little")
    per_byte = 8 // bits
    padded = np.zeros(-(-elements.size // per_byte) * per_byte, np.uint8)
    padded[: elements.size] = elements & ((1 << bits) - 1)
    packed = np.zeros(padded.size // per_byte, np.uint8)
    for index in range(per_byte):
        packed |= padded[index::per_byte] << (bits * index)
    return packed


def _bits_of(packed: np.ndarray) -> np.ndarray:
    return np.unpackbits(np.ascontiguousarray(packed, np.uint8).reshape(-1, 1), axis=1, bitorder="little")


def unpack_bits(packed: np.ndarray, dtype: DataType, size: int) -> np.ndarray:
    """Return ``size`` elements of a type below 8 bits from packed bytes."""
    bits = dtype.bits
    if 8 % bits:
        split = _bits_of(packed).reshape(-1)[: size * bits].reshape(size, bits)
        return np.packbits(split, axis=1, bitorder="little").reshape(-1).view(dtype.numpy)
    per_byte = 8 // bits
    elements = np.empty(packed.size * per_byte, np.uint8)
    for index in range(per_byte):
        elements[index::per_byte] = (packed >> (bits * index)) & ((1 << bits) - 1)
    elements = elements[:size]
    if dtype in (DataType.INT4, DataType.INT2):
        return ((elements << (8 - bits)).view(np.int8) >> (8 - bits)).astype(dtype.numpy)
    if dtype is DataType.FLOAT4E2M1:
        return elements.view(dtype.numpy)
    return elements.astype(dtype.numpy)
