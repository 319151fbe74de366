"""``quantize_to_target``: the fastest mixture of types, as measured where it will run, that loses no more than allowed.

    1  ranges of all values, from the data
    2  the whole model in each scheme beside float32: schemes that are slower as a whole and in each layer go
    3  each layer alone in each scheme beside float32, layers of one form once
    4  the noise of each layer's scheme alone in the results
    5  the line of assignments from the fastest to float32, halved until the first that meets the target is found,
       each judged as a whole model on the data
    6  whole models that meet it measured beside float32: the fastest is written, float32 where none is faster

Times alone depend on the machine: with the same measurements the same model is found.
"""

from __future__ import annotations

import itertools
import json
import math
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx
from onnx import ModelProto

from ort_core.whole_files import replace_text
from ort_quantization.calibrate import CalibrationMethod, create_calibrator
from ort_quantization.calibration.activation_capture import Providers
from ort_quantization.calibration.calibration_data import CalibrationDataReader, Sample, samples_of
from ort_quantization.calibration.sample_files import SampleReader
from ort_quantization.calibration.tensor_ranges import TensorsData
from ort_quantization.errors import InvalidCalibration, InvalidQuantization
from ort_quantization.models.model_files import opset_of, read_with_shapes, refuse_unwritable, with_shapes, write_model
from ort_quantization.models.prepare import quant_pre_process
from ort_quantization.targets.target_layers import name_nodes
from ort_quantization.targets.target_report import TargetReport
from ort_quantization.targets.target_schemes import SCHEMES
from ort_quantization.targets.target_search import COMPARED, Metric, Progress, Search, Target
from ort_quantization.targets.target_times import Measure, Stopwatch, in_turns
from ort_quantization.weight_only.matmul_nbits_opset import converted_to

_OPSET = 13


def quantize_to_target(
    model_input: str | Path | ModelProto,
    model_output: str | Path,
    data: CalibrationDataReader | Iterable[Sample],
    *,
    min_decibels: float | None = None,
    metric: Metric | None = None,
    allowed_loss: float = 0.0,
    providers: Providers | None = None,
    schemes: Sequence[str] = SCHEMES,
    budget_s: float = 600.0,
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    progress: Progress | None = None,
    measure: Measure | None = None,
    measurements: Mapping[str, float | str] | None = None,
) -> TargetReport:
    """Write the fastest model that loses no more than allowed, each layer in the type that pays for it.

    Args:
        model_input: a float model, or its file; it is not changed.
        model_output: the file to write; the report is written beside it, with ``.json`` behind its name.
        data: samples: a reader, or dictionaries of inputs; all are calibrated, the first eight compared.
        min_decibels: the least signal to noise of each result.
        metric: instead of it: takes a session of a model and gives a number, more being better.
        allowed_loss: how much less than the float model's it may be.
        providers: that will run the model, and are measured; the default ones by default.
        schemes: that may be chosen: ``int8``, ``dynamic``, ``int4``, ``bfloat16``, ``float16``.
        budget_s: seconds after which nothing new is measured; what was found by then is judged and written.
        calibrate_method: how ranges follow from samples.
        progress: called with what is being done and the share of it, 0 to 1.
        measure: takes the times; by default in turns on the providers.
        measurements: earlier ones, a report's: these are not made again.

    Raises:
        NoSuchFile: there is no such model.
        InvalidQuantization: the target, a scheme or the model is none.
        InvalidCalibration: there is no data, or nothing follows from it.
    """
    target = Target(min_decibels, metric, allowed_loss)
    unknown = [each for each in schemes if each not in SCHEMES]
    if unknown:
        raise InvalidQuantization(f"{unknown[0]!r} is no scheme; known: {', '.join(SCHEMES)}")
    refuse_unwritable(model_output)
    begun = time.monotonic()
    progress = progress or (lambda text, share: None)
    with tempfile.TemporaryDirectory(prefix="ort.target.", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        progress("Preparing", 0.0)
        model = _prepared(model_input, folder)
        ranges, samples = _calibrated(folder, data, calibrate_method, progress)
        watch = Stopwatch(measure or in_turns(providers), folder, measurements)
        search = Search(
            model, ranges, samples, target, providers, tuple(schemes), watch, begun + budget_s, progress, folder
        )
        found, report = search.run()
        report = replace(
            report, model=Path("model") if isinstance(model_input, ModelProto) else Path(model_input),
            target=Path(model_output), elapsed_s=time.monotonic() - begun,
        )  # fmt: skip
        write_model(found, "", model_output, False)
    replace_text(Path(f"{model_output}.json"), json.dumps(_plain(report.to_dict()), indent=2))
    return report


def _plain(data: object) -> object:
    """Return data as JSON has it: numbers that are none as text."""
    if isinstance(data, Mapping):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_plain(each) for each in data]
    return str(data) if isinstance(data, float) and not math.isfinite(data) else data


def _prepared(source: str | Path | ModelProto, folder: Path) -> ModelProto:
    """Return a model with shapes and names for all nodes, in an opset that the switches know."""
    quant_pre_process(source, folder / "float.onnx")
    model, _ = read_with_shapes(folder / "float.onnx")
    onnx.load_external_data_for_model(model, str(folder))
    if opset_of(model) < _OPSET:
        model = with_shapes(converted_to(model, _OPSET, "schemes for each layer"))
    name_nodes(model)
    write_model(model, str(folder), folder / "float.onnx", False)
    return model


def _calibrated(
    folder: Path, data: CalibrationDataReader | Iterable[Sample], method: CalibrationMethod, progress: Progress
) -> tuple[TensorsData, list[Sample]]:
    """Return the ranges of all values, and the samples that are compared."""
    stream = samples_of(data) if isinstance(data, CalibrationDataReader) else iter(data)
    kept = list(itertools.islice(stream, COMPARED))
    if not kept:
        raise InvalidCalibration("there is no data: a target is judged by the results of samples")
    options = {"progress": lambda count: progress(f"Calibrating, {count} samples", 0.05)}
    calibrator = create_calibrator(
        folder / "float.onnx", None, folder / "augmented.onnx", method, extra_options=options
    )
    calibrator.collect_data(SampleReader(itertools.chain(kept, stream)))
    ranges = calibrator.compute_data()
    calibrator.infer_session = None  # its files are removed
    return ranges, kept
