"""Calibration: a model is run on samples, and what its values were becomes ranges. Names are onnxruntime's.

Samples are taken one at a time, and nothing of one is kept but counts and extremes: the memory does not depend on how
many there are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

import ort_core
from ort_core.errors import OrtError
from ort_quantization.calibration_data import CalibrationDataReader, Sample, samples_of
from ort_quantization.calibration_outputs import SubgraphOutputsState, add_subgraph_outputs
from ort_quantization.errors import InvalidCalibration, InvalidQuantization
from ort_quantization.histograms import Histogram
from ort_quantization.model_files import is_external, opset_of, read_with_shapes, write_model
from ort_quantization.tensor_ranges import (
    CalibrationCacheEncoder,
    CalibrationMethod,
    TensorData,
    TensorsData,
    load_tensors_data,
    save_tensors_data,
)
from ort_quantization.thresholds import by_distribution, by_entropy, by_percentile

__all__ = [
    "CalibraterBase", "CalibrationCacheEncoder", "CalibrationDataReader", "CalibrationMethod", "DistributionCalibrater",
    "EntropyCalibrater", "HistogramCalibrater", "MinMaxCalibrater", "PercentileCalibrater", "TensorData",
    "TensorsData", "create_calibrator", "load_tensors_data", "save_tensors_data",
]  # fmt: skip

log = logging.getLogger(__name__)

Providers = Sequence[str | tuple[str, dict[str, Any]]]  # Any: options of providers
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)


class CalibraterBase:
    """Runs a model that gives its inner values, too.

    Args:
        model_path: of the float model.
        op_types_to_calibrate: operators whose inputs and results are calibrated; all by default.
        augmented_model_path: where the model that gives its inner values is written.
        symmetric: ranges have both ends as far from zero.
        use_external_data_format: that model's large tensors get a file of their own.
        per_channel: a range for each channel, along axis 1.
    """

    def __init__(
        self, model_path: str | Path, op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path: str | Path = "augmented_model.onnx", symmetric: bool = False,
        use_external_data_format: bool = False, per_channel: bool = False,
    ) -> None:  # fmt: skip
        if not isinstance(model_path, (str, Path)):
            raise InvalidQuantization(f"a calibrator takes the path of a model; found a {type(model_path).__name__}")
        self.model, self._folder = read_with_shapes(model_path)
        self.op_types_to_calibrate = op_types_to_calibrate
        self.augmented_model_path = augmented_model_path
        self.symmetric = symmetric
        self.use_external_data_format = use_external_data_format
        self.per_channel = per_channel
        self.calibrate_subgraphs = False
        self._added_outputs: dict[str, list[str]] = {}
        self.augment_model: ModelProto | None = None
        self.infer_session: Any = None  # Any: sessions of ort-core, or whatever a subclass makes
        self.execution_providers: Providers = ["CPUExecutionProvider"]

    def set_execution_providers(self, execution_providers: Providers = ("CPUExecutionProvider",)) -> None:
        """Run on other providers; the session is made anew."""
        self.execution_providers = execution_providers
        self.create_inference_session()

    def create_inference_session(self) -> None:
        """Load the model that gives its inner values, as it is written: nothing of it is fused."""
        options = ort_core.SessionOptions()
        options.graph_optimization_level = ort_core.GraphOptimizationLevel.ORT_DISABLE_ALL
        self.infer_session = ort_core.InferenceSession(
            str(self.augmented_model_path), options, providers=list(self.execution_providers)
        )

    def select_tensors_to_calibrate(self, model: ModelProto) -> tuple[list[str], dict[str, ValueInfoProto]]:
        """Return the names of values to calibrate, in their order, and what is known of all values.

        They are floats that chosen operators read or give, and no initializers.
        """
        graph = model.graph
        known = {each.name: each for each in (*graph.value_info, *graph.output, *graph.input)}
        constant = {tensor.name for tensor in graph.initializer}
        chosen = [
            name
            for node in graph.node
            if not self.op_types_to_calibrate or node.op_type in self.op_types_to_calibrate
            for name in (*node.input, *node.output)
            if name in known and name not in constant and known[name].type.tensor_type.elem_type in _FLOATS
        ]
        return list(dict.fromkeys(chosen)), known

    def get_augment_model(self) -> ModelProto:
        """Return the model that gives its inner values."""
        return self.model

    def augment_graph(self) -> None:
        """Let the model give its inner values, and write it."""
        raise NotImplementedError

    def add_taps(self, seen: Sequence[str], extremes_only: bool) -> None:
        """Let the model give the values of its nodes' bodies, where that is asked for; see ``calibration_taps``.

        Args:
            seen: values that it gives anyway.
            extremes_only: the least and the greatest number of each, not all numbers.
        """
        if not self.calibrate_subgraphs:
            return
        chosen = self.op_types_to_calibrate
        state = SubgraphOutputsState(
            lambda node: not chosen or node.op_type in chosen, extremes_only, opset_of(self.model)
        )
        for output in add_subgraph_outputs(self.model.graph, {}, state):
            if output.tensor in seen:
                continue
            self._added_outputs.setdefault(output.tensor, []).append(output.result)
            self.model.graph.output.append(helper.make_tensor_value_info(output.result, output.kind, None))

    def tapped(self, values: Mapping[str, np.ndarray], name: str) -> np.ndarray:
        """Return what a sample's run gave of a value inside bodies: a vector, empty where they did not run."""
        return np.concatenate([values[result] for result in self._added_outputs[name]])

    def write_augmented(self) -> None:
        """Write the model that gives its inner values."""
        has_files = any(is_external(tensor) for tensor in self.model.graph.initializer)
        write_model(self.model, self._folder, self.augmented_model_path, self.use_external_data_format or has_files)
        self._folder = str(Path(self.augmented_model_path).parent)

    def collect_data(self, data_reader: CalibrationDataReader) -> None:
        """Run the model on all samples of a reader. More readers may follow.

        Raises:
            InvalidCalibration: the reader has no sample, raises, or gives what the model does not take.
        """
        self.begin()
        count = 0
        for sample in samples_of(data_reader):
            self.take(self._run(sample, count))
            count += 1
        if not count:
            raise InvalidCalibration(
                "No data is collected. The calibration data reader gave no sample: was it read to its end before?"
            )
        self.end()

    def _run(self, sample: Sample, count: int) -> dict[str, np.ndarray]:
        names = [each.name for each in self.infer_session.get_outputs()]
        try:
            return dict(zip(names, self.infer_session.run(None, dict(sample)), strict=True))
        except OrtError as error:
            raise InvalidCalibration(f"the model does not run on calibration sample {count}: {error}") from error

    def begin(self) -> None:
        """Prepare for the samples of one reader."""

    def take(self, values: Mapping[str, np.ndarray]) -> None:
        """Take what the model gave for one sample."""
        raise NotImplementedError

    def end(self) -> None:
        """Take note that a reader has given all its samples."""

    def compute_data(self) -> TensorsData:
        """Return the ranges.

        Raises:
            InvalidCalibration: nothing was collected, or a value had no finite number.
        """
        raise NotImplementedError


