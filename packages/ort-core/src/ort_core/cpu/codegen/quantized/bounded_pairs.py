"""Pairs of weights whose products with any unsigned bytes one instruction sums exactly.

VPMADDUBSW multiplies unsigned by signed bytes and sums pairs in 16 bits, saturating: a pair of weights is safe for any
activation if 255 times the sum of its positive ones is at most 32767, and of its negative ones at least -32768, so if
those sums are at most 128 and at least -128. Which bytes make a pair is free: a shuffle brings any of 16 neighboring
activations beside any other. Weights are known at load, so for each panel each 16 input channels are cut into pairs
that are safe in all columns of the panel. What finds no partner is paired as it comes, one of its weights is cut to
what is safe, and the rest of it is multiplied once more. (Of random weights up to 127, 3.5 deviations, in panels of 16
columns all pairs are safe in 998 of 1,000 blocks, of weights up to 127, 2.5 deviations, in 700.)

A panel is a list of steps, each of eight input channels::

    int32 steps, offset of the weights, offset of the next list, 0
    int32 [step]: place of 16 activations, two words of four places among them
    int8 [step][word][column][4 bytes]
"""

from __future__ import annotations

import itertools

import numpy as np

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, vector_type
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.quantized.integer_dot import WORD, has_byte_products, pair_instruction, splat_text
from ort_core.cpu.codegen.quantized.pair_search import REACH, STEP_WORDS, paired_steps

ENTRY_WORDS = 1 + STEP_WORDS
HEAD_WORDS = 4
ALIGNMENT = 64
_SUMS = {8: "llvm.x86.avx2.pmadd.ub.sw", 4: "llvm.x86.ssse3.pmadd.ub.sw.128"}
_SHUFFLES = {8: "llvm.x86.avx2.pshuf.b", 4: "llvm.x86.ssse3.pshuf.b.128"}
_CHUNK_NBYTES = 1 << 20  # of weights that are looked at together


def has_bounded_products(target: Target) -> bool:
    """Return whether a target gains: it sums pairs of bytes in 16 bits, and has no instruction for whole words."""
    if has_byte_products(target) or pair_instruction(target) is None or target.lanes not in _SUMS:
        return False
    return target.lanes == 8 or target.has("ssse3")


def block_places(nbytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut a run of at least ``REACH`` bytes into blocks: where each begins, and how many of its bytes are not its own.

    The last one begins earlier where bytes behind the run would be read.
    """
    places = np.arange(0, nbytes, REACH)
    last = np.minimum(places, nbytes - REACH)
    return last, places - last


def packed_lists(words: np.ndarray, places: np.ndarray, skipped: np.ndarray) -> list[np.ndarray]:
    """Return lists of steps as bytes, each a whole number of cache lines.

    Args:
        words: int8 ``[list][block][REACH / 4][column][4]``.
        places: of each block's activations.
        skipped: how many bytes at the beginning of each block belong to another one; their weights are 0.
    """
    lists = []
    at_once = max(1, _CHUNK_NBYTES // max(1, words[:1].size))
    exists = np.arange(REACH) >= skipped[:, None]
    for first in range(0, len(words), at_once):
        lists += _lists_of(words[first : first + at_once], places, exists)
    return lists


def _lists_of(words: np.ndarray, places: np.ndarray, exists: np.ndarray) -> list[np.ndarray]:
    count, per_list, *shape = words.shape
    steps = paired_steps(words.reshape(-1, *shape), np.tile(exists, (count, 1)))
    entries = np.empty((len(steps.blocks), ENTRY_WORDS), np.int32)
    entries[:, 0] = places[steps.blocks % per_list]
    entries[:, 1:] = steps.sources.view(np.int32)
    ends = np.searchsorted(steps.blocks, np.arange(count + 1) * per_list)
    return [_list(entries[a:b], steps.weights[a:b]) for a, b in itertools.pairwise(ends)]


def _list(entries: np.ndarray, weights: np.ndarray) -> np.ndarray:
    head = _whole_lines((HEAD_WORDS + entries.size) * WORD)
    out = np.zeros(head + _whole_lines(weights.size), np.int8)
    words = out[:head].view(np.int32)
    words[:HEAD_WORDS] = len(entries), head, out.size, 0
    words[HEAD_WORDS : HEAD_WORDS + entries.size] = entries.reshape(-1)
    out[head : head + weights.size] = weights.reshape(-1)
    return out


def _whole_lines(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class BoundedProducts:
    """Multiplies the words of a step."""

    def __init__(self, emitter: Emitter, target: Target) -> None:
        self._emitter, self._target = emitter, target
        self._bytes = vector_type(target.lanes * WORD, "i8")

    def sources(self, entry: IRValue) -> list[IRValue]:
        """Load where a step's words find their activations, as ``spread`` wants it."""
        emitter, found = self._emitter, []
        for index in range(1, ENTRY_WORDS):
            word = emitter.load("i32", emitter.element(entry, index, "i32"), WORD)
            found.append(self._as_bytes(emitter.splat(word, self._target.lanes)))
        return found

    def spread(self, address: IRValue, sources: list[IRValue], is_signed: bool) -> list[IRValue]:
        """Return a step's words of activations; signed ones become unsigned, larger by 128."""
        emitter, nbytes = self._emitter, self._target.lanes * WORD
        near = emitter.load(vector_type(REACH, "i8"), address, 1)
        lanes = ", ".join(f"i32 {i % REACH}" for i in range(nbytes))
        a = emitter.assign(self._bytes, f"shufflevector {near.typed}, {near.typed}, <{nbytes} x i32> <{lanes}>")
        if is_signed:
            a = emitter.assign(self._bytes, f"xor {a.typed}, {splat_text(-128, 8, nbytes)}")
        return [emitter.call(self._bytes, _SHUFFLES[self._target.lanes], a, source) for source in sources]

    def add(self, total: IRValue, a: IRValue, address: IRValue) -> IRValue:
        """Return the sums increased by the products of a word with the weights at an address."""
        emitter, lanes = self._emitter, self._target.lanes
        sum_pairs = pair_instruction(self._target)
        assert sum_pairs is not None
        halves = vector_type(lanes * 2, "i16")
        pairs = emitter.call(halves, _SUMS[lanes], a, emitter.load(self._bytes, address, WORD))
        product = emitter.call(total.type, sum_pairs, pairs, IRValue(halves, splat_text(1, 16, lanes * 2)))
        return emitter.assign(total.type, f"add {total.typed}, {product.text}")

    def _as_bytes(self, words: IRValue) -> IRValue:
        return self._emitter.assign(self._bytes, f"bitcast {words.typed} to {self._bytes}")
