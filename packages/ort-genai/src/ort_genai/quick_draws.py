"""Draws of a whole vocabulary by sums in float32, where these decide; the tokens are those of float64.

A draw is a place among the shares of all tokens, laid one behind the other. Shares in float32 are off by less than
``_MARGIN`` of all: a token whose ends are farther than that from the place is the one. Where the place is near an end,
nothing is said, and float64 decides.
"""

from __future__ import annotations

import numpy as np

from ort_genai.search_options import SearchOptions

Array = np.ndarray
_MARGIN = 1e-4  # of all shares; differences of logits are rounded by 2e-6, quotients of up to 104 by 1e-5
_BLOCK = 64  # shares that are added up at once
_COLDEST = 1e-30  # a temperature below it is none in float32


def find_token(logits: Array, best: float, options: SearchOptions, place: float) -> int | None:
    """Return the token that a draw takes, ``None`` where sums in float32 do not tell.

    Args:
        logits: float32 (vocabulary,), penalized.
        best: the largest of them, a finite number.
        options: of the search, without ``top_k``.
        place: where the draw is, from 0 to 1.
    """
    if logits.dtype != np.float32 or not np.isfinite(best) or options.temperature < _COLDEST:
        return None
    with np.errstate(over="ignore", under="ignore"):  # of temperatures near 0: what is not the most likely has no share
        shares = logits - np.float32(best)
        shares /= np.float32(options.temperature)
        np.exp(shares, out=shares)
    whole = len(shares) // _BLOCK * _BLOCK
    ends = np.cumsum(shares[:whole].reshape(-1, _BLOCK).sum(axis=1), dtype=np.float64)
    total = float(shares[whole:].sum(dtype=np.float64)) + (float(ends[-1]) if len(ends) else 0.0)
    limit = options.top_p if 0 < options.top_p < 1 else 1.0
    if options.min_p > 0 or limit < 1:
        return _among_likely(logits, shares, total, best, limit, options, place)
    wanted, margin = place * total, _MARGIN * total
    block = int(np.searchsorted(ends, wanted, side="right"))
    before = float(ends[block - 1]) if block else 0.0
    inside = before + np.cumsum(shares[block * _BLOCK : (block + 1) * _BLOCK], dtype=np.float64)
    number = int(np.searchsorted(inside, wanted, side="right"))
    if number == len(inside):
        return None
    start = float(inside[number - 1]) if number else before
    is_sure = wanted - start > margin and float(inside[number]) - wanted > margin
    return block * _BLOCK + number if is_sure else None


def _among_likely(
    logits: Array, shares: Array, total: float, best: float, limit: float, options: SearchOptions, place: float
) -> int | None:
    """Return the token among those that ``top_p`` and ``min_p`` leave; what they leave is computed in float64."""
    least = max(options.min_p, (1 - limit) / len(shares) * total)  # the most likely token has a share of 1 here
    tokens = np.flatnonzero(shares >= np.float32(least * (1 - 10 * _MARGIN)))
    with np.errstate(over="ignore"):
        exact = np.exp((logits[tokens].astype(np.float64) - best) / options.temperature)
    if options.min_p > 0:
        is_kept = exact >= options.min_p
        tokens, exact = tokens[is_kept], exact[is_kept]
    order = _largest_first(exact)
    tokens, ends = tokens[order], np.cumsum(exact[order])
    before = ends - exact[order]
    counts = [len(tokens)]
    if limit < 1:  # how many there are is known within what the total is
        limits = [(limit + sign * 2 * _MARGIN) * total for sign in (-1, 1)]
        counts = [max(int(np.searchsorted(before, each, side="left")), 1) for each in limits]
    found = {min(int(np.searchsorted(ends, place * ends[count - 1], side="right")), count - 1) for count in counts}
    return int(tokens[found.pop()]) if len(found) == 1 else None


def _largest_first(shares: Array) -> Array:
    """Return the order of shares: the largest first, of equal ones the first."""
    order = np.argsort(-shares)  # by vectors, which keep no order of equal ones
    found = shares[order]
    return np.argsort(-shares, kind="stable") if (found[1:] == found[:-1]).any() else order
