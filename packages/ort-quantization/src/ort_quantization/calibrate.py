"""Calibration: a model is run on samples, and what its values were becomes ranges. Names are onnxruntime's.

Nothing of a sample is kept but counts and extremes: the memory does not depend on how many there are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import NodeProto, ValueInfoProto, helper, numpy_helper

from ort_core.lazy_names import lazy_names
from ort_quantization.calibration.calibrater_base import CalibraterBase, Providers
from ort_quantization.calibration.calibration_data import CalibrationDataReader
from ort_quantization.calibration.calibration_runs import CalibrationRuns
from ort_quantization.calibration.collectors import (
    CalibrationDataCollector,
    HistogramCollector,
)
from ort_quantization.calibration.moments import MomentsState
from ort_quantization.calibration.tensor_ranges import (
    CalibrationCacheEncoder,
    CalibrationMethod,
    TensorData,
    TensorsData,
    load_tensors_data,
    save_tensors_data,
)
from ort_quantization.calibration.thresholds import entropy, rel_entr
from ort_quantization.errors import InvalidCalibration, InvalidQuantization
from ort_quantization.models.model_files import opset_of
from ort_quantization.models.node_order import put_early

__all__ = [
    "CalibraterBase", "CalibrationCacheEncoder", "CalibrationDataCollector", "CalibrationDataReader",
    "CalibrationMethod", "DistributionCalibrater", "EntropyCalibrater", "HistogramCalibrater", "HistogramCollector",
    "MinMaxCalibrater", "PercentileCalibrater", "TensorData", "TensorsData", "create_calibrator", "entropy",
    "load_tensors_data", "rel_entr", "save_tensors_data",
]  # fmt: skip

log = logging.getLogger(__name__)


class MinMaxCalibrater(CalibraterBase):
    """Ranges between the least and the greatest number, found inside the model: inner values do not leave it.

    Args:
        moving_average: the mean of the samples' extremes, and between readers a moving one.
        averaging_constant: how far a moving average moves.
        max_intermediate_outputs: onnxruntime's limit of samples that are kept; none are kept here.
        moments: find the mean and the deviation of each value, too.
    """

    def __init__(
        self, model_path: str | Path, op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path: str | Path = "augmented_model.onnx", symmetric: bool = False,
        use_external_data_format: bool = False, moving_average: bool = False, averaging_constant: float = 0.01,
        max_intermediate_outputs: int | None = None, per_channel: bool = False, moments: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            model_path, op_types_to_calibrate, augmented_model_path, symmetric, use_external_data_format, per_channel
        )
        if moving_average and not 0 <= averaging_constant <= 1:
            raise InvalidQuantization(f"an averaging constant lies between 0 and 1; found {averaging_constant}")
        self.moving_average, self.averaging_constant = moving_average, averaging_constant
        self.max_intermediate_outputs = max_intermediate_outputs
        self.note_results()
        self.calibrate_tensors_range: TensorsData | None = None
        self._tensors: list[str] = []
        self._ends: dict[str, list[np.ndarray]] = {}
        self._counts: dict[str, int] = {}
        self._masked: dict[str, list[np.ndarray]] = {}  # ends of values with infinities of one sign
        self._numbers: dict[str, bool] = {}  # of values without finite ends: whether a sample had numbers
        self._has_skipped = False
        self._moments: MomentsState | None = MomentsState() if moments and not per_channel else None

    def augment_graph(self) -> None:
        """Let the model give the extremes of each value."""
        self._tensors, known = self.select_tensors_to_calibrate(self.model)
        self.add_taps(self._tensors, extremes_only=True)
        graph = self.model.graph
        results: set[str] = set()
        for name in self._tensors:
            kind = known[name].type.tensor_type.elem_type
            for op_type in ("ReduceMin", "ReduceMax"):
                node = self._extreme(name, op_type, known[name])
                graph.node.append(node)
                graph.output.append(helper.make_tensor_value_info(node.output[0], kind, None))
                results.add(node.output[0])
            if self._moments is not None:
                results.update(self._moments.add_to(graph, name, kind))
        put_early(graph, results)
        self.write_augmented()

    def _extreme(self, name: str, op_type: str, known: ValueInfoProto) -> NodeProto:
        """Return a node that gives an end of a value, for each channel where that is asked for."""
        result = f"{name}_{op_type}"
        node = helper.make_node(op_type, [name], [result], result, keepdims=0)
        if not self.per_channel:
            return node
        axes = [axis for axis in range(len(known.type.tensor_type.shape.dim)) if axis != 1]
        if opset_of(self.model) >= 18:
            axes_name = f"{result}_axes"
            self.model.graph.initializer.append(numpy_helper.from_array(np.array(axes, np.int64), axes_name))
            node.input.append(axes_name)
        else:
            node.attribute.append(helper.make_attribute("axes", axes))
        return node

    def clear_collected_data(self) -> None:
        """Forget the samples of the current reader, and outputs of runs that a subclass keeps."""
        self._ends, self._counts = {}, {}
        self.intermediate_outputs = []

    def begin(self) -> None:
        """Begin with the samples of a reader."""
        self.clear_collected_data()

    def take(self, values: Mapping[str, np.ndarray]) -> None:
        """Take the extremes of one sample."""
        for name in self._tensors:
            self._take_ends(name, [values[f"{name}_{end}"].reshape(-1) for end in ("ReduceMin", "ReduceMax")])
            if self._moments is not None:
                self._moments.take(name, values)
        for name in self._added_outputs:
            numbers = self.tapped(values, name)
            if numbers.size:
                self._take_ends(name, [numbers.min(keepdims=True), numbers.max(keepdims=True)])

    def _take_ends(self, name: str, ends: list[np.ndarray]) -> None:
        if not all(np.isfinite(end).all() for end in ends):
            is_empty = bool((ends[0] == np.inf).all() and (ends[1] == -np.inf).all())
            self._numbers[name] = self._numbers.get(name, False) or not is_empty
            if is_empty:
                return
            if _is_masked(*ends):
                least, most = self._masked.get(name, ends)
                self._masked[name] = [np.minimum(least, ends[0]), np.maximum(most, ends[1])]
            else:
                self._skip(name)
            return
        if name not in self._ends:
            self._ends[name] = [end.astype(np.float64) if self.moving_average else end for end in ends]
        elif self.moving_average:
            self._ends[name] = [old + new for old, new in zip(self._ends[name], ends, strict=True)]
        else:
            least, most = self._ends[name]
            self._ends[name] = [np.minimum(least, ends[0]), np.maximum(most, ends[1])]
        self._counts[name] = self._counts.get(name, 0) + 1
        self._dtype = ends[0].dtype

    @property
    def has_extremes_of_stacks(self) -> bool:  # type: ignore[override]  # it depends on an option here
        """A mean of samples' extremes needs each of them."""
        return not self.moving_average

    def extremes_of(self, name: str, value: np.ndarray) -> tuple[float, float]:
        """Return the extremes of a value; one that is an extreme itself has 0 for the other."""
        low, high = super().extremes_of(name, value)
        if self._moments is not None and self._moments.is_of(name):
            return 0.0, 0.0
        if name.removesuffix("_ReduceMin") in self._tensors and name not in self._tensors:
            return low, 0.0
        if name.removesuffix("_ReduceMax") in self._tensors and name not in self._tensors:
            return 0.0, high
        return low, high

    def options_of_state(self) -> tuple[object, ...]:
        """Return the options that a state depends on."""
        return self.moving_average, self.averaging_constant

    def state(self) -> dict[str, np.ndarray]:
        """Return the extremes of the current reader's samples."""
        found = {}
        for place, name in enumerate([*self._tensors, *self._added_outputs]):
            if name in self._ends:
                found[f"{place}.least"], found[f"{place}.most"] = self._ends[name]
                found[f"{place}.count"] = np.array(self._counts[name])
                found[f"{place}.dtype"] = np.array(str(self._dtype))
            if name in self._masked:
                found[f"{place}.masked"] = np.stack(self._masked[name])
            if self._moments is not None and name in self._moments.sums:
                found[f"{place}.moments"] = self._moments.sums[name]
        return found

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from what ``state`` gave."""
        for place, name in enumerate([*self._tensors, *self._added_outputs]):
            if f"{place}.count" in arrays:
                self._ends[name] = [arrays[f"{place}.least"], arrays[f"{place}.most"]]
                self._counts[name] = int(arrays[f"{place}.count"])
                self._dtype = np.dtype(str(arrays[f"{place}.dtype"]))
            if f"{place}.masked" in arrays:
                self._masked[name] = list(arrays[f"{place}.masked"])
            if self._moments is not None and f"{place}.moments" in arrays:
                self._moments.sums[name] = arrays[f"{place}.moments"]

    def _skip(self, name: str) -> None:
        if not self._has_skipped:
            log.warning("value %r has NaN or infinities in a calibration sample, which is left out", name)
        self._has_skipped = True

    def end(self) -> None:
        """Add what the reader's samples gave to what earlier readers gave."""
        found = {}
        for name, (least, most) in self._ends.items():
            if self.moving_average:
                least, most = ((end / self._counts[name]).astype(self._dtype) for end in (least, most))
            if self.symmetric:
                most = np.maximum(np.abs(least), np.abs(most))
                least = -most
            found[name] = TensorData(lowest=least, highest=most)
        merged = self.merge_range(self.calibrate_tensors_range, TensorsData(CalibrationMethod.MinMax, found)).data
        for name, (least, most) in self._masked.items():  # what holds for some samples does for the range
            merged[name] = TensorData(lowest=least, highest=most)
        self.calibrate_tensors_range = TensorsData(CalibrationMethod.MinMax, merged)
        self.clear_collected_data()

    def merge_range(self, old_range: TensorsData | None, new_range: TensorsData) -> TensorsData:
        """Return ranges of earlier readers and of another one as one."""
        before = {} if old_range is None else old_range.data
        names = {**before, **new_range.data}
        merged = {name: self._merged(before.get(name), new_range.data.get(name)) for name in names}
        return TensorsData(CalibrationMethod.MinMax, merged)

    def _merged(self, old: TensorData | None, new: TensorData | None) -> TensorData:
        if old is None or new is None:
            one = new if old is None else old
            if one is None:
                raise InvalidCalibration("a range was neither found before nor now")
            return one
        if self.moving_average:
            part = self.averaging_constant
            least, most = ((1 - part) * there + part * here for there, here in zip(old.range_value, new.range_value))
            return TensorData(lowest=least.astype(self._dtype), highest=most.astype(self._dtype))
        return TensorData(lowest=np.minimum(old.lowest, new.lowest), highest=np.maximum(old.highest, new.highest))

    def compute_data(self) -> TensorsData:
        """Return the ranges; see the base class."""
        if self.calibrate_tensors_range is None:
            raise InvalidCalibration("No data is collected. Call collect_data with a calibration data reader first")
        missing = [name for name in self._tensors if name not in self.calibrate_tensors_range]
        for name in missing:
            if self._numbers.get(name, True):
                raise InvalidCalibration(
                    f"value {name!r} had NaN or infinities in every calibration sample: its extremes are not "
                    "known. Look for overflows in the float model, or exclude the nodes that read and give it from "
                    "quantization. Where NaN stands for a missing number, calibrate by Entropy or Percentile"
                )
        if not missing and self._moments is None:
            return self.calibrate_tensors_range
        found = {**self.calibrate_tensors_range.data, **dict.fromkeys(missing, TensorData.of_nothing())}
        if self._moments is not None:
            found = {name: self._moments.with_moments(name, data) for name, data in found.items()}
        return TensorsData(CalibrationMethod.MinMax, found)


