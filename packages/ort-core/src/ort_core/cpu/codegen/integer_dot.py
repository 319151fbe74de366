"""Products of bytes, four at a time: ``sum[i] += a[4i] b[4i] + ... + a[4i+3] b[4i+3]``, exact in 32 bits.

The bytes of ``a`` are unsigned, those of ``b`` signed, as the instruction of x86 (VPDPBUSD) wants them. Without it
pairs of 16-bit products are summed (VPMADDWD); the older VPMADDUBSW saturates its sums at 16 bits and is never used.
"""

from __future__ import annotations

from ort_core.cpu.codegen.emitter import Emitter, Operand, vector_type
from ort_core.cpu.codegen.jit import Target

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
    if target.vector_registers >= 32:
        return 2, 10  # the halves of words take registers, too
    return 2, 3


class ByteProducts:
    """Multiplies words of four bytes; what depends on ``b`` alone is prepared once for many ``a``."""

    def __init__(self, emitter: Emitter, target: Target) -> None:
        self._emitter, self._target = emitter, target
        self._lanes = target.lanes
        self._whole = has_byte_products(target)
        self._pairs = _pair_instruction(target)

    def prepared(self, b: Operand) -> tuple[Operand, ...]:
        """Return a vector of words of signed bytes as ``add`` wants it."""
        if self._whole:
            return (b,)
        if self._pairs is None:
            return tuple(self._signed_byte(b, index) for index in range(WORD))
        halves = self._halves(b)
        low = self._shift("ashr", self._shift("shl", halves, 8), 8)
        return low, self._shift("ashr", halves, 8)

    def spread(self, a: Operand) -> tuple[Operand, ...]:
        """Return a vector of words of unsigned bytes as ``add`` wants it."""
        if self._whole:
            return (a,)
        if self._pairs is None:
            return tuple(self._unsigned_byte(a, index) for index in range(WORD))
        halves = self._halves(a)
        low = self._emitter.assign(halves.type, f"and {halves.typed}, {_splat(255, 16, self._lanes * 2)}")
        return low, self._shift("lshr", halves, 8)

    def add(self, total: Operand, a: tuple[Operand, ...], b: tuple[Operand, ...]) -> Operand:
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

    def _bytes(self, *words: Operand) -> list[Operand]:
        type_ = vector_type(self._lanes * WORD, "i8")
        return [self._emitter.assign(type_, f"bitcast {word.typed} to {type_}") for word in words]

    def _halves(self, words: Operand) -> Operand:
        type_ = vector_type(self._lanes * 2, "i16")
        return self._emitter.assign(type_, f"bitcast {words.typed} to {type_}")

    def _shift(self, opcode: str, halves: Operand, count: int) -> Operand:
        return self._emitter.assign(halves.type, f"{opcode} {halves.typed}, {_splat(count, 16, self._lanes * 2)}")

    def _signed_byte(self, words: Operand, index: int) -> Operand:
        left = self._emitter.assign(words.type, f"shl {words.typed}, {_splat(24 - 8 * index, 32, self._lanes)}")
        return self._emitter.assign(words.type, f"ashr {left.typed}, {_splat(24, 32, self._lanes)}")

    def _unsigned_byte(self, words: Operand, index: int) -> Operand:
        right = self._emitter.assign(words.type, f"lshr {words.typed}, {_splat(8 * index, 32, self._lanes)}")
        return self._emitter.assign(words.type, f"and {right.typed}, {_splat(255, 32, self._lanes)}")


def _pair_instruction(target: Target) -> str | None:
    """Return the intrinsic that multiplies 16-bit numbers and sums pairs, ``None`` where the target has none."""
    if "x86_64" not in target.triple or (target.lanes == 16 and not target.has("avx512bw")):
        return None
    return _PAIRS[target.lanes]


def _splat(value: int, bits: int, count: int) -> str:
    return f"<{', '.join([f'i{bits} {value}'] * count)}>"
