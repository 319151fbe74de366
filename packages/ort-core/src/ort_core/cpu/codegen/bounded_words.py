"""Words of four weights whose products with any unsigned bytes one instruction sums exactly.

VPMADDUBSW multiplies unsigned by signed bytes and sums pairs in 16 bits, saturating: a pair of weights is safe for any
activation if 255 times the sum of its positive ones is at most 32767, and of its negative ones at least -32768. A word
is bounded if all pairs of all columns of a panel are safe. Weights are known at load, so each panel holds first its
bounded words, then the others, which are widened to 16 bits as before; a table says which word stands where.
"""

from __future__ import annotations

import functools

import numpy as np

from ort_core.cpu.codegen.emitter import Emitter, Operand, vector_type
from ort_core.cpu.codegen.integer_dot import WORD, has_byte_products, pair_instruction, splat_text
from ort_core.cpu.codegen.jit import Target

_INSTRUCTIONS = {8: "llvm.x86.avx2.pmadd.ub.sw", 4: "llvm.x86.ssse3.pmadd.ub.sw.128"}
_MAX_BYTE = 255


def has_bounded_products(target: Target) -> bool:
    """Return whether a target gains: it sums pairs of bytes in 16 bits, and has no instruction for whole words."""
    if has_byte_products(target) or pair_instruction(target) is None or target.lanes not in _INSTRUCTIONS:
        return False
    return target.lanes == 8 or target.has("ssse3")


def bounded_words(words: np.ndarray) -> np.ndarray:
    """Return which words are bounded, bool ``[...]``, of contiguous int8 ``[..., columns, 4]``."""
    return np.asarray(_safe_pairs()[words.view(np.uint16)].all(axis=(-1, -2)))


@functools.cache
def _safe_pairs() -> np.ndarray:
    """Return for each pair of int8, read as one uint16, whether it is safe."""
    pairs = np.arange(1 << 16, dtype=np.uint16).view(np.int8).reshape(-1, 2).astype(np.int32)
    most, least = (limited.sum(axis=1) * _MAX_BYTE for limited in (np.maximum(pairs, 0), np.minimum(pairs, 0)))
    limits = np.iinfo(np.int16)
    return np.asarray((most <= limits.max) & (least >= limits.min))


class BoundedProducts:
    """Multiplies bounded words of four bytes, stored as they are."""

    def __init__(self, emitter: Emitter, target: Target) -> None:
        self._emitter, self._target = emitter, target
        self._bytes = vector_type(target.lanes * WORD, "i8")

    def prepared(self, address: Operand) -> tuple[Operand, ...]:
        """Load a vector of words of signed bytes as ``add`` wants it."""
        return (self._emitter.load(self._bytes, address, WORD),)

    def spread(self, a: Operand) -> tuple[Operand, ...]:
        """Return a vector of words of unsigned bytes as ``add`` wants it."""
        return (self._emitter.assign(self._bytes, f"bitcast {a.typed} to {self._bytes}"),)

    def add(self, total: Operand, a: tuple[Operand, ...], b: tuple[Operand, ...]) -> Operand:
        """Return the sums increased by the products."""
        emitter, lanes = self._emitter, self._target.lanes
        sum_pairs = pair_instruction(self._target)
        assert sum_pairs is not None
        halves = vector_type(lanes * 2, "i16")
        pairs = emitter.call(halves, _INSTRUCTIONS[lanes], a[0], b[0])
        product = emitter.call(total.type, sum_pairs, pairs, Operand(halves, splat_text(1, 16, lanes * 2)))
        return emitter.assign(total.type, f"add {total.typed}, {product.text}")