def _refuse_without_numbers(name: str) -> None:
    raise InvalidCalibration(
        f"value {name!r} had no finite number in any calibration sample: only NaN, infinities, or nothing. Look for "
        "overflows in the float model, or exclude the nodes that read and give it from quantization"
    )


class MinMaxCalibrater(CalibraterBase):
    """Ranges between the least and the greatest number, found inside the model: inner values do not leave it.

    Args:
        moving_average: the mean of the samples' extremes, and between readers a moving one.
        averaging_constant: how far a moving average moves.
        max_intermediate_outputs: onnxruntime's limit of samples that are kept; none are kept here.
    """

    def __init__(
        self, model_path: str | Path, op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path: str | Path = "augmented_model.onnx", symmetric: bool = False,
        use_external_data_format: bool = False, moving_average: bool = False, averaging_constant: float = 0.01,
        max_intermediate_outputs: int | None = None, per_channel: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            model_path, op_types_to_calibrate, augmented_model_path, symmetric, use_external_data_format, per_channel
        )
        if moving_average and not 0 <= averaging_constant <= 1:
            raise InvalidQuantization(f"an averaging constant lies between 0 and 1; found {averaging_constant}")
        self.moving_average, self.averaging_constant = moving_average, averaging_constant
        self.max_intermediate_outputs = max_intermediate_outputs
        self.model_original_outputs = {each.name for each in self.model.graph.output}
        self.calibrate_tensors_range: TensorsData | None = None
        self._tensors: list[str] = []
        self._ends: dict[str, list[np.ndarray]] = {}
        self._counts: dict[str, int] = {}
        self._has_skipped = False

    def augment_graph(self) -> None:
        """Let the model give the extremes of each value."""
        self._tensors, known = self.select_tensors_to_calibrate(self.model)
        self.add_taps(self._tensors, extremes_only=True)
        graph = self.model.graph
        has_axes_input = opset_of(self.model) >= 18
        for name in self._tensors:
            for op_type in ("ReduceMin", "ReduceMax"):
                result = f"{name}_{op_type}"
                node = helper.make_node(op_type, [name], [result], result, keepdims=1)
                if self.per_channel:
                    rank = len(known[name].type.tensor_type.shape.dim)
                    axes = [axis for axis in range(rank) if axis != 1]
                    if has_axes_input:
                        graph.initializer.append(numpy_helper.from_array(np.array(axes, np.int64), f"{result}_axes"))
                        node.input.append(f"{result}_axes")
                    else:
                        node.attribute.append(helper.make_attribute("axes", axes))
                graph.node.append(node)
                kind = known[name].type.tensor_type.elem_type
                graph.output.append(helper.make_tensor_value_info(result, kind, None))
        self.write_augmented()

    def clear_collected_data(self) -> None:
        """Forget the samples of the current reader."""
        self._ends, self._counts = {}, {}

    def begin(self) -> None:
        """Begin with the samples of a reader."""
        self.clear_collected_data()

    def take(self, values: Mapping[str, np.ndarray]) -> None:
        """Take the extremes of one sample."""
        for name in self._tensors:
            self._take_ends(name, [values[f"{name}_{end}"].reshape(-1) for end in ("ReduceMin", "ReduceMax")])
        for name in self._added_outputs:
            numbers = self.tapped(values, name)
            if numbers.size:
                self._take_ends(name, [numbers.min(keepdims=True), numbers.max(keepdims=True)])

    def _take_ends(self, name: str, ends: list[np.ndarray]) -> None:
        if not all(np.isfinite(end).all() for end in ends):
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

    def _skip(self, name: str) -> None:
        if not self._has_skipped:
            log.warning("value %r has NaN or infinities, or is empty, in a calibration sample, which is left out", name)
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
        before = {} if self.calibrate_tensors_range is None else self.calibrate_tensors_range.data
        merged = {name: self._merged(before.get(name), found.get(name)) for name in {**before, **found}}
        self.calibrate_tensors_range = TensorsData(CalibrationMethod.MinMax, merged)
        self.clear_collected_data()

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
        for name in self._tensors:
            if name not in self.calibrate_tensors_range:
                _refuse_without_numbers(name)
        return self.calibrate_tensors_range


