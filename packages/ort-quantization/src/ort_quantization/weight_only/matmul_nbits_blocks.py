"""Matrices quantized by blocks: numbers with a scale, and maybe a zero point, for each block of a column.

A value is ``scale * (number - zero_point)``. The layouts are those of the two operators: MatMulNBits has the blocks of
a column behind each other, several numbers in a byte, low bits first; DequantizeLinear has the order of the weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Numbers:
    """A quantized matrix of K rows and N columns, a number in each byte.

    Attributes:
        values: uint8 (N, blocks, block_size); what lies behind row K is anything.
        scales: floats (N, blocks).
        zero_points: uint8 or floats (N, blocks); ``None``: all lie in the middle.
        bits: of a number.
        rows: K.
    """

    values: Array
    scales: Array
    zero_points: Array | None
    bits: int
    rows: int

    @property
    def block_size(self) -> int:
        """Rows of a block."""
        return int(self.values.shape[2])

    def dequantized(self) -> Array:
        """Return float32 (K, N): what the numbers stand for."""
        middle = np.float32(1 << self.bits - 1)
        points = middle if self.zero_points is None else self.zero_points.astype(np.float32)[:, :, None]
        found = (self.values.astype(np.float32) - points) * self.scales.astype(np.float32)[:, :, None]
        return np.ascontiguousarray(found.reshape(len(found), -1)[:, : self.rows].T)


@dataclass(frozen=True, slots=True)
class PackedBlocks:
    """The inputs of a MatMulNBits.

    Attributes:
        data: uint8 (N, blocks, block_size * bits / 8).
        scales: floats (N, blocks).
        zero_points: uint8 (N, ceil(blocks * bits / 8)), floats (N, blocks), or ``None``.
        bits: of a number.
        rows: K.
    """

    data: Array
    scales: Array
    zero_points: Array | None
    bits: int
    rows: int

    @property
    def block_size(self) -> int:
        """Rows of a block."""
        return int(self.data.shape[2]) * 8 // self.bits

    def unpacked(self) -> Numbers:
        """Return the same, a number in each byte."""
        points = self.zero_points
        if points is not None and points.dtype == np.uint8:
            points = unpack(points, self.bits)[:, : self.scales.shape[1]]
        return Numbers(unpack(self.data, self.bits), self.scales, points, self.bits, self.rows)


@dataclass(frozen=True, slots=True)
class LinearBlocks:
    """The inputs of a DequantizeLinear with blocks along axis 0, packed as a tensor of the model has them.

    Attributes:
        data: bytes of (K, N).
        scales: floats (blocks, N).
        zero_points: bytes of (blocks, N), ``None`` for signed numbers.
        bits: of a number.
        rows: K.
        block_size: rows of a block.
    """

    data: bytes
    scales: Array
    zero_points: bytes | None
    bits: int
    rows: int
    block_size: int


def pack(numbers: Array, bits: int) -> Array:
    """Return uint8 (..., ceil(count * bits / 8)) of numbers (..., count), low bits first, 0 behind the last."""
    in_byte = 8 // bits
    missing = -numbers.shape[-1] % in_byte
    if missing:
        numbers = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, missing)])
    found = numbers[..., 0::in_byte].astype(np.uint8)
    for place in range(1, in_byte):
        found |= numbers[..., place::in_byte].astype(np.uint8) << place * bits
    return found


def unpack(packed: Array, bits: int) -> Array:
    """Return uint8 (..., bytes * 8 / bits): the numbers of bytes, low bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    found = packed[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return found.reshape(*packed.shape[:-1], -1)


def packed_blocks(numbers: Numbers) -> PackedBlocks:
    """Return numbers in the layout of MatMulNBits."""
    points = numbers.zero_points
    if points is not None and points.dtype == np.uint8:
        points = pack(points, numbers.bits)
    return PackedBlocks(pack(numbers.values, numbers.bits), numbers.scales, points, numbers.bits, numbers.rows)


def linear_blocks(numbers: Numbers) -> LinearBlocks:
    """Return numbers in the layout of DequantizeLinear: signed where there are no zero points."""
    values = numbers.values.reshape(len(numbers.values), -1)[:, : numbers.rows].T
    points = None if numbers.zero_points is None else numbers.zero_points.T
    if points is None:
        values = values ^ np.uint8(1 << numbers.bits - 1)  # number - middle, as two's complement of so many bits
    return LinearBlocks(
        pack(np.ascontiguousarray(values).reshape(-1), numbers.bits).tobytes(),
        np.ascontiguousarray(numbers.scales.T),
        None if points is None else pack(np.ascontiguousarray(points).reshape(-1), numbers.bits).tobytes(),
        numbers.bits, numbers.rows, numbers.block_size,
    )  # fmt: skip


def columns_in_blocks(weight: Array, block_size: int) -> Array:
    """Return (N, blocks, block_size) of a weight (K, N), in its type, 0 behind the last row."""
    missing = -weight.shape[0] % block_size
    whole = np.pad(weight, ((0, missing), (0, 0))) if missing else weight
    return np.ascontiguousarray(whole.T).reshape(weight.shape[1], -1, block_size)
