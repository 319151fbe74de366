"""Vectors of floats rounded to bfloat16 by AVX512-BF16: each by itself, two behind each other, or in words of two.

And the way back, which is exact and needs no such instruction.
"""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, vector_type


def rounded_lanes(emitter: Emitter, value: IRValue, lanes: int) -> IRValue:
    """Return a vector of floats as one of the nearest bfloat16."""
    return emitter.call(vector_type(lanes, "bfloat"), f"llvm.x86.avx512bf16.cvtneps2bf16.{lanes * 32}", value)


def rounded_row(emitter: Emitter, first: IRValue, second: IRValue) -> IRValue:
    """Return two vectors of 16 floats, one behind the other, as one vector of 32 bfloat16: 16 words of neighbors."""
    return emitter.call("<32 x bfloat>", "llvm.x86.avx512bf16.cvtne2ps2bf16.512", second, first)


def rounded_bits(emitter: Emitter, value: IRValue, lanes: int) -> IRValue:
    """Return a vector of floats as bfloat16, each in the low half of a word whose other half is 0."""
    halves, words = vector_type(lanes, "i16"), vector_type(lanes, "i32")
    rounded = rounded_lanes(emitter, value, lanes)
    bits = emitter.assign(halves, f"bitcast {rounded.typed} to {halves}")
    return emitter.assign(words, f"zext {bits.typed} to {words}")


def joined_words(emitter: Emitter, low: IRValue, high: IRValue, lanes: int) -> IRValue:
    """Return words of two, given each half as ``rounded_bits`` has it."""
    moved = emitter.assign(high.type, f"shl {high.typed}, <{', '.join(['i32 16'] * lanes)}>")
    return emitter.assign(high.type, f"or {moved.typed}, {low.text}")


def widened_lanes(emitter: Emitter, bits: IRValue, lanes: int) -> IRValue:
    """Return the bits of a vector of bfloat16 as the floats that they are."""
    words, floats = vector_type(lanes, "i32"), vector_type(lanes, "float")
    wide = emitter.assign(words, f"zext {bits.typed} to {words}")
    moved = emitter.assign(words, f"shl {wide.typed}, <{', '.join(['i32 16'] * lanes)}>")
    return emitter.assign(floats, f"bitcast {moved.typed} to {floats}")


def narrowed_lanes(emitter: Emitter, value: IRValue, lanes: int) -> IRValue:
    """Return the bits of a vector of bfloat16, given as the floats that they are: what lies behind them is cut off."""
    words, halves = vector_type(lanes, "i32"), vector_type(lanes, "i16")
    bits = emitter.assign(words, f"bitcast {value.typed} to {words}")
    moved = emitter.assign(words, f"lshr {bits.typed}, <{', '.join(['i32 16'] * lanes)}>")
    return emitter.assign(halves, f"trunc {moved.typed} to {halves}")
