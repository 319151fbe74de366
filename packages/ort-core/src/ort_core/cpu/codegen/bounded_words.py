"""Words of four weights whose products with any unsigned bytes one instruction sums exactly.

VPMADDUBSW multiplies unsigned by signed bytes and sums pairs in 16 bits, saturating: a pair of weights is safe for any
activation if 255 times the sum of its positive ones is at most 32767, and of its negative ones at least -32768. A word
is bounded in a pairing of its bytes if all pairs of all columns of a panel are safe; activations are brought into
another pairing than that of their neighbours by a shuffle. Weights are known at load, so each panel holds first the
words that are bounded, pairing by pairing, then the others, which are widened to 16 bits; a table says which word
stands where. (Of random weights up to 127, 3.5 deviations, in panels of 16 columns 64 % of all words are bounded as
they are, 31 % in another pairing.)
"""

from __future__ import annotations

import functools

import numpy as np

from ort_core.cpu.codegen.emitter import Emitter, Operand, vector_type
from ort_core.cpu.codegen.integer_dot import WORD, has_byte_products, packed_words, pair_instruction, splat_text
from ort_core.cpu.codegen.jit import Target

PAIRINGS = ((0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 1, 2))  # every way to cut a word in pairs, its bytes in that order
_SUMS = {8: "llvm.x86.avx2.pmadd.ub.sw", 4: "llvm.x86.ssse3.pmadd.ub.sw.128"}
_SHUFFLES = {8: "llvm.x86.avx2.pshuf.b", 4: "llvm.x86.ssse3.pshuf.b.128"}
_SHUFFLED_NBYTES = 16  # that the instruction moves among themselves
_MAX_BYTE = 255


def has_bounded_products(target: Target) -> bool:
    """Return whether a target gains: it sums pairs of bytes in 16 bits, and has no instruction for whole words."""
    if has_byte_products(target) or pair_instruction(target) is None or target.lanes not in _SUMS:
        return False
    return target.lanes == 8 or target.has("ssse3")


def ordered_words(words: np.ndarray, places: np.ndarray, target: Target) -> tuple[np.ndarray, np.ndarray]:
    """Return words in the order and the form that kernels read, and the table that says where each belongs.

    Args:
        words: int8 ``[..., word, column, 4]``.
        places: int32 ``[word]``, where the activations of each word lie, in bytes.
        target: what the code is for.

    Returns:
        The words, of the same shape, and int32 ``[..., len(PAIRINGS) + words]``: where the words of each pairing end,
        then the place of each.
    """
    *outer, count, columns, _ = words.shape
    rows = np.ascontiguousarray(words).reshape(-1, columns, WORD)
    kinds = _pairings_of(rows).reshape(*outer, count)
    order = np.argsort(kinds, axis=-1, kind="stable")
    firsts = np.arange(0, len(rows), count).reshape(*outer, 1)
    rows, sorted_kinds = rows[(order + firsts).reshape(-1)], np.take_along_axis(kinds, order, axis=-1)
    for number, pairing in enumerate(PAIRINGS[1:], 1):
        chosen = np.flatnonzero(sorted_kinds == number)
        rows[chosen] = rows[chosen][..., pairing]
    others = np.flatnonzero(sorted_kinds == len(PAIRINGS))
    rows[others] = packed_words(rows[others], target)
    ends = [(kinds <= number).sum(axis=-1)[..., None] for number in range(len(PAIRINGS))]
    return rows.reshape(words.shape), np.concatenate([*ends, places[order]], axis=-1).astype(np.int32)


def _pairings_of(words: np.ndarray) -> np.ndarray:
    """Return the first pairing in which each word ``[word, column, 4]`` is bounded, ``len(PAIRINGS)`` if in none."""
    found = np.full(len(words), len(PAIRINGS), np.uint8)
    left = np.arange(len(words))
    for number, pairing in enumerate(PAIRINGS):
        tried = words if number == 0 else np.ascontiguousarray(words[left][..., pairing])
        pairs = tried.reshape(len(left), words.shape[1] * WORD).view(np.uint16)
        is_safe = np.take(_safe_pairs(), pairs).all(axis=-1)
        found[left[is_safe]] = number
        left = left[~is_safe]
    return found


@functools.cache
def _safe_pairs() -> np.ndarray:
    """Return for each pair of int8, read as one uint16, whether it is safe."""
    pairs = np.arange(1 << 16, dtype=np.uint16).view(np.int8).reshape(-1, 2).astype(np.int32)
    most, least = (limited.sum(axis=1) * _MAX_BYTE for limited in (np.maximum(pairs, 0), np.minimum(pairs, 0)))
    limits = np.iinfo(np.int16)
    return np.asarray((most <= limits.max) & (least >= limits.min))


class BoundedProducts:
    """Multiplies words of four bytes that are bounded in a pairing."""

    def __init__(self, emitter: Emitter, target: Target, pairing: tuple[int, ...]) -> None:
        self._emitter, self._target, self._pairing = emitter, target, pairing
        self._bytes = vector_type(target.lanes * WORD, "i8")

    def prepared(self, address: Operand) -> tuple[Operand, ...]:
        """Load a vector of words of signed bytes as ``add`` wants it."""
        return (self._emitter.load(self._bytes, address, WORD),)

    def spread(self, a: Operand) -> tuple[Operand, ...]:
        """Return a vector of words of unsigned bytes as ``add`` wants it."""
        emitter, lanes = self._emitter, self._target.lanes
        found = emitter.assign(self._bytes, f"bitcast {a.typed} to {self._bytes}")
        if self._pairing == PAIRINGS[0]:
            return (found,)
        places = [word + byte for word in range(0, _SHUFFLED_NBYTES, WORD) for byte in self._pairing]
        mask = ", ".join(f"i8 {place}" for place in places * (lanes * WORD // _SHUFFLED_NBYTES))
        return (emitter.call(self._bytes, _SHUFFLES[lanes], found, Operand(self._bytes, f"<{mask}>")),)

    def add(self, total: Operand, a: tuple[Operand, ...], b: tuple[Operand, ...]) -> Operand:
        """Return the sums increased by the products."""
        emitter, lanes = self._emitter, self._target.lanes
        sum_pairs = pair_instruction(self._target)
        assert sum_pairs is not None
        halves = vector_type(lanes * 2, "i16")
        pairs = emitter.call(halves, _SUMS[lanes], a[0], b[0])
        product = emitter.call(total.type, sum_pairs, pairs, Operand(halves, splat_text(1, 16, lanes * 2)))
        return emitter.assign(total.type, f"add {total.typed}, {product.text}")
