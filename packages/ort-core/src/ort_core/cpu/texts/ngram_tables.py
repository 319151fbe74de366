"""The tables by which text becomes n-gram counts: slots of tokens and of n-grams, and the columns of both."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ort_core.cpu.codegen.texts.token_counts import HASH_FACTOR, HASH_SHIFT
from ort_core.plugin import Rejection, frozen
from ort_core.plugin.ir import Node

Words = npt.NDArray[np.int64]
MODES = ("TF", "IDF", "TFIDF")
EMPTY = -1


@frozen
class NgramTables:
    """Arrays as ``TokenArguments`` describes them, and the facts beside them."""

    hashes: npt.NDArray[np.uint64]
    numbers: Words
    starts: Words
    spelling: npt.NDArray[np.uint32]
    firsts: Words
    keys: Words
    nodes: Words
    columns: Words
    weights: npt.NDArray[np.float32]
    width: int
    longest: int


def ngram_tables(node: Node) -> NgramTables | Rejection:
    """Return the tables of a TfIdfVectorizer over strings, or a rejection where the reference has to say what is wrong.

    Of n-grams that are twice in the pool the last counts, as in the reference.
    """
    pool = _strings(node, "pool_strings")
    counts, columns = node.ints_attribute("ngram_counts") or (), node.ints_attribute("ngram_indexes") or ()
    if not pool or not columns or min(columns) < 0 or not counts or node.string_attribute("mode", "") not in MODES:
        return Rejection("no pool of strings, no columns, or an unknown mode", node)
    if node.int_attribute("min_gram_length", 0) < 1 or node.int_attribute("max_skip_count", 0) < 0:
        return Rejection("the reference says what is wrong with the lengths", node)
    number_of: dict[str, int] = {}
    for token in pool:
        number_of.setdefault(token, len(number_of))
    grams = _grams([number_of[token] for token in pool], counts)
    if isinstance(grams, Rejection) or len(grams) != len(columns):
        return Rejection("the pool is not cut into n-grams as ngram_counts says", node)
    if len(node.attribute("weights") or columns) != len(columns):  # type: ignore[arg-type]  # a tuple, as the schema has it
        return Rejection("weights for another number of n-grams", node)
    longest = min(node.int_attribute("max_gram_length", 0), len(counts))
    kept = [(gram, column) for gram, column in zip(grams, columns, strict=True) if len(gram) <= longest]
    firsts, children, of_node = _trie(kept, len(number_of))
    numbers, hashes, starts, spelling = _token_slots(list(number_of))
    keys, nodes = _node_slots(children, len(number_of))
    width = max(columns) + 1
    return NgramTables(
        hashes, numbers, starts, spelling, firsts, keys, nodes, of_node, _weights(node, columns, width), width, longest
    )


def _strings(node: Node, name: str) -> tuple[str, ...]:
    value = node.attribute(name)
    return tuple(map(str, value)) if isinstance(value, tuple) else ()


def _grams(numbers: Sequence[int], counts: Sequence[int]) -> list[tuple[int, ...]] | Rejection:
    grams: list[tuple[int, ...]] = []
    for size, (start, stop) in enumerate(itertools.pairwise([*counts, len(numbers)]), 1):
        if not 0 <= start <= stop <= len(numbers) or (stop - start) % size:
            return Rejection("a part of the pool is not a whole number of n-grams")
        grams.extend(tuple(numbers[at : at + size]) for at in range(start, stop, size))
    return grams


def _trie(grams: Sequence[tuple[tuple[int, ...], int]], tokens: int) -> tuple[Words, dict[tuple[int, int], int], Words]:
    """Return the node of each token alone, the node behind (node, token), and each node's column."""
    firsts = np.full(tokens, EMPTY, np.int64)
    children: dict[tuple[int, int], int] = {}
    columns: list[int] = []
    for gram, column in grams:
        node = int(firsts[gram[0]])
        if node < 0:
            firsts[gram[0]] = node = len(columns)
            columns.append(EMPTY)
        for token in gram[1:]:
            known = children.setdefault((node, token), len(columns))
            if known == len(columns):
                columns.append(EMPTY)
            node = known
        columns[node] = column
    return firsts, children, np.array(columns or [EMPTY], np.int64)


def _slot_count(entries: int) -> int:
    return 1 << max(1, (2 * entries).bit_length())  # more than twice as many slots: searches are short and do end


def _placed(hashes: npt.NDArray[np.uint64], size: int) -> Words:
    """Return the slot of each entry in an open table: the first empty one from where its hash points."""
    mixed = hashes ^ (hashes >> np.uint64(HASH_SHIFT))
    wanted = (mixed & np.uint64(size - 1)).astype(np.int64).tolist()
    taken = bytearray(size)
    places = []
    for slot in wanted:
        while taken[slot]:
            slot = (slot + 1) & (size - 1)
        taken[slot] = 1
        places.append(slot)
    return np.array(places, np.int64)


def _token_slots(
    tokens: Sequence[str],
) -> tuple[Words, npt.NDArray[np.uint64], Words, npt.NDArray[np.uint32]]:
    """Return the slots' token numbers and hashes, where each token's spelling starts, and all spellings (code + 1)."""
    text = "".join(tokens)
    spelling = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32) + np.uint32(1)
    lengths = np.array([len(token) for token in tokens], np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    own = np.zeros(len(tokens), np.uint64)
    for position in range(int(lengths.max(initial=0))):
        longer = np.flatnonzero(lengths > position)
        own[longer] = (own[longer] ^ spelling[starts[longer] + position]) * np.uint64(HASH_FACTOR)
    size = _slot_count(len(tokens))
    places = _placed(own, size)
    numbers, hashes = np.full(size, EMPTY, np.int64), np.zeros(size, np.uint64)
    numbers[places], hashes[places] = np.arange(len(tokens)), own
    return numbers, hashes, starts, np.append(spelling, np.uint32(0))


def _node_slots(children: dict[tuple[int, int], int], tokens: int) -> tuple[Words, Words]:
    own = np.array([node * tokens + token for node, token in children], np.int64)
    size = _slot_count(len(own))
    places = _placed(own.astype(np.uint64) * np.uint64(HASH_FACTOR), size)
    keys, nodes = np.zeros(size, np.int64), np.full(size, EMPTY, np.int64)
    keys[places], nodes[places] = own, np.array(list(children.values()), np.int64)
    return keys, nodes


def _weights(node: Node, columns: Sequence[int], width: int) -> npt.NDArray[np.float32]:
    """Return the weight of each column; 1 where the node gives none."""
    found = np.ones(width, np.float32)
    given = node.attribute("weights")
    if isinstance(given, tuple) and given:
        found[list(columns)] = np.array(given, np.float32)
    return found
