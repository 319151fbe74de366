"""Where a quantized model loses accuracy: its values and weights beside those of the float model, as signal to noise.

onnxruntime's functions of this module, with their names (its spelling of ``noice``, too) and results.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

import ort_core
from ort_core.lazy_names import lazy_names
from ort_quantization.calibration.activation_capture import Providers
from ort_quantization.calibration.calibration_data import CalibrationDataReader, samples_of
from ort_quantization.errors import InvalidCalibration
from ort_quantization.models.model_files import read_model, read_tensor, read_with_shapes, write_model

__all__ = [
    "collect_activations", "compute_activation_error", "compute_signal_to_quantization_noice_ratio",
    "compute_weight_error", "create_activation_matching", "create_weight_matching",
    "modify_model_output_intermediate_tensors",
]  # fmt: skip

log = logging.getLogger(__name__)

Arrays = Sequence[np.ndarray]
ErrorFunction = Callable[[Arrays, Arrays], float]
WeightErrorFunction = Callable[[np.ndarray, np.ndarray], float]

_SAVED = "_ReshapedSavedOutput"
_SHAPE = "LinearReshape_SavedOutputs"
_BEFORE = "_QuantizeLinear_Input"
_AFTER = ("_DequantizeLinear_Output", "_DequantizeLinear_Output_1")
_WEIGHTS = ("_quantized", "_DQ_Q4", "_DQ_Q8")  # what static quantization adds to a weight's name, and blocks do
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)


def modify_model_output_intermediate_tensors(
    input_model_path: str | Path,
    output_model_path: str | Path,
    op_types_for_saving: Sequence[str] | None = None,
    save_as_external_data: bool = False,
) -> None:
    """Write a model that gives the floats that its nodes read and write as outputs, too, each in one row.

    Args:
        input_model_path: of a model.
        output_model_path: to write.
        op_types_for_saving: operators whose values are given; all by default.
        save_as_external_data: whether large tensors get a file of their own.

    Raises:
        NoSuchFile: there is no such model.
    """
    model, folder = read_with_shapes(input_model_path)
    graph = model.graph
    known = {each.name: each.type.tensor_type.elem_type for each in [*graph.value_info, *graph.output, *graph.input]}
    constant = {each.name for each in graph.initializer}
    chosen = [node for node in graph.node if not op_types_for_saving or node.op_type in op_types_for_saving]
    names = dict.fromkeys(name for node in chosen for name in [*node.input, *node.output])
    graph.initializer.append(numpy_helper.from_array(np.array([-1]), _SHAPE))
    for name in names:
        if known.get(name) in _FLOATS and name not in constant:
            graph.node.append(helper.make_node("Reshape", [name, _SHAPE], [name + _SAVED], name=name + _SAVED))
            graph.output.append(helper.make_tensor_value_info(name + _SAVED, known[name], [None]))
    write_model(model, folder, output_model_path, save_as_external_data)


def collect_activations(
    augmented_model: str | Path,
    input_reader: CalibrationDataReader,
    session_options: ort_core.SessionOptions | None = None,
    execution_providers: Providers | None = None,
) -> dict[str, list[np.ndarray]]:
    """Run a model of ``modify_model_output_intermediate_tensors`` and return its values by name, one for each run.

    Args:
        augmented_model: the path of that model.
        input_reader: gives the inputs of runs.
        session_options: no graph optimization by default.
        execution_providers: that run it; the CPU by default.

    Raises:
        InvalidCalibration: the reader has no data.
    """
    if session_options is None:
        session_options = ort_core.SessionOptions()
        session_options.graph_optimization_level = ort_core.GraphOptimizationLevel.ORT_DISABLE_ALL
    providers = ["CPUExecutionProvider"] if execution_providers is None else execution_providers
    session = ort_core.InferenceSession(str(augmented_model), session_options, providers=providers)
    names = [each.name for each in session.get_outputs() if each.name.endswith(_SAVED)]
    found: dict[str, list[np.ndarray]] = {}
    count = 0
    for sample in samples_of(input_reader):
        count += 1
        for name, value in zip(names, session.run(names, dict(sample)), strict=True):
            found.setdefault(name.removesuffix(_SAVED), []).append(np.asarray(value))
    if not count:
        raise InvalidCalibration("No data is collected while running augmented model: the reader gave no sample")
    return found


def create_activation_matching(
    qdq_activations: Mapping[str, Arrays], float_activations: Mapping[str, Arrays] | None = None
) -> dict[str, dict[str, Arrays]]:
    """Return the values of a QDQ model before (``pre_qdq``) and after (``post_qdq``) they are quantized, by name.

    Args:
        qdq_activations: what ``collect_activations`` gives of the quantized model.
        float_activations: what it gives of the float model; its values stand as ``float`` beside the others.
    """
    found: dict[str, dict[str, Arrays]] = {}
    for name, values in qdq_activations.items():
        own = name.removesuffix(_BEFORE)
        if own != name:
            pair: tuple[Arrays | None, Arrays | None] = values, qdq_activations.get(own)
        else:
            suffix = next((each for each in _AFTER if name.endswith(each)), None)
            if suffix is None:
                continue
            own = name.removesuffix(suffix)
            pair = qdq_activations.get(own), values
        if pair[0] is not None and pair[1] is not None:
            found[own] = {"pre_qdq": pair[0], "post_qdq": pair[1]}
    for own, match in found.items():
        if float_activations and own in float_activations:
            match["float"] = float_activations[own]
    return found


def create_weight_matching(
    float_model_path: str | Path, qdq_model_path: str | Path
) -> dict[str, dict[str, np.ndarray]]:
    """Return the weights of a float model (``float``) beside what a QDQ model makes of them (``dequantized``), by name.

    Scales may be one for the tensor, one for each channel or one for each block.

    Raises:
        NoSuchFile: there is no such model.
        InvalidCalibration: scales and zero points have different shapes.
    """
    (plain, plain_folder), (small, folder) = read_model(float_model_path), read_model(qdq_model_path)
    weights = {each.name: each for each in plain.graph.initializer}
    tensors = {each.name: each for each in small.graph.initializer}
    found: dict[str, dict[str, np.ndarray]] = {}
    for node in small.graph.node:
        if node.op_type != "DequantizeLinear" or node.input[0] not in tensors:
            continue
        suffix = next((each for each in _WEIGHTS if node.input[0].endswith(each)), "")
        name = node.input[0].removesuffix(suffix)
        if not suffix or name not in weights:
            log.error("%s: tensor %r stands for no weight of %s", qdq_model_path, node.input[0], float_model_path)
            continue
        parts = [numpy_helper.to_array(read_tensor(tensors[each], folder)) for each in node.input if each in tensors]
        dequantized = _dequantized(node, parts)
        exact = numpy_helper.to_array(read_tensor(weights[name], plain_folder))
        found[name] = {"float": exact, "dequantized": dequantized}
    return found


def _dequantized(node: NodeProto, parts: list[np.ndarray]) -> np.ndarray:
    """Return what numbers, scales and maybe zero points stand for, in the type of the scales."""
    numbers, scale = parts[0].astype(np.float32), parts[1]
    point = parts[2].astype(np.float32) if len(parts) > 2 else np.zeros(scale.shape, np.float32)
    if scale.size == point.size == 1:
        return ((numbers - point.reshape(())) * scale.reshape(()).astype(np.float32)).astype(scale.dtype)
    if scale.shape != point.shape:
        raise InvalidCalibration(
            f"node {node.name!r}: scale and zero_point must have the same shape but {scale.shape} != {point.shape}"
        )
    attributes = {each.name: each.i for each in node.attribute}
    axis, block = attributes.get("axis", 1) % numbers.ndim, attributes.get("block_size", 0)
    if block:
        places = np.arange(numbers.shape[axis]) // block
        factor, shift = scale.take(places, axis), point.take(places, axis)
    else:
        shape = [-1 if each == axis else 1 for each in range(numbers.ndim)]
        factor, shift = scale.reshape(shape), point.reshape(shape)
    return ((numbers - shift) * factor.astype(np.float32)).astype(scale.dtype)


def compute_signal_to_quantization_noice_ratio(x: Arrays | np.ndarray, y: Arrays | np.ndarray) -> float:
    """Return in decibels how far the numbers of one list of arrays lie from those of another, relative to the first.

    Raises:
        InvalidCalibration: there are not as many arrays in both, or they have other numbers of elements.
    """
    left, right = ([each] if isinstance(each, np.ndarray) else list(each) for each in (x, y))
    if len(left) != len(right) or any(one.size != other.size for one, other in zip(left, right, strict=True)):
        raise InvalidCalibration("Unequal number of tensors to compare!")
    signal = noise = 0.0
    for one, other in zip(left, right, strict=True):  # array by array: no copy of all of them
        wide = one.astype(np.float64).reshape(-1)
        lost = wide - other.astype(np.float64).reshape(-1)
        signal, noise = signal + float(wide @ wide), noise + float(lost @ lost)
    least = float(np.finfo(np.float64).eps)
    return 20 * math.log10(max(math.sqrt(signal), least) / max(math.sqrt(noise), least))


def compute_weight_error(
    weights_match: Mapping[str, Mapping[str, np.ndarray]],
    err_func: WeightErrorFunction = compute_signal_to_quantization_noice_ratio,
) -> dict[str, float]:
    """Return the error of each weight of ``create_weight_matching``."""
    return {name: err_func(match["float"], match["dequantized"]) for name, match in weights_match.items()}


def compute_activation_error(
    activations_match: Mapping[str, Mapping[str, Arrays]],
    err_func: ErrorFunction = compute_signal_to_quantization_noice_ratio,
) -> dict[str, dict[str, float]]:
    """Return the errors of each value of ``create_activation_matching``.

    ``qdq_err`` is that of quantizing the value, ``xmodel_err`` that beside the float model, where its value is known.
    """
    found: dict[str, dict[str, float]] = {}
    for name, match in activations_match.items():
        found[name] = {"qdq_err": err_func(match["pre_qdq"], match["post_qdq"])}
        if match.get("float"):
            found[name]["xmodel_err"] = err_func(match["float"], match["post_qdq"])
    return found


__getattr__, _ = lazy_names(  # what programs import from here, as onnxruntime's module imports it
    __name__,
    {
        "ort_quantization.calibrate": (
            "CalibraterBase",
        ),
        "ort_quantization.onnx_model": (
            "ONNXModel",
        ),
        "ort_quantization.quant_utils": (
            "DEQUANT_OP_NAME", "DEQUANT_OUTPUT_SUFFIX", "QUANT_INPUT_SUFFIX", "TENSOR_NAME_QUANT_SUFFIX",
            "find_by_name", "load_model_with_shape_infer",
        ),
    },
)  # fmt: skip
