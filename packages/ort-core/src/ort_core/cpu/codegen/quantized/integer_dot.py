"""Products of bytes, four at a time: ``sum[i] += a[4i] b[4i] + ... + a[4i+3] b[4i+3]``, exact in 32 bits.

The bytes of ``a`` are unsigned, those of ``b`` signed, as the instruction of x86 (VPDPBUSD) wants them. Without it
pairs of 16-bit products are summed (VPMADDWD); the older VPMADDUBSW saturates its sums at 16 bits and is used only for
pairs that ``bounded_pairs`` knows to stay below. ``b`` is stored for the one or the other, by ``packed_words``.
"""

from __future__ import annotations

import numpy as np

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, vector_type
from ort_core.cpu.codegen.machine_code.target import Target

WORD = 4  # bytes that one lane multiplies at once
_PAIRS = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd"}


def has_byte_products(target: Target) -> bool:
    """Return whether one instruction multiplies and sums bytes at the target's full vector width."""
    if target.lanes == 16:
        return target.has("avx512vnni")
    return target.lanes == 8 and (target.has("avxvnni") or (target.has("avx512vnni") and target.has("avx512vl")))


def register_tile(target: Target) -> tuple[int, int]:
    """Return (vectors of columns, rows) of sums that fill the registers beside their operands."""
    if has_byte_products(target):
        return 2, (target.vector_registers - 4) // 2
    if pair_instruction(target) is None:
        return 2, 3  # the bytes of words take registers, too
    return 2, 10 if target.vector_registers >= 32 else 4


def packed_words(words: np.ndarray, target: Target) -> np.ndarray:
    """Return ``b`` as ``ByteProducts.prepared`` reads it.

    Where pairs are summed, a vector of words holds bytes 0 and 2 of all its words, then bytes 1 and 3: each half is
    widened to 16 bits as it is loaded, and meets the bytes of ``a`` that two operations take out of a word.

    Args:
        words: int8 ``[..., columns, 4]``, with whole vectors of columns.
        target: what the code is for.
    """
    if has_byte_products(target) or pair_instruction(target) is None:
        return words
    *outer, columns, _ = words.shape
    halves = words.reshape(*outer, columns // target.lanes, target.lanes, 2, 2)  # byte 2 i + j at [i, j]
    return np.moveaxis(halves, -1, -3).reshape(words.shape)


class ByteProducts:
    """Multiplies words of four bytes; what depends on ``b`` alone is prepared once for many ``a``."""

    def __init__(self, emitter: Emitter, target: Target) -> None:
        self._emitter, self._target = emitter, target
        self._lanes = target.lanes
        self._whole = has_byte_products(target)
        self._pairs = pair_instruction(target)

    def prepared(self, address: IRValue) -> tuple[IRValue, ...]:
        """Load a vector of words of signed bytes, stored by ``packed_words``, as ``add`` wants it."""
        emitter, lanes = self._emitter, self._lanes
        if self._pairs is not None and not self._whole:
            bytes_, halves = vector_type(lanes * 2, "i8"), vector_type(lanes * 2, "i16")
            stored = [emitter.load(bytes_, emitter.element(address, i, bytes_), WORD) for i in range(2)]
            return tuple(emitter.assign(halves, f"sext {half.typed} to {halves}") for half in stored)
        b = emitter.load(vector_type(lanes, "i32"), address, WORD)
        return (b,) if self._whole else tuple(self._signed_byte(b, index) for index in range(WORD))

    def spread(self, a: IRValue) -> tuple[IRValue, ...]:
        """Return a vector of words of unsigned bytes as ``add`` wants it."""
        if self._whole:
            return (a,)
        if self._pairs is None:
            return tuple(self._unsigned_byte(a, index) for index in range(WORD))
        halves = self._halves(a)
        low = self._emitter.assign(halves.type, f"and {halves.typed}, {splat_text(255, 16, self._lanes * 2)}")
        return low, self._shift("lshr", halves, 8)

    def add(self, total: IRValue, a: tuple[IRValue, ...], b: tuple[IRValue, ...]) -> IRValue:
        """Return the sums increased by the products."""
        emitter = self._emitter
        if self._whole:
            bits = self._lanes * 32
            return emitter.call(total.type, f"llvm.x86.avx512.vpdpbusd.{bits}", total, *self._bytes(a[0], b[0]))
        for left, right in zip(a, b, strict=True):
            if self._pairs is None:
                product = emitter.assign(total.type, f"mul {left.typed}, {right.text}")
            else:
                product = emitter.call(total.type, self._pairs, left, right)
            total = emitter.assign(total.type, f"add {total.typed}, {product.text}")
        return total

    def _bytes(self, *words: IRValue) -> list[IRValue]:
        type_ = vector_type(self._lanes * WORD, "i8")
        return [self._emitter.assign(type_, f"bitcast {word.typed} to {type_}") for word in words]

    def _halves(self, words: IRValue) -> IRValue:
        type_ = vector_type(self._lanes * 2, "i16")
        return self._emitter.assign(type_, f"bitcast {words.typed} to {type_}")

    def _shift(self, opcode: str, halves: IRValue, count: int) -> IRValue:
        return self._emitter.assign(halves.type, f"{opcode} {halves.typed}, {splat_text(count, 16, self._lanes * 2)}")

    def _signed_byte(self, words: IRValue, index: int) -> IRValue:
        left = self._emitter.assign(words.type, f"shl {words.typed}, {splat_text(24 - 8 * index, 32, self._lanes)}")
        return self._emitter.assign(words.type, f"ashr {left.typed}, {splat_text(24, 32, self._lanes)}")

    def _unsigned_byte(self, words: IRValue, index: int) -> IRValue:
        right = self._emitter.assign(words.type, f"lshr {words.typed}, {splat_text(8 * index, 32, self._lanes)}")
        return self._emitter.assign(words.type, f"and {right.typed}, {splat_text(255, 32, self._lanes)}")


def pair_instruction(target: Target) -> str | None:
    """Return the intrinsic that multiplies 16-bit numbers and sums pairs, ``None`` where the target has none."""
    if "x86_64" not in target.triple or (target.lanes == 16 and not target.has("avx512bw")):
        return None
    return _PAIRS[target.lanes]


def splat_text(value: int, bits: int, count: int) -> str:
    """Return a constant vector of one integer as LLVM writes it."""
    return f"<{', '.join([f'i{bits} {value}'] * count)}>"
