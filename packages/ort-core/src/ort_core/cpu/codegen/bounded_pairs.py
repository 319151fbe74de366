"""Pairs of weights whose products with any unsigned bytes one instruction sums exactly.

VPMADDUBSW multiplies unsigned by signed bytes and sums pairs in 16 bits, saturating: a pair of weights is safe for any
activation if 255 times the sum of its positive ones is at most 32767, and of its negative ones at least -32768, so if
those sums are at most 128 and at least -128. Which bytes make a pair is free: a shuffle brings any of 16 neighbouring
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

from dataclasses import dataclass

import numpy as np

from ort_core.cpu.codegen.emitter import Emitter, Operand, vector_type
from ort_core.cpu.codegen.integer_dot import WORD, has_byte_products, pair_instruction, splat_text
from ort_core.cpu.codegen.jit import Target

REACH = 16  # neighbouring bytes that the shuffle moves among themselves
STEP_WORDS = 2
ENTRY_WORDS = 1 + STEP_WORDS
HEAD_WORDS = 4
ALIGNMENT = 64
_PAIR = 2
_STEP_BYTES = STEP_WORDS * WORD
_LARGEST = 128  # sum of a pair's positive weights; 255 * 128 <= 32767
_NOBODY = REACH  # instead of a partner
_SUMS = {8: "llvm.x86.avx2.pmadd.ub.sw", 4: "llvm.x86.ssse3.pmadd.ub.sw.128"}
_SHUFFLES = {8: "llvm.x86.avx2.pshuf.b", 4: "llvm.x86.ssse3.pshuf.b.128"}
_CHUNK_NBYTES = 1 << 20  # of weights that are looked at together: ten times as much memory is taken in between


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


def packed_lists(blocks: np.ndarray, places: np.ndarray, skipped: np.ndarray) -> list[np.ndarray]:
    """Return lists of steps as bytes, each a whole number of cache lines.

    Args:
        blocks: int8 ``[list][block][REACH][column]``.
        places: of each block's activations.
        skipped: how many bytes at the beginning of each block belong to another one.
    """
    lists = []
    at_once = max(1, _CHUNK_NBYTES // blocks[:1].size)
    exists = np.arange(REACH) >= skipped[:, None]
    for first in range(0, len(blocks), at_once):
        lists += _lists_of(blocks[first : first + at_once], places, exists)
    return lists


def _lists_of(blocks: np.ndarray, places: np.ndarray, exists: np.ndarray) -> list[np.ndarray]:
    count, per_list, _, columns = blocks.shape
    steps = _steps(blocks.reshape(-1, REACH, columns), np.tile(exists, (count, 1)))
    most = steps.is_used.shape[1]
    chosen = np.flatnonzero(steps.is_used.reshape(-1))
    entries = np.empty((len(chosen), ENTRY_WORDS), np.int32)
    entries[:, 0] = places[chosen // most % per_list]
    entries[:, 1:] = steps.sources.reshape(-1, _STEP_BYTES)[chosen].view(np.int32)
    weights = steps.weights.reshape(-1, STEP_WORDS * columns * WORD)[chosen]
    ends = np.searchsorted(chosen, np.arange(1, count + 1) * per_list * most)
    return [_list(entries[a:b], weights[a:b]) for a, b in zip(np.r_[0, ends[:-1]], ends, strict=True)]


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


@dataclass(frozen=True, slots=True)
class _Steps:
    """Steps of blocks, as many for each as any of them takes.

    Attributes:
        sources: uint8 ``[block][step][8]``, places in the block.
        weights: int8 ``[block][step][word][column][4]``.
        is_used: bool ``[block][step]``.
    """

    sources: np.ndarray
    weights: np.ndarray
    is_used: np.ndarray


def _steps(blocks: np.ndarray, exists: np.ndarray) -> _Steps:
    """Return the steps of blocks ``[block][REACH][column]``; bytes that do not exist are left out."""
    partners = _partners(blocks, exists)
    own = np.arange(REACH)
    alone = np.where(exists, 2 * REACH + own, 4 * REACH + own)
    paired = 2 * np.minimum(partners, own) + (partners < own)
    order = np.argsort(np.where(partners == _NOBODY, alone, paired).astype(np.uint8), axis=1)
    weights = np.take_along_axis(blocks, order[:, :, None], axis=1)
    sources = order.astype(np.uint8)
    is_used = np.arange(0, REACH, _STEP_BYTES) < exists.sum(axis=1)[:, None]
    has_lonely = (partners == _NOBODY) & exists
    if np.any(has_lonely):
        first, second = weights[:, 0::2].astype(np.int16), weights[:, 1::2].astype(np.int16)
        kept = np.clip(second, -_LARGEST - np.minimum(first, 0), _LARGEST - np.maximum(first, 0))
        weights[:, 1::2] = kept
        rest = (second - kept).astype(np.int8)
        is_cut = rest.any(axis=-1)
        cut_order = np.argsort(~is_cut, axis=1, kind="stable")
        again = np.zeros_like(weights)
        again[:, 0::2] = np.take_along_axis(rest, cut_order[:, :, None], axis=1)
        weights = np.concatenate([weights, again], axis=1)
        cut_sources = np.take_along_axis(sources[:, 1::2], cut_order, axis=1)
        sources = np.concatenate([sources, np.repeat(cut_sources, _PAIR, axis=1)], axis=1)
        is_cut_step = np.arange(0, REACH, _STEP_BYTES) < _PAIR * is_cut.sum(axis=1)[:, None]
        is_used = np.concatenate([is_used, is_cut_step], axis=1)
    count, columns = len(blocks), blocks.shape[-1]
    by_word = weights.reshape(count, -1, STEP_WORDS, WORD, columns).swapaxes(-1, -2)
    return _Steps(sources.reshape(count, -1, _STEP_BYTES), np.ascontiguousarray(by_word), is_used)


def _partners(blocks: np.ndarray, exists: np.ndarray) -> np.ndarray:
    """Return each byte's partner ``[block][REACH]`` so that all pairs are safe; ``_NOBODY`` for bytes without one."""
    partners = np.tile(np.arange(REACH) ^ 1, (len(blocks), 1))
    signed = np.stack([np.maximum(blocks, 0), -np.minimum(blocks, 0)], axis=2).view(np.uint8)  # -(-128) is 128 there
    sizes = signed.reshape(len(blocks), REACH, -1)
    is_safe = (sizes[:, 0::2] <= _LARGEST - sizes[:, 1::2]).all(axis=(1, 2)) & exists.all(axis=1)
    others = np.flatnonzero(~is_safe)
    if others.size:
        partners[others] = _matched(sizes[others].transpose(1, 2, 0), exists[others].T).T
    return partners


