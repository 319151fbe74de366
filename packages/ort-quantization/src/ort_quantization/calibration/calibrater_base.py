"""What calibrators of all methods do: let a model give its inner values, and run it on samples."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

import ort_core
from ort_core.errors import OrtError
from ort_quantization.calibration.calibration_data import CalibrationDataReader, Sample, samples_of
from ort_quantization.calibration.calibration_outputs import SubgraphOutputsState, add_subgraph_outputs
from ort_quantization.calibration.calibration_runs import (
    FEW_SAMPLES,
    SAVED_EVERY_S,
    CalibrationRuns,
    fingerprint,
    has_open_batch,
    load_state,
    peeked,
    sample_digest,
    save_state,
    stacked,
)
from ort_quantization.calibration.runs_in_pieces import has_large_weights
from ort_quantization.calibration.tensor_ranges import TensorsData
from ort_quantization.errors import InvalidCalibration, InvalidQuantization
from ort_quantization.models.model_files import is_external, opset_of, read_with_shapes, write_model

log = logging.getLogger(__name__)

Providers = Sequence[str | tuple[str, dict[str, Any]]]  # Any: options of providers
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)
_COMPILED, _NUMPY = ("CPUExecutionProvider",), ("ReferenceExecutionProvider",)


class CalibraterBase:
    """Runs a model that gives its inner values, too.

    Args:
        model_path: of the float model.
        op_types_to_calibrate: operators whose inputs and results are calibrated; all by default.
        augmented_model_path: where the model that gives its inner values is written.
        symmetric: ranges have both ends as far from zero.
        use_external_data_format: that model's large tensors get a file of their own.
        per_channel: a range for each channel, along axis 1.

    Attributes:
        model_original_outputs: the names of the float model's results, which programs may take out of the other.
        num_model_outputs: how many there are; a note for programs.
        intermediate_outputs: empty, as no sample is kept.
    """

    # Set here, too: programs replace ``__init__``, as nvidia-modelopt does, by one that does not know of these
    calibrate_subgraphs = False
    _session: Any = None  # Any: sessions of ort-core, or whatever a subclass makes
    _folder = ""
    _is_stackable: bool | None = None  # not tried yet

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
        self.augment_model: ModelProto | None = None
        self.execution_providers: Providers | None = None  # the count of samples decides

    def note_results(self) -> None:
        """Note the results of the float model, for programs that replace steps of a calibrator."""
        self.model_original_outputs = {each.name for each in self.model.graph.output}
        self.num_model_outputs = len(self.model.graph.output)
        self.intermediate_outputs: list[object] = []

    @cached_property
    def runs(self) -> CalibrationRuns:
        """How samples are run."""
        return CalibrationRuns()

    @cached_property
    def _added_outputs(self) -> dict[str, list[str]]:
        return {}

    @property
    def infer_session(self) -> Any:  # Any: as above
        """The session of the model that gives its inner values, made when it is asked for."""
        if self._session is None:
            self.create_inference_session()
        return self._session

    @infer_session.setter
    def infer_session(self, session: Any) -> None:  # Any: as above
        self._session = session

    def set_execution_providers(self, execution_providers: Providers = ("CPUExecutionProvider",)) -> None:
        """Run on other providers; the session is made anew."""
        self.execution_providers = execution_providers
        self.create_inference_session()

    def create_inference_session(self) -> None:
        """Load the model that gives its inner values, as it is written: nothing of it is fused."""
        options = ort_core.SessionOptions()
        options.graph_optimization_level = ort_core.GraphOptimizationLevel.ORT_DISABLE_ALL
        self.infer_session = ort_core.InferenceSession(
            str(self.augmented_model_path), options, providers=list(self.execution_providers or _COMPILED)
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
        """Let the model give the values of its nodes' bodies, where that is asked for; see ``calibration_outputs``.

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
        samples = samples_of(data_reader)
        if self.execution_providers is None and self._session is None:
            has_many, samples = peeked(samples, FEW_SAMPLES)
            # the kernels read large weights where they lie in the file; compiled code would hold them packed
            self.execution_providers = _COMPILED if has_many and not has_large_weights(self.model.graph) else _NUMPY
            self.create_inference_session()
            self.execution_providers = None
        count = self._collect(samples)
        if not count:
            raise InvalidCalibration(
                "No data is collected. The calibration data reader gave no sample: was it read to its end before?"
            )
        self.end()
        if self.runs.state_path is not None:
            self.runs.state_path.unlink(missing_ok=True)

    def _collect(self, samples: Iterator[Sample]) -> int:
        """Run samples, behind those that a saved state has, and return how many there are of both."""
        progress = self.runs.progress or (lambda count: None)
        first, count = self._resumed(samples)
        saved_at = time.monotonic()
        waiting: list[Sample] = []
        try:
            for sample in samples:
                first = first or (sample_digest(sample) if self.runs.state_path is not None else "")
                waiting.append(sample)
                if len(waiting) < self._at_once:
                    continue
                self._take_all(waiting, count)
                count, waiting = count + len(waiting), []
                progress(count)
                if self.runs.state_path is not None and time.monotonic() - saved_at > SAVED_EVERY_S:
                    self._save(first, count)
                    saved_at = time.monotonic()
            if waiting:
                self._take_all(waiting, count)
                count += len(waiting)
                progress(count)
        except BaseException:
            if self.runs.state_path is not None and count:
                self._save(first, count)
            raise
        return count

    @property
    def _at_once(self) -> int:
        return 1 if self._is_stackable is False or not self.has_extremes_of_stacks else self.runs.samples_at_once

    has_extremes_of_stacks = True
    """Whether the extremes of samples run together say as much as those of each."""

    def _take_all(self, samples: Sequence[Sample], count: int) -> None:
        """Take samples, in one run where the model treats each on its own."""
        together = stacked(samples) if len(samples) > 1 and has_open_batch(self.model) else None
        if together is None or self._is_stackable is False:
            for place, sample in enumerate(samples):
                self.take(self._run(sample, count + place))
            return
        if self._is_stackable is None:  # the first stack is run both ways
            parts = [self._run(sample, count + place) for place, sample in enumerate(samples)]
            self._is_stackable = self._is_same(parts, together, count)
            for part in parts:
                self.take(part)
            return
        self.take(self._run(together, count))

    def _is_same(self, parts: Sequence[Mapping[str, np.ndarray]], together: Sample, count: int) -> bool:
        try:
            whole = self._run(together, count)
        except InvalidCalibration as error:
            log.warning("samples are run one by one: together they are refused: %s", error)
            return False
        for name, value in whole.items():
            ends = [self.extremes_of(name, each) for each in (value, *(part[name] for part in parts))]
            found = ends[0]
            expected = min(low for low, _ in ends[1:]), max(high for _, high in ends[1:])
            reach = max(map(abs, expected))
            if not np.allclose(found, expected, rtol=0, atol=1e-3 * reach, equal_nan=True):
                log.warning("samples are run one by one: value %r is another when they are run together", name)
                return False
        return True

    def extremes_of(self, name: str, value: np.ndarray) -> tuple[float, float]:
        """Return the extremes of a value that the model gave: stacked samples are compared with single ones by them."""
        if not value.size:
            return np.nan, np.nan
        return float(value.min()), float(value.max())

    def _belongs_to(self) -> str:
        names = sorted(each.name for each in self.model.graph.output)
        options = (type(self).__name__, self.symmetric, self.per_channel, self.options_of_state())
        weights = hashlib.sha256(self.model.SerializeToString(deterministic=True)).hexdigest()
        return fingerprint(*options, *names, weights)

    def options_of_state(self) -> tuple[object, ...]:
        """Return the options that a state depends on."""
        return ()

    def _save(self, first: str, count: int) -> None:
        assert self.runs.state_path is not None  # callers look
        meta = {"belongs_to": self._belongs_to(), "count": count, "first": first}
        save_state(self.runs.state_path, meta, self.state())

    def _resumed(self, samples: Iterator[Sample]) -> tuple[str, int]:
        """Go on from a saved state behind its samples; return the first one's digest and their count."""
        found = load_state(self.runs.state_path, self._belongs_to()) if self.runs.state_path is not None else None
        if found is None:
            return "", 0
        meta, arrays = found
        count = int(str(meta["count"]))
        for place in range(count):
            sample = next(samples, None)
            if sample is None or (place == 0 and sample_digest(sample) != meta["first"]):
                raise InvalidCalibration(
                    f"{self.runs.state_path} is the state of a calibration with other samples; delete it to begin anew"
                )
        self.restore(arrays)
        log.info("calibration goes on behind %d samples, from %s", count, self.runs.state_path)
        return str(meta["first"]), count

    def state(self) -> dict[str, np.ndarray]:
        """Return what was collected of the current reader, as arrays by name."""
        raise NotImplementedError

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from what ``state`` gave."""
        raise NotImplementedError

    def _run(self, sample: Sample, count: int) -> dict[str, np.ndarray]:
        names = [each.name for each in self.infer_session.get_outputs()]
        try:
            with np.errstate(all="ignore"):  # what is not finite is told of by the value that has it
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
