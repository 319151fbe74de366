"""The search for pairs of weights that are safe in all columns of a panel (``bounded_pairs`` says what they are for).

Most words of trained weights are safe in one of the three ways to cut four bytes into pairs, which a table of all pairs
tells. Blocks in which a word is not are searched whole: bytes with the fewest possible partners choose first.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from ort_core.cpu.codegen.quantized.integer_dot import WORD

REACH = 16  # bytes of a block, which may be paired with each other
STEP_WORDS = 2
LARGEST = 128  # sum of a pair's positive weights, and of its negative ones: 255 * 128 <= 32767
_STEP_BYTES = STEP_WORDS * WORD
_STEPS = REACH // _STEP_BYTES
_PAIR = 2
_PAIRINGS = np.array([(0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 1, 2)])  # every way to cut a word in pairs
_NOBODY = REACH  # instead of a partner
_LANES = 8  # truth values that numpy combines at once, as one integer
_SEARCHED_AT_ONCE = 1 << 10  # blocks: what is looked at then stays in the second-level cache


@dataclass(frozen=True, slots=True)
class PairedSteps:
    """Steps of eight bytes each that multiply blocks by their weights.

    Attributes:
        blocks: which block each belongs to, rising.
        sources: uint8 ``[step][8]``, places in the block.
        weights: int8 ``[step][word][column][4]``, all of their pairs safe.
    """

    blocks: np.ndarray
    sources: np.ndarray
    weights: np.ndarray


def paired_steps(words: np.ndarray, exists: np.ndarray) -> PairedSteps:
    """Return the steps of blocks.

    Args:
        words: int8 ``[block][REACH / 4][column][4]``.
        exists: bool ``[block][REACH]``; bytes that do not exist are left out.
    """
    kinds = _pairings_of(words)
    is_hard = (kinds == len(_PAIRINGS)).any(axis=1) | ~exists.all(axis=1)
    easy, hard = np.flatnonzero(~is_hard), np.flatnonzero(is_hard)
    parts = [_within_words(words[easy], kinds[easy], easy)]
    for first in range(0, len(hard), _SEARCHED_AT_ONCE):
        some = hard[first : first + _SEARCHED_AT_ONCE]
        parts.append(_searched(words[some], exists[some], some))
    blocks = np.concatenate([part.blocks for part in parts])
    order = np.argsort(blocks, kind="stable")
    sources, weights = (np.concatenate(each) for each in zip(*((p.sources, p.weights) for p in parts), strict=True))
    return PairedSteps(blocks[order], sources[order], weights[order])


def _pairings_of(words: np.ndarray) -> np.ndarray:
    """Return the first pairing in which each word is safe ``[block][word]``, ``len(_PAIRINGS)`` if in none."""
    rows = words.reshape(-1, words.shape[2], WORD)
    found = np.full(len(rows), len(_PAIRINGS), np.uint8)
    left = np.arange(len(rows))
    for number, pairing in enumerate(_PAIRINGS):
        tried = rows if number == 0 else np.ascontiguousarray(rows[left][..., pairing])
        pairs = tried.reshape(len(left), words.shape[2] * WORD).view(np.uint16)
        is_safe = np.take(_safe_pairs(), pairs).all(axis=-1)
        found[left[is_safe]] = number
        left = left[~is_safe]
    return found.reshape(words.shape[:2])


@functools.cache
def _safe_pairs() -> np.ndarray:
    """Return for each pair of int8, read as one uint16, whether it is safe."""
    pairs = np.arange(1 << 16, dtype=np.uint16).view(np.int8).reshape(-1, _PAIR).astype(np.int16)
    return np.asarray((np.maximum(pairs, 0).sum(axis=1) <= LARGEST) & (np.minimum(pairs, 0).sum(axis=1) >= -LARGEST))


def _within_words(words: np.ndarray, kinds: np.ndarray, blocks: np.ndarray) -> PairedSteps:
    """Return the steps of blocks whose words are safe in the pairings that ``kinds`` says; ``words`` is overwritten."""
    for number, pairing in enumerate(_PAIRINGS[1:], 1):
        chosen = kinds == number
        words[chosen] = words[chosen][..., pairing]
    sources = _PAIRINGS[kinds] + np.arange(0, REACH, WORD)[:, None]
    shape = (len(blocks) * _STEPS, STEP_WORDS, *words.shape[2:])
    return PairedSteps(
        np.repeat(blocks, _STEPS), sources.astype(np.uint8).reshape(-1, _STEP_BYTES), words.reshape(shape)
    )


def _searched(words: np.ndarray, exists: np.ndarray, blocks: np.ndarray) -> PairedSteps:
    """Return the steps of blocks, paired beyond their words."""
    rows = np.ascontiguousarray(words.swapaxes(-1, -2)).reshape(len(words), REACH, -1)
    order = _order(_partners(rows, exists))
    rows = _rows_in_order(rows, order)
    sources = order.astype(np.uint8)
    is_used = np.arange(0, REACH, _STEP_BYTES) < exists.sum(axis=1)[:, None]
    again = _cut_to_safe(rows)
    if again is not None:
        more_rows, places, more_used = again
        rows = np.concatenate([rows, more_rows], axis=1)
        sources = np.concatenate([sources, np.take_along_axis(sources, places, axis=1)], axis=1)
        is_used = np.concatenate([is_used, more_used], axis=1)
    chosen = np.flatnonzero(is_used)
    steps = rows.reshape(-1, STEP_WORDS, WORD, rows.shape[-1])[chosen].swapaxes(-1, -2)
    return PairedSteps(
        blocks[chosen // is_used.shape[1]], sources.reshape(-1, _STEP_BYTES)[chosen], np.ascontiguousarray(steps)
    )


def _partners(rows: np.ndarray, exists: np.ndarray) -> np.ndarray:
    """Return each byte's partner ``[block][REACH]`` in pairs that are safe, as many as are found.

    Without one a byte has ``_NOBODY`` if it exists, ``_NOBODY + 1`` if not.
    """
    fitting = _fitting(rows)
    free = np.packbits(exists, axis=1, bitorder="little").view("<u2")[:, 0]
    partners = np.where(exists.T, _NOBODY, _NOBODY + 1)
    own, everywhere = np.arange(REACH, dtype=np.uint16)[:, None], np.arange(len(rows))
    for _ in range(REACH // _PAIR):
        possible = np.bitwise_count(fitting & free)
        rank = np.minimum(possible, REACH - 2) * REACH + own.astype(np.uint8)  # below 255, also of the last byte
        chosen = np.where((free >> own & 1 == 1) & (possible > 0), rank, 255).min(axis=0)
        i = chosen % REACH
        j = np.where((fitting[i, everywhere] & free) >> own & 1 == 1, rank, 255).min(axis=0) % REACH
        live = np.flatnonzero(chosen != 255)
        i, j = i[live], j[live]
        partners[i, live], partners[j, live] = j, i
        free[live] &= ~(np.uint16(1) << i | np.uint16(1) << j)
    return partners.T


def _fitting(rows: np.ndarray) -> np.ndarray:
    """Return for each byte, ``[REACH][block]``, a bit for each byte beside which it is safe in all columns."""
    count = -(-len(rows) // _LANES) * _LANES
    by_byte = np.zeros((REACH, rows.shape[-1], count), np.int8)
    by_byte[..., : len(rows)] = rows.transpose(1, 2, 0)
    sizes = np.concatenate([np.maximum(by_byte, 0), -np.minimum(by_byte, 0)], axis=1).view(np.uint8)  # -(-128) is 128
    room = LARGEST - sizes
    found = np.zeros((REACH, count), np.uint16)
    for i in range(REACH):
        for j in range(i + 1, REACH):
            is_safe = np.bitwise_and.reduce((sizes[i] <= room[j]).view(np.uint64), axis=0).view(np.uint8)
            found[i] |= is_safe.astype(np.uint16) << j
            found[j] |= is_safe.astype(np.uint16) << i
    return found[:, : len(rows)]


def _order(partners: np.ndarray) -> np.ndarray:
    """Return an order of bytes in which partners stand side by side, then those without one that exist."""
    own = np.arange(REACH)
    paired = _PAIR * np.minimum(partners, own) + (partners < own)
    key = np.where(partners >= _NOBODY, partners * REACH + own, paired)
    return np.argsort(key.astype(np.uint16), axis=1)


def _rows_in_order(rows: np.ndarray, order: np.ndarray) -> np.ndarray:
    whole = np.ascontiguousarray(rows).view(f"V{rows.shape[-1]}")[..., 0]
    return np.take_along_axis(whole, order, axis=1)[..., None].view(np.int8)


def _cut_to_safe(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Cut the second weight of each pair ``[block][REACH][column]`` to what is safe beside the first, in place.

    Returns:
        Rows of what was cut off, each alone in its pair, from which of ``rows`` each comes, and which steps of them
        hold any; ``None`` if nothing was.
    """
    first, second = rows[:, 0::2].astype(np.int16), rows[:, 1::2].astype(np.int16)
    kept = np.clip(second, -LARGEST - np.minimum(first, 0), LARGEST - np.maximum(first, 0))
    rest = (second - kept).astype(np.int8)
    is_cut = rest.any(axis=-1)
    if not is_cut.any():
        return None
    rows[:, 1::2] = kept
    pairs = np.argsort(~is_cut, axis=1, kind="stable")
    again = np.zeros_like(rows)
    again[:, 0::2] = np.take_along_axis(rest, pairs[:, :, None], axis=1)
    is_used = np.arange(0, REACH, _STEP_BYTES) < _PAIR * is_cut.sum(axis=1)[:, None]
    return again, np.repeat(_PAIR * pairs + 1, _PAIR, axis=1), is_used
