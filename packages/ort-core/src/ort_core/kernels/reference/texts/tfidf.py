"""TfIdfVectorizer: count the n-grams of a pool in every row, with skips, and weigh the counts.

Tokens become numbers, and n-grams become numbers step by step: (number of the prefix, number of the next token)
is looked up in the sorted pairs that the pool holds. So a window of n tokens costs n binary searches, vectorized
over all windows of all rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.frozen import frozen
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.axes import check_size, shape_text


@frozen
class NgramPool:
    """The decoded pool: token numbers, sorted (prefix, token) pairs per depth, and the output column of n-grams.

    ``pairs[d]`` are the sorted keys ``prefix * len(tokens) + token`` of depth d; the position of a key is the
    number of that prefix at depth d + 1. ``columns[d]`` is the output column of each, or -1.
    """

    tokens: dict[object, int]
    pairs: tuple[np.ndarray, ...]
    columns: tuple[np.ndarray, ...]
    width: int
    single: np.ndarray  # the column of each token on its own, -1 where the pool has it in longer n-grams only


def decode_pool(
    pool: Sequence[object], ngram_counts: Sequence[int], ngram_indexes: Sequence[int], longest: int
) -> NgramPool:
    """Decode the attributes; ``ngram_counts[n - 1]`` is where the n-grams of length n start in ``pool``."""
    tokens: dict[object, int] = {}
    for token in pool:
        tokens.setdefault(token, len(tokens))
    numbers = np.array([tokens[token] for token in pool], np.int64)
    starts = [*ngram_counts, len(pool)]
    grams = []  # (n-grams as token numbers [count, n], their columns)
    used = 0
    for size, (start, stop) in enumerate(itertools.pairwise(starts), 1):
        count, rest = divmod(stop - start, size)
        if start < 0 or not start <= stop <= len(pool) or rest:
            raise InvalidArgument(
                f"TfIdfVectorizer: the pool holds {stop - start} tokens for n-grams of length {size} (ngram_counts "
                f"{list(ngram_counts)}, pool of {len(pool)}); it must be a multiple of {size}"
            )
        grams.append((numbers[start:stop].reshape(count, size), np.array(ngram_indexes[used : used + count], np.int64)))
        used += count
    if min(ngram_indexes, default=0) < 0:
        raise InvalidArgument(f"TfIdfVectorizer: negative ngram_indexes are not allowed, got {min(ngram_indexes)}")
    if used != len(ngram_indexes):
        raise InvalidArgument(f"TfIdfVectorizer: {len(ngram_indexes)} ngram_indexes for {used} n-grams in the pool")
    pairs, columns = _trie(grams, max(len(tokens), 1), min(longest, len(grams)))
    single = np.full(len(tokens) + 1, -1, np.int64)
    if pairs:
        single[pairs[0]] = columns[0]
    return NgramPool(tokens, pairs, columns, max(ngram_indexes, default=-1) + 1, single)


def _trie(
    grams: Sequence[tuple[np.ndarray, np.ndarray]], base: int, depth: int
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    prefixes = [np.zeros(len(tokens), np.int64) for tokens, _ in grams]
    pairs, columns = [], []
    for level in range(depth):
        keys = [prefixes[i] * base + grams[i][0][:, level] for i in range(level, len(grams))]
        known = np.unique(np.concatenate(keys))
        column = np.full(len(known), -1, np.int64)
        column[np.searchsorted(known, keys[0])] = grams[level][1]
        for i, key in zip(range(level, len(grams)), keys, strict=True):
            prefixes[i] = np.searchsorted(known, key)
        pairs.append(known)
        columns.append(column)
    return tuple(pairs), tuple(columns)


@kernel("TfIdfVectorizer", since=9)
def tfidf_vectorizer(
    data: np.ndarray,
    *,
    mode: str,
    min_gram_length: int,
    max_gram_length: int,
    max_skip_count: int,
    ngram_counts: tuple[int, ...],
    ngram_indexes: tuple[int, ...],
    pool_int64s: tuple[int, ...] | None = None,
    pool_strings: tuple[str, ...] | None = None,
    weights: tuple[float, ...] | None = None,
    ctx: KernelContext,
) -> np.ndarray:
    """Y[row, column of n-gram] = its count (TF), its weight if present (IDF), or count times weight (TFIDF)."""
    if data.ndim > 2:
        raise InvalidArgument(f"Input shape must have either [C] or [B,C] dimensions, got {shape_text(data.shape)}")
    if min_gram_length < 1 or max_skip_count < 0:
        raise InvalidArgument(
            f"TfIdfVectorizer: min_gram_length {min_gram_length} must be at least 1, max_skip_count {max_skip_count} "
            f"at least 0"
        )
    pool = ctx.state.get("pool")
    if pool is None:
        entries = pool_strings if pool_strings else pool_int64s or ()
        pool = decode_pool(entries, ngram_counts, ngram_indexes, max_gram_length)
        ctx.state["pool"] = pool
    rows = data if data.ndim == 2 else data.reshape((1, data.size))
    check_size((len(rows), pool.width), np.dtype(np.float32), "TfIdfVectorizer", ctx)
    counts = _counts(_token_numbers(rows, pool.tokens), pool, min_gram_length, max_gram_length, max_skip_count)
    out = _weighted(counts, mode, weights, ngram_indexes)
    return out if data.ndim == 2 else out[0]


def _token_numbers(rows: np.ndarray, tokens: dict[object, int]) -> np.ndarray:
    """Return the number of each token, -1 for one that the pool does not hold."""
    found = map(tokens.get, rows.reshape(-1).tolist(), itertools.repeat(-1))
    return np.fromiter(found, np.int64, rows.size).reshape(rows.shape)


def _counts(numbers: np.ndarray, pool: NgramPool, shortest: int, longest: int, max_skip: int) -> np.ndarray:
    rows, length = numbers.shape
    cells: list[np.ndarray] = [np.empty(0, np.int64)]
    for size in range(shortest, min(longest, len(pool.pairs)) + 1):
        for distance in range(1, 2 if size == 1 else max_skip + 2):
            windows = length - (size - 1) * distance
            if windows <= 0:
                break
            columns = _columns(numbers, pool, size, distance, windows)
            place = columns + (np.arange(rows) * pool.width)[:, None]
            cells.append(place[columns >= 0])
    return np.bincount(np.concatenate(cells), minlength=rows * pool.width).reshape(rows, pool.width)


def _columns(numbers: np.ndarray, pool: NgramPool, size: int, distance: int, windows: int) -> np.ndarray:
    """Return the output column of the n-gram that starts at each position, -1 where the pool has none."""
    base = max(len(pool.tokens), 1)
    if size == 1:
        return pool.single[numbers]  # the last entry is that of -1
    prefix = np.zeros((len(numbers), windows), np.int64)
    for level in range(size):
        token = numbers[:, level * distance : level * distance + windows]
        key = np.where((prefix < 0) | (token < 0), -1, prefix * base + token)
        known = pool.pairs[level]
        if not known.size:
            return np.full(prefix.shape, -1, np.int64)
        place = np.minimum(np.searchsorted(known, key), known.size - 1)
        prefix = np.where(known[place] == key, place, -1)
    return np.where(prefix < 0, -1, pool.columns[size - 1][prefix])


def _weighted(
    counts: np.ndarray, mode: str, weights: Sequence[float] | None, ngram_indexes: Sequence[int]
) -> np.ndarray:
    if mode not in ("TF", "IDF", "TFIDF"):
        raise InvalidArgument(f"TfIdfVectorizer: unknown mode {mode!r}; known: TF, IDF, TFIDF")
    if mode == "TF":
        return counts.astype(np.float32)
    per_column = np.ones(counts.shape[1], np.float32)
    if weights:
        per_column[list(ngram_indexes)] = np.asarray(weights, np.float32)
    factor = (counts > 0) if mode == "IDF" else counts
    return factor.astype(np.float32) * per_column
