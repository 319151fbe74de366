"""Collectors of calibration: numbers of tensors by name go in, ranges come out. Names are onnxruntime's.

Programs read and replace the histogram of a tensor as a tuple: counts (bins,), ends of the bins (bins + 1,), the least
and the greatest number, and the reach on both sides of zero where the bins lie around it. Here a histogram is a stream
of bounded memory, and the tuple is read off it. A tuple that a program stores takes the place of the stream.
"""

from __future__ import annotations

import abc
import json
import logging
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import TypeAlias

import numpy as np

from ort_quantization.calibration.histograms import Histogram
from ort_quantization.calibration.tensor_ranges import TensorData
from ort_quantization.calibration.thresholds import cut, entropy_limits, moments, percentile_limits
from ort_quantization.errors import InvalidCalibration, InvalidQuantization

HistogramTuple: TypeAlias = tuple[np.ndarray, ...]
Numbers: TypeAlias = np.ndarray | Sequence[np.ndarray]
METHODS = ("distribution", "entropy", "percentile")

_MOST_BINS = 2**20  # of a tuple: 8 MB of counts, far more than ranges depend on
_NAMES = "names"
_FLOATS = (np.float16, np.float32)

log = logging.getLogger(__name__)


def refuse_without_numbers(name: str) -> None:
    """Refuse a value from whose numbers nothing follows.

    Raises:
        InvalidCalibration: always.
    """
    raise InvalidCalibration(
        f"value {name!r} had no finite number in any calibration sample: only NaN or infinities. Look for "
        "overflows in the float model, or exclude the nodes that read and give it from quantization"
    )


class CalibrationDataCollector(abc.ABC):
    """Takes the numbers of tensors, and says what follows from all of them."""

    @abc.abstractmethod
    def collect(self, name_to_arr: Mapping[str, Numbers]) -> None:
        """Take numbers of tensors by name: one array, or several."""

    @abc.abstractmethod
    def compute_collection_result(self) -> object:
        """Return what follows from the numbers so far."""


class HistogramTable(MutableMapping[str, HistogramTuple]):
    """Histograms by name, as the tuples that programs read.

    Args:
        num_bins: of the tuples.
        is_of_magnitudes: bins hold absolute values, and the tuple has no reach.
    """

    def __init__(self, num_bins: int, is_of_magnitudes: bool) -> None:
        self.streams: dict[str, Histogram] = {}
        self._num_bins = num_bins
        self._is_of_magnitudes = is_of_magnitudes
        self._stored: dict[str, HistogramTuple] = {}

    def __getitem__(self, name: str) -> HistogramTuple:
        if name in self._stored:
            return self._stored[name]
        stream = self.streams[name]
        if stream.is_empty:
            raise InvalidCalibration(f"value {name!r} had no finite number in any calibration sample")
        ends = (np.asarray(stream.least, stream.dtype), np.asarray(stream.most, stream.dtype))
        if self._is_of_magnitudes:
            return *stream.of_magnitudes(self._num_bins), *ends
        reach = stream.reach
        return *stream.between(-reach, reach, self._num_bins), *ends, np.asarray(reach, stream.dtype)

    def __setitem__(self, name: str, histogram: HistogramTuple) -> None:
        self.streams.pop(name, None)
        self._stored[name] = histogram

    def __delitem__(self, name: str) -> None:
        if self._stored.pop(name, None) is None:
            del self.streams[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self.streams, *self._stored])

    def __len__(self) -> int:
        return len(self.streams) + len(self._stored)

    def is_stored(self, name: str) -> bool:
        """Return whether a tensor's histogram is a tuple that a program stored."""
        return name in self._stored

    def stream(self, name: str) -> Histogram:
        """Return the stream of a tensor, a new one for a name that is not known."""
        if name not in self.streams:
            self.streams[name] = Histogram(self._num_bins)
        return self.streams[name]