def _is_masked(least: np.ndarray, most: np.ndarray) -> bool:
    """Return whether one end of a value is infinite, as masks make it, and nothing is no number."""
    has_nan = bool(np.isnan(least).any() or np.isnan(most).any())
    return not has_nan and bool(np.isfinite(least).all()) != bool(np.isfinite(most).all())


class HistogramCalibrater(CalibraterBase):
    """Ranges that follow from histograms.

    Args:
        method: ``entropy``, ``percentile`` or ``distribution``.
        num_bins: of the histograms that ranges follow from.
        num_quantized_bins: of the distribution that entropy compares with.
        percentile: how many percent of the numbers a range keeps.
        scenario: of a distribution: ``same`` or ``p3``.

    Attributes:
        collector: counts the numbers, from the first sample on.
    """

    calibration_method = CalibrationMethod.Percentile

    def __init__(
        self, model_path: str | Path, op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path: str | Path = "augmented_model.onnx", use_external_data_format: bool = False,
        method: str = "percentile", symmetric: bool = False, num_bins: int = 128, num_quantized_bins: int = 2048,
        percentile: float = 99.999, scenario: str = "same",
    ) -> None:  # fmt: skip
        super().__init__(model_path, op_types_to_calibrate, augmented_model_path, symmetric, use_external_data_format)
        if not 0 <= percentile <= 100:
            raise InvalidQuantization(f"Invalid percentile {percentile}. Must be in range 0 <= percentile <= 100")
        if scenario not in ("same", "p3"):
            raise InvalidQuantization(f"Invalid scenario. Must be 'same' or 'p3'; found {scenario!r}")
        if method == "distribution" and num_bins < 512:
            raise InvalidQuantization(f"Invalid num_bins. Must be in range 512 <= num_bins; found {num_bins}")
        self.method, self.num_bins, self.num_quantized_bins = method, num_bins, num_quantized_bins
        self.percentile, self.scenario = percentile, scenario
        self.note_results()
        self.tensors_to_calibrate: list[str] = []
        self.collector: HistogramCollector | None = None
        self._has_samples = False

    def augment_graph(self) -> None:
        """Let the model give its inner values."""
        self.tensors_to_calibrate, known = self.select_tensors_to_calibrate(self.model)
        self.add_taps(self.tensors_to_calibrate, extremes_only=False)
        given = {each.name for each in self.model.graph.output}
        for name in self.tensors_to_calibrate:
            if name not in given:
                self.model.graph.output.append(known[name])
        self.write_augmented()

    def take(self, values: Mapping[str, np.ndarray]) -> None:
        """Count the numbers of one sample."""
        tapped = {name: self.tapped(values, name) for name in self._added_outputs}
        numbers = {name: each for name, each in tapped.items() if each.size}
        self._collector().collect({**{name: values[name] for name in self.tensors_to_calibrate}, **numbers})

    def _collector(self) -> HistogramCollector:
        if self.collector is None:
            self.collector = HistogramCollector(
                self.method, self.symmetric, self.num_bins, self.num_quantized_bins, self.percentile, self.scenario
            )
        return self.collector

    def clear_collected_data(self) -> None:
        """Forget outputs of runs that a subclass keeps: nothing here does."""
        self.intermediate_outputs = []

    def end(self) -> None:
        """Note that there were samples: a model may have no value to look at."""
        self._has_samples = True

    def options_of_state(self) -> tuple[object, ...]:
        """Return the options that a state depends on."""
        return (self.num_bins,)

    def state(self) -> dict[str, np.ndarray]:
        """Return the histograms."""
        return self._collector().state()

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from what ``state`` gave."""
        self._collector().restore(arrays)

    def compute_data(self) -> TensorsData:
        """Return the ranges; see the base class."""
        collector = self._collector()
        if not self._has_samples and not collector.get_histogram_dict():
            raise InvalidCalibration("No data is collected. Call collect_data with a calibration data reader first")
        found = collector.compute_collection_result() if collector.get_histogram_dict() else {}
        return TensorsData(self.calibration_method, found)


class EntropyCalibrater(HistogramCalibrater):
    """Ranges whose numbers lose least when they are put into few bins."""

    calibration_method = CalibrationMethod.Entropy

    def __init__(
        self, model_path: str | Path, op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path: str | Path = "augmented_model.onnx", use_external_data_format: bool = False,
        method: str = "entropy", symmetric: bool = False, num_bins: int = 128, num_quantized_bins: int = 128,
    ) -> None:  # fmt: skip
        super().__init__(
            model_path, op_types_to_calibrate, augmented_model_path, use_external_data_format, method, symmetric,
            num_bins, num_quantized_bins,
        )  # fmt: skip


class PercentileCalibrater(HistogramCalibrater):
    """Ranges that leave out the outermost numbers."""

    def __init__(
        self, model_path: str | Path, op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path: str | Path = "augmented_model.onnx", use_external_data_format: bool = False,
        method: str = "percentile", symmetric: bool = False, num_bins: int = 2048, percentile: float = 99.999,
    ) -> None:  # fmt: skip
        super().__init__(
            model_path, op_types_to_calibrate, augmented_model_path, use_external_data_format, method, symmetric,
            num_bins, percentile=percentile,
        )  # fmt: skip


class DistributionCalibrater(HistogramCalibrater):
    """Moments, by which 8 bit floats are scaled."""

    calibration_method = CalibrationMethod.Distribution

    def __init__(
        self, model_path: str | Path, op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path: str | Path = "augmented_model.onnx", use_external_data_format: bool = False,
        method: str = "distribution", num_bins: int = 2048, scenario: str = "same",
    ) -> None:  # fmt: skip
        super().__init__(
            model_path, op_types_to_calibrate, augmented_model_path, use_external_data_format, method,
            num_bins=num_bins, scenario=scenario,
        )  # fmt: skip


_CALIBRATERS: dict[CalibrationMethod, tuple[Callable[..., CalibraterBase], dict[str, Any]]] = {  # Any: their options
    CalibrationMethod.MinMax: (
        MinMaxCalibrater,
        {
            "symmetric": False, "moving_average": False, "averaging_constant": 0.01, "max_intermediate_outputs": None,
            "per_channel": False, "moments": False,
        },
    ),
    CalibrationMethod.Entropy: (EntropyCalibrater, {"num_bins": 128, "num_quantized_bins": 128, "symmetric": False}),
    CalibrationMethod.Percentile: (PercentileCalibrater, {"num_bins": 2048, "percentile": 99.999, "symmetric": True}),
    CalibrationMethod.Distribution: (DistributionCalibrater, {"num_bins": 2048, "scenario": "same"}),
}  # fmt: skip
"""The calibrator of each method, and the options that it takes with their defaults here."""


def create_calibrator(
    model: str | Path,
    op_types_to_calibrate: Sequence[str] | None = None,
    augmented_model_path: str | Path = "augmented_model.onnx",
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    use_external_data_format: bool = False,
    providers: Providers | None = None,
    extra_options: Mapping[str, Any] | None = None,  # Any: the options of all methods
) -> CalibraterBase:
    """Return a calibrator whose model is loaded: it waits for ``collect_data``.

    Args:
        model: the path of the float model.
        op_types_to_calibrate: operators whose inputs and results are calibrated; all by default.
        augmented_model_path: where the model that gives its inner values is written.
        calibrate_method: how ranges follow from numbers.
        use_external_data_format: that model's large tensors get a file of their own.
        providers: what runs it; by default the CPU provider, and numpy kernels for eight samples or fewer.
        extra_options: of runs: ``samples_at_once``, ``progress``, ``state_path`` (see ``CalibrationRuns``);
            of the method: ``symmetric``, ``moving_average``, ``averaging_constant``, ``per_channel``,
            ``num_bins``, ``num_quantized_bins``, ``percentile``, ``scenario``; those of other methods are ignored.
            Of ours: ``calibrate_subgraphs``, for values inside the bodies of If, Loop and Scan, too, and ``moments``:
            MinMax finds means and deviations, too.

    Raises:
        InvalidQuantization: an option is out of its bounds, or there is no such method.
    """
    if calibrate_method not in _CALIBRATERS:
        known = ", ".join(str(each) for each in _CALIBRATERS)
        raise InvalidQuantization(f"Unsupported calibration method {calibrate_method}; known: {known}")
    make, defaults = _CALIBRATERS[calibrate_method]
    options = {name: (extra_options or {}).get(name, default) for name, default in defaults.items()}
    calibrator = make(
        model, op_types_to_calibrate, augmented_model_path, use_external_data_format=use_external_data_format, **options
    )
    given = {name: each for name, each in (extra_options or {}).items() if name in CalibrationRuns.__slots__}
    calibrator.runs = CalibrationRuns(**given)
    calibrator.calibrate_subgraphs = bool((extra_options or {}).get("calibrate_subgraphs", False))
    calibrator.augment_graph()
    if providers:
        calibrator.execution_providers = providers
        calibrator.create_inference_session()
    return calibrator


__getattr__, _ = lazy_names(  # what programs import from here, as onnxruntime's module imports it
    __name__,
    {
        "ort_quantization.quant_utils": (
            "load_model_with_shape_infer", "smooth_distribution",
        ),
    },
)  # fmt: skip
