"""``quantize_static``: weights and activations quantized in the file, by ranges that samples were found to have."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import logging
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import ModelProto, TensorProto

from ort_quantization.accuracy.bias_correction import (
    added_products,
    bias_corrected,
    decibels_of_results,
    ranges_of_products,
)
from ort_quantization.accuracy.equalize import equalized
from ort_quantization.accuracy.smooth_quant import KeptReader, smooth
from ort_quantization.arguments.advice import (
    advise_on_choices,
    advise_preparation,
    advise_without_change,
    count_operators,
)
from ort_quantization.arguments.extra_options import CALIBRATION_OPTIONS, warn_of_unknown
from ort_quantization.arguments.given_arguments import options_of, refuse_single_names
from ort_quantization.calibrate import CalibrationDataReader, CalibrationMethod, create_calibrator
from ort_quantization.calibration.activation_capture import Samples
from ort_quantization.calibration.calibrater_base import Providers
from ort_quantization.calibration.tensor_ranges import (
    TensorsData,
    load_tensors_data,
    read_ranges_file,
    save_tensors_data,
)
from ort_quantization.errors import InvalidCalibration, InvalidQuantization
from ort_quantization.models.model_checks import free_names
from ort_quantization.models.model_files import (
    has_element_type,
    is_external,
    read_with_shapes,
    refuse_unwritable,
    with_opset_for,
    with_shapes,
    write_model,
)
from ort_quantization.models.tensor_folder import TensorFolder
from ort_quantization.onnx_model import ONNXModel
from ort_quantization.onnx_quantizer import ONNXQuantizer
from ort_quantization.qdq_quantizer import QDQQuantizer
from ort_quantization.quantized_types import QuantFormat, QuantizationMode, QuantType, tensor_type_of
from ort_quantization.registry import QDQRegistry, QLinearOpsRegistry
from ort_quantization.tensor_quant_overrides import TensorQuantOverridesHelper

log = logging.getLogger(__name__)

_WIDE = (QuantType.QInt16, QuantType.QUInt16)
_NARROW = (QuantType.QInt4, QuantType.QUInt4)
_FLOAT8 = QuantType.QFLOAT8E4M3FN


def check_static_quant_arguments(quant_format: QuantFormat, activation_type: QuantType, weight_type: QuantType) -> None:
    """Refuse types that no operator multiplies.

    Raises:
        InvalidQuantization: which, and what to choose.
    """
    if not isinstance(quant_format, QuantFormat):
        raise InvalidQuantization(f"{quant_format!r} is no format: choose QuantFormat.QDQ or QuantFormat.QOperator")
    for each in (activation_type, weight_type):
        tensor_type_of(each)
    if activation_type == QuantType.QInt8 and weight_type == QuantType.QUInt8:
        raise InvalidQuantization("no operator multiplies QInt8 activations by QUInt8 weights: choose QInt8 weights")
    if (activation_type == _FLOAT8) != (weight_type == _FLOAT8):
        raise InvalidQuantization(
            f"8 bit floats are multiplied by each other only: activations are {activation_type}, weights {weight_type}"
        )
    if quant_format != QuantFormat.QDQ and (activation_type in _WIDE or weight_type in _WIDE):
        raise InvalidQuantization("Only QuantFormat.QDQ supports 16-bit quantization types.")
    if quant_format != QuantFormat.QDQ and (activation_type in _NARROW or weight_type in _NARROW):
        raise InvalidQuantization(
            "no operator of QuantFormat.QOperator reads 4 bits: choose QuantFormat.QDQ, or MatMulNBitsQuantizer for "
            "weights alone"
        )
    if quant_format != QuantFormat.QDQ and weight_type == _FLOAT8:
        raise InvalidQuantization("no operator of QuantFormat.QOperator reads 8-bit floats: choose QuantFormat.QDQ")
    if quant_format != QuantFormat.QDQ and activation_type == weight_type == QuantType.QInt8:
        log.warning("QInt8 activations in QuantFormat.QOperator are slow on x86-64: choose QUInt8, or QuantFormat.QDQ")


def quantize_static(
    model_input: str | Path | ModelProto,
    model_output: str | Path,
    calibration_data_reader: CalibrationDataReader | None = None,
    quant_format: QuantFormat = QuantFormat.QDQ,
    op_types_to_quantize: Iterable[str] | None = None,
    per_channel: bool = False,
    reduce_range: bool = False,
    activation_type: QuantType = QuantType.QInt8,
    weight_type: QuantType = QuantType.QInt8,
    nodes_to_quantize: Iterable[str] | None = None,
    nodes_to_exclude: Iterable[str] | None = None,
    use_external_data_format: bool = False,
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    calibration_providers: Providers | None = None,
    extra_options: dict[str, Any] | None = None,  # Any: as many types as keys
    calibration_cache_path: str | Path | None = None,
) -> None:
    """Quantize weights and activations of a model, by ranges that it has on samples.

    Args:
        model_input: a model, or its file; neither is changed.
        model_output: the file to write.
        calibration_data_reader: gives the samples; not needed where ranges come from a file.
        quant_format: quantized operators, or float operators between QuantizeLinear and DequantizeLinear.
        op_types_to_quantize: operators; all that either format knows by default.
        per_channel: weights get a scale for each channel, where their operator allows it.
        reduce_range: weights get one bit less, for processors that add products of bytes in 16 bits.
        activation_type: of everything that is no weight.
        weight_type: of weights.
        nodes_to_quantize: names of the only nodes to quantize; all by default.
        nodes_to_exclude: names of nodes that stay as they are.
        use_external_data_format: large tensors get a file of their own, as they must in models above 2 GB.
        calibrate_method: how ranges follow from samples.
        calibration_providers: what runs the samples; the CPU provider by default.
        extra_options: see ``ort_quantization.arguments.extra_options.EXTRA_OPTIONS``.
        calibration_cache_path: a file of ranges: read where it is there, else written.

    Raises:
        NoSuchFile: there is no such model.
        InvalidQuantization: the model, types or an option cannot be quantized so.
        InvalidCalibration: no ranges follow from the samples.
    """
    refuse_single_names(
        op_types_to_quantize=op_types_to_quantize,
        nodes_to_quantize=nodes_to_quantize,
        nodes_to_exclude=nodes_to_exclude,
    )
    options = options_of(extra_options)
    warn_of_unknown(options)
    check_static_quant_arguments(quant_format, activation_type, weight_type)
    refuse_unwritable(model_output)
    choices = _Choices(
        quant_format, list(op_types_to_quantize or {**QLinearOpsRegistry, **QDQRegistry}), per_channel, reduce_range,
        activation_type, weight_type, nodes_to_quantize, nodes_to_exclude, calibrate_method, calibration_providers,
        options,
    )  # fmt: skip
    given = _read(model_input, choices)
    if options.get("CrossLayerEqualization", False):
        equalized(given.model, given.folder)
        given.source = None
    correction = _Correction(calibration_data_reader, options)
    cache = None if calibration_cache_path is None else Path(calibration_cache_path)
    if cache is not None and not cache.exists():
        refuse_unwritable(cache, "ranges")
    ranges = None if choices.is_smooth else _cached_ranges(cache, calibrate_method)
    if ranges is None:
        ranges, choices = _found_ranges(given, choices, _needed(correction.reader))
        if cache is not None:
            save_tensors_data(ranges, cache, smooth_quant=choices.is_smooth)
    model = given.model
    if correction.is_asked_for:
        model, ranges = correction.corrected(given, ranges, choices)
    place = TensorFolder(given.folder, Path(model_output).parent) if given.folder else ""
    _quantized(given, choices, model, ranges, place).save_model_to_file(model_output, use_external_data_format)


@dataclass(frozen=True, slots=True)
class _Choices:
    """What is asked for; see ``quantize_static``."""

    form: QuantFormat
    operators: list[str]
    per_channel: bool
    reduce_range: bool
    activation_type: QuantType
    weight_type: QuantType
    nodes: Iterable[str] | None
    excluded: Iterable[str] | None
    method: CalibrationMethod
    providers: Providers | None
    options: dict[str, Any]  # Any: as many types as keys

    @property
    def is_smooth(self) -> bool:
        """Whether outliers move into weights."""
        return bool(self.options.get("SmoothQuant", False))


@dataclass(slots=True)
class _GivenState:
    """The float model.

    Attributes:
        model: changed by steps before quantization.
        folder: where its external data lies.
        operators: how many nodes of each type the file has.
        source: the file, as long as the model is what it holds.
    """

    model: ModelProto
    folder: str
    operators: Counter[str]
    source: Path | None


def _read(model_input: str | Path | ModelProto, choices: _Choices) -> _GivenState:
    """Return a model in an opset that has the types that are asked for."""
    model, folder = read_with_shapes(model_input)
    advise_preparation(model)
    advise_on_choices(model, choices.nodes, choices.excluded)
    operators, options = count_operators(model), choices.options
    overrides = TensorQuantOverridesHelper(options.get("TensorQuantOverrides") or {})
    asked = (choices.activation_type, choices.weight_type, *_types_of(overrides))
    types = {tensor_type_of(each) for each in asked}
    is_plain_qdq = choices.form is QuantFormat.QDQ and not options.get("UseQDQContribOps", False)
    if is_plain_qdq and has_element_type(model, TensorProto.FLOAT16):
        types.add(TensorProto.FLOAT16)
    has_channels = is_plain_qdq and (choices.per_channel or _has_axes(overrides))
    converted = with_opset_for(model, folder, types, bool(options.get("BlockSize", 0)), has_channels)
    is_changed = free_names(converted.graph) or converted is not model
    source = None if is_changed or isinstance(model_input, ModelProto) else Path(model_input)
    return _GivenState(converted, folder, operators, source)


def _found_ranges(
    given: _GivenState, choices: _Choices, reader: CalibrationDataReader
) -> tuple[TensorsData, _Choices]:  # fmt: skip
    """Return the ranges that samples have, and the choices: nodes that SmoothQuant adds are not to be quantized."""
    with contextlib.ExitStack() as kept:
        if choices.is_smooth:
            samples, options = kept.enter_context(Samples(reader)), choices.options
            excluded = list(choices.excluded or ())
            excluded += smooth(
                given.model, given.folder, samples, choices.operators, excluded,
                float(options.get("SmoothQuantAlpha", 0.5)), bool(options.get("SmoothQuantFolding", True)),
                choices.providers,
            )  # fmt: skip
            choices = dataclasses.replace(choices, excluded=excluded)
            given.model, given.source = with_shapes(given.model, given.folder), None
            reader = KeptReader(samples)
        return _calibrated(given, choices, reader), choices


def _quantized(
    given: _GivenState, choices: _Choices, model: ModelProto, ranges: TensorsData, folder: str
) -> ONNXModel:  # fmt: skip
    """Return a model, the float model or what became of it, quantized; it is changed."""
    held, by_channel, reduced = ONNXModel(model, folder), choices.per_channel, choices.reduce_range
    common = (
        choices.weight_type, choices.activation_type, ranges, choices.nodes, choices.excluded, choices.operators,
        choices.options,
    )  # fmt: skip
    quantizer: ONNXQuantizer | QDQQuantizer
    if choices.form is QuantFormat.QOperator:
        quantizer = ONNXQuantizer(held, by_channel, reduced, QuantizationMode.QLinearOps, True, *common)
    else:
        quantizer = QDQQuantizer(held, by_channel, reduced, *common)
        quantizer.products_in_reals = added_products(given.model, model)
    advise_without_change(given.operators, quantizer.quantize_model(), choices.operators)
    return quantizer.model


class _Correction:
    """Keeps the samples of a calibration where biases are to be corrected by them, too.

    Args:
        reader: gives the samples.
        options: the extra options.

    Attributes:
        is_asked_for: whether biases are corrected.
        reader: what the calibration reads.
    """

    def __init__(self, reader: CalibrationDataReader | None, options: dict[str, Any]) -> None:
        self.is_asked_for = bool(options.get("BiasCorrection", False))
        self.reader = reader
        if not self.is_asked_for:
            return
        if reader is None:
            raise InvalidCalibration("BiasCorrection needs samples, also where ranges come from a file")
        if options.get("CalibStridedMinMax"):
            raise InvalidQuantization("BiasCorrection reads all samples twice, which CalibStridedMinMax does not allow")
        self._samples = Samples(reader)
        self.reader = KeptReader(self._samples)

    def corrected(
        self, given: _GivenState, ranges: TensorsData, choices: _Choices
    ) -> tuple[ModelProto, TensorsData]:  # fmt: skip
        """Return the float model whose biases make up for the weights that it is quantized to, and its ranges.

        Where the results would lose more with other biases, the model and its ranges are returned as they are.
        """
        model, folder, providers = given.model, given.folder, choices.providers
        small = _quantized(given, choices, _copied(model), ranges, folder).model
        with self._samples:
            found, _ = bias_corrected(model, folder, small, folder, KeptReader(self._samples), providers)
            found_ranges = ranges_of_products(ranges, model, found)
            others = small, _quantized(given, choices, _copied(found), found_ranges, folder).model
            without, with_it = decibels_of_results(model, folder, others, self._samples, providers)
        if with_it < without:
            log.warning(
                "biases are not corrected: the results would lose more, with a signal-to-noise ratio of %.1f dB on the "
                "samples instead of %.1f dB", with_it, without,
            )  # fmt: skip
            return model, ranges
        return found, found_ranges


def _copied(model: ModelProto) -> ModelProto:
    found = ModelProto()
    found.CopyFrom(model)
    return found


def _has_axes(overrides: TensorQuantOverridesHelper) -> bool:
    """Return whether single tensors are to have a scale for each channel; malformed choices are told of later."""
    lists = [each for each in overrides.get_dict().values() if isinstance(each, list)]
    return any(isinstance(each, dict) and "axis" in each for listed in lists for each in listed)


def _types_of(overrides: TensorQuantOverridesHelper) -> set[QuantType]:
    """Return the types that are chosen for single tensors; malformed choices are told of later."""
    lists = [each for each in overrides.get_dict().values() if isinstance(each, list)]
    chosen = [each for listed in lists for each in listed if isinstance(each, dict)]
    chosen += [each["convert"] for each in chosen if isinstance(each.get("convert"), dict)]
    return {each["quant_type"] for each in chosen if isinstance(each.get("quant_type"), QuantType)}


def _cached_ranges(path: Path | None, method: CalibrationMethod) -> TensorsData | None:
    """Return the ranges of a file, ``None`` where there is none or it is of a model that SmoothQuant had changed."""
    if path is None or not path.exists():
        return None
    if read_ranges_file(path).get("smooth_quant", False):
        log.warning("%s holds ranges of a model that SmoothQuant had changed: they are found anew", path)
        return None
    found = load_tensors_data(path)
    if found.calibration_method.name != method.name:
        raise InvalidQuantization(
            f"{path} holds ranges found by {found.calibration_method.name}, and {method.name} is asked for; delete the "
            "file, or ask for the same method"
        )
    return found


def _needed(reader: CalibrationDataReader | None) -> CalibrationDataReader:
    if reader is None:
        raise InvalidCalibration(
            "no calibration_data_reader was given, and calibration_cache_path names no file: one of both is needed"
        )
    return reader


def _calibrated(given: _GivenState, choices: _Choices, reader: CalibrationDataReader) -> TensorsData:
    """Run the model on the samples and return the ranges."""
    options, source = choices.options, given.source
    settings = {name: options[key] for key, name in CALIBRATION_OPTIONS.items() if key in options}
    settings["calibrate_subgraphs"] = bool(options.get("EnableSubgraph", False))
    settings["moments"] = bool(options.get("KeepFragileValues", True))
    with tempfile.TemporaryDirectory(prefix="ort.quantization.") as scratch:
        if source is None:
            source = Path(scratch) / "float.onnx"
            has_files = any(is_external(tensor) for tensor in given.model.graph.initializer)
            write_model(_copied(given.model), given.folder, source, has_files)
        augmented = Path(scratch) / "augmented.onnx"
        calibrator = create_calibrator(
            source, choices.operators, augmented, choices.method, False, choices.providers, settings
        )  # fmt: skip
        stride = options.get("CalibStridedMinMax")
        for start, end in _strides(reader, stride):
            if stride:
                reader.set_range(start_index=start, end_index=end)
            calibrator.collect_data(reader)
        ranges = calibrator.compute_data()
        del calibrator
        gc.collect()  # the session holds the weights once more, and its files are removed
        return ranges


def _strides(reader: CalibrationDataReader, stride: int | None) -> list[tuple[int, int]]:
    if not stride:
        return [(0, 0)]
    try:
        count = len(reader)
    except (NotImplementedError, TypeError) as error:
        raise InvalidCalibration(
            f"CalibStridedMinMax needs to know how many samples there are: {type(reader).__name__} has no __len__"
        ) from error
    if count % stride:
        raise InvalidCalibration(f"{count} samples are not divisible by the stride {stride} (CalibStridedMinMax)")
    return [(start, start + stride) for start in range(0, count, stride)]