class HistogramCalibrater(CalibraterBase):
    """Ranges that follow from histograms.

    Args:
        method: ``entropy``, ``percentile`` or ``distribution``.
        num_bins: of the histograms that ranges follow from.
        num_quantized_bins: of the distribution that entropy compares with.
        percentile: how many percent of the numbers a range keeps.
        scenario: of a distribution: ``same`` or ``p3``.
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
        self.tensors_to_calibrate: list[str] = []
        self._histograms: dict[str, Histogram] = {}

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
        for name in self.tensors_to_calibrate:
            self._count(name, values[name])
        for name in self._added_outputs:
            numbers = self.tapped(values, name)
            if numbers.size:
                self._count(name, numbers)

    def _count(self, name: str, numbers: np.ndarray) -> None:
        if name not in self._histograms:
            self._histograms[name] = Histogram(self.num_bins)
        self._histograms[name].add(numbers)

    def compute_data(self) -> TensorsData:
        """Return the ranges; see the base class."""
        if not self._histograms:
            raise InvalidCalibration("No data is collected. Call collect_data with a calibration data reader first")
        skipped = [name for name, histogram in self._histograms.items() if histogram.skipped]
        if skipped:
            log.warning("values with NaN or infinities, which are not counted: %s", ", ".join(skipped))
        return TensorsData(self.calibration_method, {n: self._range(n, h) for n, h in self._histograms.items()})

    def _range(self, name: str, histogram: Histogram) -> TensorData:
        if histogram.is_empty:
            _refuse_without_numbers(name)
        if self.method == "entropy":
            return by_entropy(histogram, self.num_bins, self.num_quantized_bins)
        if self.method == "distribution":
            return by_distribution(histogram, self.num_bins, self.scenario)
        return by_percentile(histogram, self.num_bins, self.percentile, self.symmetric)


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
            "per_channel": False,
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
        providers: what runs it; the CPU provider by default.
        extra_options: of the method: ``symmetric``, ``moving_average``, ``averaging_constant``, ``per_channel``,
            ``num_bins``, ``num_quantized_bins``, ``percentile``, ``scenario``; those of other methods are ignored.
            Of ours: ``calibrate_subgraphs``, for values inside the bodies of If, Loop and Scan, too.

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
    calibrator.calibrate_subgraphs = bool((extra_options or {}).get("calibrate_subgraphs", False))
    calibrator.augment_graph()
    if providers:
        calibrator.execution_providers = providers
    calibrator.create_inference_session()
    return calibrator
