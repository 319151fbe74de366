"""Ranges that follow from histograms: by percentile, by entropy, or moments for 8 bit floats."""

from __future__ import annotations

import numpy as np

from ort_quantization.calibration.histograms import Histogram
from ort_quantization.calibration.tensor_ranges import TensorData
from ort_quantization.errors import InvalidQuantization

_EPSILON = 1e-4  # what an empty bin is smoothed to before distributions are compared


def by_percentile(histogram: Histogram, num_bins: int, percentile: float, is_symmetric: bool) -> TensorData:
    """Return the range that leaves out as many of the outermost numbers as a percentile says.

    Args:
        histogram: of the tensor.
        num_bins: the ends of the range are ends of so many bins.
        percentile: 0 to 100: how much of the numbers the range keeps.
        is_symmetric: by absolute values, with both ends as far from zero.
    """
    if is_symmetric:
        counts, edges = histogram.of_magnitudes(num_bins)
        high = edges[_place(counts, percentile / 100)]
        low = -high
    else:
        counts, edges = histogram.between(-histogram.reach, histogram.reach, num_bins)
        cut = (100 - percentile) / 200
        low, high = edges[_place(counts, cut)], edges[_place(counts, 1 - cut)]
    return _cut(histogram, low, high, counts, edges)


def _place(counts: np.ndarray, share: float) -> int:
    return min(int(np.searchsorted(np.cumsum(counts / counts.sum()), share)), counts.size)


def _cut(histogram: Histogram, low: np.ndarray, high: np.ndarray, counts: np.ndarray, edges: np.ndarray) -> TensorData:
    """Return a range within what was seen."""
    dtype = edges.dtype
    low, high = max(low, dtype.type(histogram.least)), min(high, dtype.type(histogram.most))
    return TensorData(lowest=np.array(low, dtype), highest=np.array(high, dtype), hist=counts, bins=edges)


def by_entropy(histogram: Histogram, num_bins: int, num_quantized_bins: int) -> TensorData:
    """Return the range around zero whose numbers lose least when they are put into few bins.

    Of each range around the middle, the distribution of all numbers, those outside moved into the outermost bins, is
    compared with that of the numbers inside put into ``num_quantized_bins``: by Kullback and Leibler's divergence.
    """
    counts, edges = histogram.between(-histogram.reach, histogram.reach, num_bins)
    middle, least = num_bins // 2, num_quantized_bins // 2
    widths = range(least, middle + 1)
    if not widths:
        raise InvalidQuantization(f"{num_bins} bins cannot be put into {num_quantized_bins}; ask for more")
    ranges = [(middle - width, min(middle + width + 1, num_bins)) for width in widths]
    losses = [_divergence(counts, start, end, num_quantized_bins) for start, end in ranges]
    start, end = ranges[int(np.argmin(losses))]
    return _cut(histogram, edges[start], edges[end], counts, edges)


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
    first, second = _smoothed(whole), _smoothed(spread)
    if first is None or second is None:
        return np.inf
    first, second = first / first.sum(), second / second.sum()
    return float((first * np.log(first / second)).sum())


def _smoothed(counts: np.ndarray) -> np.ndarray | None:
    """Return a distribution without empty bins: what they get is taken from the others."""
    is_empty = counts == 0
    empty = int(np.count_nonzero(is_empty))
    if empty == counts.size:
        return None
    taken = _EPSILON * empty / (counts.size - empty)
    found = counts.astype(np.float32)
    return np.where(is_empty, np.float32(_EPSILON), found - np.float32(taken))


def by_distribution(histogram: Histogram, num_bins: int, scenario: str) -> TensorData:
    """Return mean and standard deviation, by which 8 bit floats are scaled, and the range.

    Args:
        histogram: of the tensor.
        num_bins: the moments are those of the middles of so many bins.
        scenario: ``same``: of the numbers; ``p3``: of their cube roots.
    """
    counts, edges = histogram.between(-histogram.reach, histogram.reach, num_bins)
    wide = edges.astype(np.promote_types(edges.dtype, np.float32))  # squares of float16 overflow from 256 on
    middles = (wide[:-1] + wide[1:]) * 0.5
    if scenario == "p3":
        middles = np.cbrt(middles)
    total = counts.sum()
    mean = (counts * middles).sum() / total
    deviation = np.sqrt(max((counts * middles**2).sum() / total - mean**2, 0.0))
    moments = {"avg": np.array(mean, edges.dtype), "std": np.array(deviation, edges.dtype)}
    return TensorData(**moments, hist=counts, hist_edges=edges, lowest=edges.min(), highest=edges.max())