class HistogramCollector(CalibrationDataCollector):
    """Counts numbers in bins, from which ranges follow.

    Args:
        method: ``entropy``, ``percentile`` or ``distribution``.
        symmetric: percentiles are those of absolute values.
        num_bins: of the histograms that ranges follow from.
        num_quantized_bins: of the distribution that entropy compares with.
        percentile: how many percent of the numbers a range keeps.
        scenario: of a distribution: ``same`` or ``p3``.

    Attributes:
        histogram_dict: see ``HistogramTable``.
    """

    def __init__(
        self, method: str, symmetric: bool, num_bins: int, num_quantized_bins: int, percentile: float, scenario: str
    ) -> None:
        self.method, self.symmetric, self.num_bins = method, symmetric, num_bins
        self.num_quantized_bins, self.percentile, self.scenario = num_quantized_bins, percentile, scenario
        self.histogram_dict: MutableMapping[str, HistogramTuple] = HistogramTable(num_bins, self._is_of_magnitudes)

    def get_histogram_dict(self) -> MutableMapping[str, HistogramTuple]:
        """Return the histograms."""
        return self.histogram_dict

    def collect(self, name_to_arr: Mapping[str, Numbers]) -> None:
        """Count the numbers of tensors.

        Raises:
            InvalidQuantization: there is no such method, or the numbers are neither float32 nor float16.
        """
        self._check_method()
        if self._is_of_magnitudes:
            self.collect_absolute_value(name_to_arr)
        else:
            self.collect_value(name_to_arr)

    @property
    def _is_of_magnitudes(self) -> bool:
        return self.method == "percentile" and bool(self.symmetric)

    def _check_method(self) -> None:
        if self.method not in METHODS:
            raise InvalidQuantization(f"the methods of histograms are {', '.join(METHODS)}; found {self.method!r}")

    def collect_absolute_value(self, name_to_arr: Mapping[str, Numbers]) -> None:
        """Count absolute values."""
        self._collect(name_to_arr, self._with_magnitudes)

    def collect_value(self, name_to_arr: Mapping[str, Numbers]) -> None:
        """Count numbers with their signs."""
        self._collect(name_to_arr, self._with_values)

    def _collect(
        self, name_to_arr: Mapping[str, Numbers], merged: Callable[[HistogramTuple, np.ndarray], HistogramTuple]
    ) -> None:
        for name, numbers in name_to_arr.items():
            for array in [numbers] if isinstance(numbers, np.ndarray) else numbers:
                if not isinstance(array, np.ndarray) or array.dtype not in _FLOATS:
                    found = getattr(array, "dtype", type(array).__name__)
                    raise InvalidQuantization(f"histograms count float32 and float16; found {found} for {name!r}")
                self._count(name, array, merged)

    def _count(
        self, name: str, array: np.ndarray, merged: Callable[[HistogramTuple, np.ndarray], HistogramTuple]
    ) -> None:
        table = self.histogram_dict
        if isinstance(table, HistogramTable) and not table.is_stored(name):
            table.stream(name).add(array)
            return
        finite = array[np.isfinite(array)]
        if finite.size:
            table[name] = merged(table[name], finite)

    def _with_values(self, histogram: HistogramTuple, numbers: np.ndarray) -> HistogramTuple:
        least, most = numbers.min(), numbers.max()
        return self.merge_histogram(histogram, numbers, least, most, max(abs(least), abs(most)))

    @staticmethod
    def _with_magnitudes(histogram: HistogramTuple, numbers: np.ndarray) -> HistogramTuple:
        counts, edges, least, most = histogram[:4]
        magnitudes = np.abs(numbers)
        if magnitudes.max() > edges[-1]:
            edges = _further(edges, float(magnitudes.max()))
        found, _ = np.histogram(np.maximum(magnitudes, edges[0]), edges)
        found[: counts.size] += counts
        return found, edges, np.minimum(least, numbers.min()), np.maximum(most, numbers.max())

    def merge_histogram(
        self, old_histogram: HistogramTuple, data_arr: np.ndarray, new_min: np.ndarray, new_max: np.ndarray,
        new_threshold: np.ndarray,
    ) -> HistogramTuple:  # fmt: skip
        """Return a tuple of more numbers: bins of the same width are added on both sides where they reach further.

        Args:
            old_histogram: the tuple so far.
            data_arr: the numbers.
            new_min: the least of them.
            new_max: the greatest of them.
            new_threshold: how far they reach from zero.
        """
        counts, _, least, most, before = old_histogram
        reach = float(before)
        if new_threshold > reach:
            counts, reach = _widened(counts, reach, float(new_threshold))
        added, edges = np.histogram(data_arr, len(counts), (-reach, reach))
        ends = np.minimum(least, new_min), np.maximum(most, new_max)
        return counts + added, edges.astype(data_arr.dtype), *ends, np.asarray(reach, data_arr.dtype)

    def compute_collection_result(self) -> dict[str, TensorData | HistogramTuple]:
        """Return the range of each tensor: the ends with counts and bins, or moments.

        Raises:
            InvalidCalibration: nothing was collected, or a tensor had no finite number.
        """
        self._check_method()
        if not self.histogram_dict:
            raise InvalidCalibration("No histogram is collected. Call collect first")
        if self.method == "entropy":
            return self.compute_entropy()
        return self.compute_percentile() if self.method == "percentile" else self.compute_distribution()

    def compute_percentile(self) -> dict[str, TensorData | HistogramTuple]:
        """Return the ranges that leave out the outermost numbers."""
        if not 0 <= self.percentile <= 100:
            raise InvalidQuantization(f"a percentile lies between 0 and 100; found {self.percentile}")

        def ranged(histogram: HistogramTuple) -> HistogramTuple:
            counts, edges, least, most = histogram[:4]
            ends = cut(percentile_limits(counts, edges, self.percentile, self.symmetric), least, most, edges.dtype)
            return *ends, counts, edges

        return self._ranges(ranged, is_cut=True)

    def compute_entropy(self) -> dict[str, TensorData | HistogramTuple]:
        """Return the ranges whose numbers lose least when they are put into few bins."""

        def ranged(histogram: HistogramTuple) -> HistogramTuple:
            return *self.get_entropy_threshold(histogram, self.num_quantized_bins), *histogram[:2]

        return self._ranges(ranged, is_cut=True)

    def get_entropy_threshold(
        self, histogram: HistogramTuple, num_quantized_bins: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the range of one tensor; see ``entropy_limits``."""
        counts, edges, least, most = histogram[:4]
        return cut(entropy_limits(counts, edges, num_quantized_bins), least, most, edges.dtype)

    def compute_distribution(self) -> dict[str, TensorData | HistogramTuple]:
        """Return moments, by which 8 bit floats are scaled."""
        if self.num_bins < 512:
            raise InvalidQuantization(f"Invalid num_bins. Must be in range 512 <= num_bins; found {self.num_bins}")
        if self.scenario not in ("same", "p3"):
            raise InvalidQuantization(f"Invalid scenario. Must be 'same' or 'p3'; found {self.scenario!r}")

        def ranged(histogram: HistogramTuple) -> TensorData:
            counts, edges = histogram[:2]
            mean, deviation = moments(counts, edges, self.scenario)
            return TensorData(
                avg=mean, std=deviation, hist=counts, hist_edges=edges, lowest=edges.min(), highest=edges.max()
            )

        return self._ranges(ranged, is_cut=False)

    def _ranges(
        self, ranged: Callable[[HistogramTuple], TensorData | HistogramTuple], is_cut: bool
    ) -> dict[str, TensorData | HistogramTuple]:
        streams = self._streams()
        skipped = [name for name, each in streams.items() if each.skipped and not each.is_masked]
        if skipped:
            log.warning("values with NaN or infinities, which are not counted: %s", ", ".join(skipped))
        found: dict[str, TensorData | HistogramTuple] = {}
        for name in self.histogram_dict:
            without = _range_without_numbers(name, streams[name], is_cut) if name in streams else None
            found[name] = ranged(self.histogram_dict[name]) if without is None else without
        return found

    def state(self) -> dict[str, np.ndarray]:
        """Return what was counted, as arrays by name, for ``restore``."""
        streams = self._streams()
        kept = (each.state() for each in streams.values())
        arrays = {f"{place}.{key}": array for place, facts in enumerate(kept) for key, array in facts.items()}
        return {_NAMES: np.array(json.dumps(list(streams))), **arrays}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from what ``state`` gave."""
        table = HistogramTable(self.num_bins, self._is_of_magnitudes)
        for place, name in enumerate(json.loads(str(arrays[_NAMES]))):
            start = f"{place}."
            own = {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}
            table.stream(name).restore(own)
        self.histogram_dict = table

    def _streams(self) -> dict[str, Histogram]:
        return self.histogram_dict.streams if isinstance(self.histogram_dict, HistogramTable) else {}


def _range_without_numbers(name: str, stream: Histogram, is_cut: bool) -> TensorData | None:
    """Return the range of a value that no bin tells of: one without numbers, or one whose end is a mask's infinity."""
    if stream.is_empty and not stream.skipped:
        return TensorData.of_nothing()
    if stream.is_empty:
        refuse_without_numbers(name)
    if stream.is_masked and is_cut:  # nothing finite stands for what is masked
        least, most = (np.asarray(end, stream.dtype) for end in (stream.lower_end, stream.upper_end))
        return TensorData(lowest=least, highest=most)
    return None


def _widened(counts: np.ndarray, reach: float, needed: float) -> tuple[np.ndarray, float]:
    """Return counts in more bins of the same width on both sides, wider ones where they would be too many."""
    if reach == 0:
        return counts, needed
    while (needed / reach) * len(counts) > _MOST_BINS:
        side = next(side for side in range(3) if (len(counts) + 2 * side) % 3 == 0)
        reach = reach * (len(counts) + 2 * side) / len(counts)
        counts = np.pad(counts, side).reshape(-1, 3).sum(axis=1)  # three by three: the middle stays where it is
    width = 2 * reach / len(counts)
    more = 0 if needed <= reach else int((needed - reach) // width + 1)
    return np.pad(counts, more), reach + more * width


def _further(edges: np.ndarray, needed: float) -> np.ndarray:
    """Return ends of bins with more bins above, of the same width if they are not too many."""
    last, width = float(edges[-1]), float(edges[1] - edges[0])
    more = int(min(np.ceil((needed - last) / width), max(_MOST_BINS - len(edges), 1)))
    return np.append(edges, np.linspace(last, max(last + more * width, needed), more + 1)[1:]).astype(edges.dtype)
