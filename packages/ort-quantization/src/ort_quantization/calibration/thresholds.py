"""Limits that follow from counts in bins: by percentile, by entropy, or moments for 8 bit floats."""

from __future__ import annotations

import numpy as np

from ort_quantization.errors import InvalidQuantization

_EPSILON = 1e-4  # what an empty bin is smoothed to before distributions are compared


def percentile_limits(
    counts: np.ndarray, edges: np.ndarray, percentile: float, is_symmetric: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the range that leaves out as many of the outermost numbers as a percentile says.

    Args:
        counts: (bins,), of absolute values where the range is symmetric.
        edges: ends of the bins (bins + 1,); the ends of the range are among them.
        percentile: 0 to 100: how much of the numbers the range keeps.
        is_symmetric: both ends lie as far from zero.
    """
    if is_symmetric:
        high = edges[_place(counts, percentile / 100)]
        return -high, high
    outside = (100 - percentile) / 200
    return edges[_place(counts, outside)], edges[_place(counts, 1 - outside)]


def _place(counts: np.ndarray, share: float) -> int:
    return min(int(np.searchsorted(np.cumsum(counts / counts.sum()), share)), counts.size)


def cut(
    limits: tuple[np.ndarray, np.ndarray], least: np.ndarray, most: np.ndarray, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """Return a range within what was seen."""
    low, high = limits
    return np.array(max(low, dtype.type(least)), dtype), np.array(min(high, dtype.type(most)), dtype)


def entropy_limits(counts: np.ndarray, edges: np.ndarray, num_quantized_bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the range around zero whose numbers lose least when they are put into few bins.

    Of each range around the middle, the distribution of all numbers, those outside moved into the outermost bins, is
    compared with that of the numbers inside put into ``num_quantized_bins``: by Kullback and Leibler's divergence.
    """
    num_bins = counts.size
    middle, least = num_bins // 2, num_quantized_bins // 2
    widths = range(least, middle + 1)
    if not widths:
        raise InvalidQuantization(f"{num_bins} bins cannot be put into {num_quantized_bins}; ask for more")
    ranges = [(middle - width, min(middle + width + 1, num_bins)) for width in widths]
    losses = [_divergence(counts, start, end, num_quantized_bins) for start, end in ranges]
    start, end = ranges[int(np.argmin(losses))]
    return edges[start], edges[end]


def _divergence(counts: np.ndarray, start: int, end: int, num_quantized_bins: int) -> float:
    inside = counts[start:end]
    whole = inside.copy()
    whole[0] += counts[:start].sum()
    whole[-1] += counts[end:].sum()
    merged = inside.size // num_quantized_bins
    covered = merged * num_quantized_bins
    sums = inside[:covered].reshape(num_quantized_bins, merged).sum(axis=1)
    sums[-1] += inside[covered:].sum()
    filled = (whole[:covered] != 0).reshape(num_quantized_bins, merged).sum(axis=1)
    spread = np.zeros(inside.size, np.int64)
    spread[:covered] = np.repeat(np.divide(sums, filled, out=np.zeros(sums.shape), where=filled != 0), merged)
    first, second = smooth_distribution(whole), smooth_distribution(spread)
    return np.inf if first is None or second is None else float(entropy(first, second))


def smooth_distribution(p: np.ndarray, eps: float = _EPSILON) -> np.ndarray | None:
    """Return a distribution without empty bins: what they get is taken from the others.

    Args:
        p: counts.
        eps: what an empty bin gets.

    Returns:
        float32, or ``None`` where all bins are empty.
    """
    is_empty = p == 0
    empty = int(np.count_nonzero(is_empty))
    if empty == p.size:
        return None
    taken = eps * empty / (p.size - empty)
    return np.where(is_empty, np.float32(eps), p.astype(np.float32) - np.float32(taken))


def rel_entr(pk: np.ndarray, qk: np.ndarray) -> np.ndarray:
    """Return the terms of the relative entropy: p log(p / q), 0 where p is 0, infinite where q is none."""
    is_both = (pk > 0) & (qk > 0)
    logarithms = np.log(np.divide(pk, qk, out=np.ones_like(pk), where=is_both))
    return np.where(is_both, pk * logarithms, np.where((pk == 0) & (qk >= 0), pk.dtype.type(0), np.inf)).astype(
        pk.dtype
    )


def entropy(pk: np.ndarray, qk: np.ndarray, base: float | None = None, axis: int = 0) -> np.ndarray:
    """Return the relative entropy of one distribution to another, in float32.

    Args:
        pk: the one, as counts or probabilities.
        qk: the other.
        base: of the logarithm; e by default.
        axis: along which bins lie.
    """
    if base is not None and base <= 0:
        raise InvalidQuantization(f"the base of a logarithm is positive; found {base}")
    shares = [np.asarray(each, np.float32) for each in (pk, qk)]
    first, second = np.broadcast_arrays(*(each / each.sum(axis=axis, keepdims=True) for each in shares))
    total = rel_entr(first, second).sum(axis=axis)
    return np.asarray(total if base is None else total / np.log(base), np.float32)


def moments(counts: np.ndarray, edges: np.ndarray, scenario: str) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of the middles of bins, by which 8 bit floats are scaled.

    Args:
        counts: (bins,).
        edges: ends of the bins (bins + 1,).
        scenario: ``same``: of the numbers; ``p3``: of their cube roots.
    """
    wide = edges.astype(np.promote_types(edges.dtype, np.float32))  # squares of float16 overflow from 256 on
    middles = (wide[:-1] + wide[1:]) * 0.5
    if scenario == "p3":
        middles = np.cbrt(middles)
    total = counts.sum()
    mean = (counts * middles).sum() / total
    deviation = np.sqrt(max((counts * middles**2).sum() / total - mean**2, 0.0))
    return np.array(mean, edges.dtype), np.array(deviation, edges.dtype)