def _matched(sizes: np.ndarray, exists: np.ndarray) -> np.ndarray:
    """Pair bytes, those with the fewest possible partners first, each with the one that has the fewest itself.

    Args:
        sizes: uint8 ``[REACH][column and sign][block]``.
        exists: bool ``[REACH][block]``.

    Returns:
        The partners, ``[REACH][block]``.
    """
    count = sizes.shape[-1]
    sizes = np.ascontiguousarray(sizes)
    room = _LARGEST - sizes
    fits = np.zeros((REACH, REACH, count), bool)
    for i in range(REACH):
        for j in range(i + 1, REACH):
            fits[i, j] = fits[j, i] = (sizes[i] <= room[j]).all(axis=0)
    own, everywhere = np.arange(REACH, dtype=np.uint8)[:, None], np.arange(count)
    is_free = exists.copy()
    partners = np.full((REACH, count), _NOBODY)
    for _ in range(REACH // _PAIR):
        fits_free = fits & is_free
        possible = fits_free.sum(axis=1, dtype=np.uint8)
        rank = np.minimum(possible, REACH - 2) * REACH + own  # below 255, also of the last byte
        chosen = np.where(is_free & (possible > 0), rank, 255).min(axis=0)
        i = chosen % REACH
        j = np.where(fits_free[i, :, everywhere].T, rank, 255).min(axis=0) % REACH
        live = np.flatnonzero(chosen != 255)
        if not live.size:
            break
        i, j = i[live], j[live]
        partners[i, live], partners[j, live] = j, i
        is_free[i, live] = is_free[j, live] = False
    return partners


class BoundedProducts:
    """Multiplies the words of a step."""

    def __init__(self, emitter: Emitter, target: Target) -> None:
        self._emitter, self._target = emitter, target
        self._bytes = vector_type(target.lanes * WORD, "i8")

    def sources(self, entry: Operand) -> list[Operand]:
        """Load where a step's words find their activations, as ``spread`` wants it."""
        emitter, found = self._emitter, []
        for index in range(1, ENTRY_WORDS):
            word = emitter.load("i32", emitter.element(entry, index, "i32"), WORD)
            found.append(self._as_bytes(emitter.splat(word, self._target.lanes)))
        return found

    def spread(self, address: Operand, sources: list[Operand], is_signed: bool) -> list[Operand]:
        """Return a step's words of activations; signed ones become unsigned, larger by 128."""
        emitter, nbytes = self._emitter, self._target.lanes * WORD
        near = emitter.load(vector_type(REACH, "i8"), address, 1)
        lanes = ", ".join(f"i32 {i % REACH}" for i in range(nbytes))
        a = emitter.assign(self._bytes, f"shufflevector {near.typed}, {near.typed}, <{nbytes} x i32> <{lanes}>")
        if is_signed:
            a = emitter.assign(self._bytes, f"xor {a.typed}, {splat_text(-128, 8, nbytes)}")
        return [emitter.call(self._bytes, _SHUFFLES[self._target.lanes], a, source) for source in sources]

    def add(self, total: Operand, a: Operand, address: Operand) -> Operand:
        """Return the sums increased by the products of a word with the weights at an address."""
        emitter, lanes = self._emitter, self._target.lanes
        sum_pairs = pair_instruction(self._target)
        assert sum_pairs is not None
        halves = vector_type(lanes * 2, "i16")
        pairs = emitter.call(halves, _SUMS[lanes], a, emitter.load(self._bytes, address, WORD))
        product = emitter.call(total.type, sum_pairs, pairs, Operand(halves, splat_text(1, 16, lanes * 2)))
        return emitter.assign(total.type, f"add {total.typed}, {product.text}")

    def _as_bytes(self, words: Operand) -> Operand:
        return self._emitter.assign(self._bytes, f"bitcast {words.typed} to {self._bytes}")
