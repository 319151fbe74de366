"""onnxruntime's module of this name: its functions over arrays, tensors and models, with its arguments.

Nothing in this package imports it: it only translates.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper

from ort_quantization.calibration.calibration_tables import write_calibration_table
from ort_quantization.calibration.thresholds import smooth_distribution
from ort_quantization.models.model_files import (
    INFERRED,
    PREPARED,
    Source,
    is_external,
    is_marked,
    mark,
    read_model,
    read_tensor,
    with_opset_for,
    with_shapes,
)
from ort_quantization.models.model_files import opset_of as get_opset_version
from ort_quantization.quantized_types import NUMPY_TYPES as ONNX_TYPE_TO_NP_TYPE
from ort_quantization.quantized_types import (
    RANGES,
    REDUCED_RANGES,
    SYMMETRIC_RANGES,
    QuantFormat,
    QuantizationMode,
    QuantizedValueType,
    QuantType,
    tensor_type_of,
)
from ort_quantization.quantizers.quantized_tensors import float_array as tensor_proto_to_array
from ort_quantization.quantizers.quantized_tensors import packed_pairs as pack_bytes_to_4bit
from ort_quantization.quantizers.quantized_tensors import quantized, quantized_tensor
from ort_quantization.quantizers.quantized_values import QuantizedValue
from ort_quantization.quantizers.scales import (
    Parameters,
    block_parameters_of,
    float8_scale,
    integer_range,
    parameters_of,
    scale_and_zero_point,
    snapped_scale_and_zero_point,
)

__all__ = [
    "add_infer_metadata", "add_pre_process_metadata", "generate_identified_filename", "get_opset_version",
    "load_model_with_shape_infer", "model_has_external_data", "model_has_infer_metadata",
    "model_has_pre_process_metadata", "save_and_reload_model_with_shape_infer", "update_opset_version",
    "ONNX_INT_TYPE_RANGE", "ONNX_INT_TYPE_REDUCED_RANGE", "ONNX_INT_TYPE_SYMMETRIC_RANGE", "ONNX_TYPE_TO_NP_TYPE",
    "QuantFormat", "QuantType", "QuantizationMode", "QuantizedValue", "QuantizedValueType", "add_dequant_input_suffix",
    "add_dequant_output_suffix", "add_dequant_suffix", "add_quant_input_suffix", "add_quant_output_suffix",
    "add_quant_suffix", "attribute_to_kwarg", "compute_data_quant_params", "compute_scale_zp",
    "compute_scale_zp_blocked", "compute_scale_zp_float8", "find_by_name", "get_elem_index", "get_mul_node",
    "get_qmin_qmax_for_qType", "get_qrange_for_qType", "normalize_axis", "pack_bytes_to_4bit", "quantize_data",
    "quantize_nparray", "quantize_onnx_initializer", "smooth_distribution", "snap_zero_point_to_uint8",
    "tensor_proto_to_array", "write_calibration_table",
]  # fmt: skip

ms_domain = "com.microsoft"
onnx_domain = "ai.onnx"
QUANT_OP_NAME, DEQUANT_OP_NAME = "QuantizeLinear", "DequantizeLinear"
QUANT_INPUT_SUFFIX = "_QuantizeLinear_Input"
DEQUANT_OUTPUT_SUFFIX = "_DequantizeLinear_Output"
TENSOR_NAME_QUANT_SUFFIX = "_quantized"
FLOAT8_TYPES = (
    TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ,
)  # fmt: skip
type_to_name = {number: name for name, number in TensorProto.DataType.items()}

Ends = tuple[np.ndarray, np.ndarray]
Named = TypeVar("Named")


def _ends(table: dict[int, tuple[int, int]]) -> dict[int, Ends]:
    return {kind: _typed_ends(kind, low, high) for kind, (low, high) in table.items()}


def _typed_ends(tensor_type: int, low: int, high: int) -> Ends:
    dtype = ONNX_TYPE_TO_NP_TYPE[tensor_type]
    return np.array(low, dtype=dtype), np.array(high, dtype=dtype)


ONNX_INT_TYPE_RANGE = _ends(RANGES)
ONNX_INT_TYPE_SYMMETRIC_RANGE = _ends(SYMMETRIC_RANGES)
ONNX_INT_TYPE_REDUCED_RANGE = _ends(REDUCED_RANGES)


def get_qmin_qmax_for_qType(qType: int, reduce_range: bool = False, symmetric: bool = False) -> Ends:  # noqa: N802, N803 - onnxruntime's names
    """Return the least and the greatest number of a quantized type, as arrays of that type."""
    return _typed_ends(qType, *integer_range(qType, reduce_range, symmetric))


def get_qrange_for_qType(qType: int, reduce_range: bool = False, symmetric: bool = False) -> int:  # noqa: N802, N803 - onnxruntime's names
    """Return how far the least and the greatest number of a quantized type lie apart."""
    low, high = integer_range(qType, reduce_range, symmetric)
    return high - low


def compute_scale_zp(
    rmin: np.ndarray, rmax: np.ndarray, qmin: np.ndarray, qmax: np.ndarray,
    symmetric: bool = False, min_real_range: float | None = None,
) -> list[np.ndarray]:  # fmt: skip
    """Return zero point and scale of a range of reals, in this order."""
    integers = int(qmin), int(qmax)
    scale, zero_point = scale_and_zero_point(np.asarray(rmin), np.asarray(rmax), integers, symmetric, min_real_range)
    return [zero_point.astype(np.asarray(qmin).dtype), scale]


def compute_scale_zp_float8(element_type: int, std: np.ndarray) -> list[np.ndarray]:
    """Return zero point and scale of 8 bit floats for numbers of a standard deviation."""
    return [np.zeros((), ONNX_TYPE_TO_NP_TYPE[element_type]), float8_scale(np.asarray(std))]


def compute_scale_zp_blocked(
    weight: np.ndarray, quant_type: int, axis: int, block_size: int, symmetric: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return zero points and scales of the blocks of a matrix, with its rank."""
    found = block_parameters_of(weight, quant_type, axis, block_size, symmetric)
    return found.zero_point, found.scale


def snap_zero_point_to_uint8(
    rmin: np.ndarray, rmax: np.ndarray, qmin: int = 0, qmax: int = 255, min_real_range: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return a zero point (uint8) at the lower end or in the middle, and the scale (float32) that cuts nothing."""
    ends = float(np.squeeze(rmin)), float(np.squeeze(rmax))
    scale, zero_point = snapped_scale_and_zero_point(*ends, (int(qmin), int(qmax)), min_real_range)
    return zero_point.astype(np.uint8), scale


def compute_data_quant_params(
    data: np.ndarray, quant_type: int, symmetric: bool, reduce_range: bool = False,
    min_real_range: float | None = None, rmin_override: float | None = None, rmax_override: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return zero point and scale of numbers."""
    found = parameters_of(data, quant_type, symmetric, reduce_range, min_real_range, rmin_override, rmax_override)
    return found.zero_point, found.scale


def quantize_nparray(
    qType: int, arr: np.ndarray, scale: np.ndarray, zero_point: np.ndarray,  # noqa: N803 - onnxruntime's name
    low: int | None = None, high: int | None = None,
) -> np.ndarray:  # fmt: skip
    """Return numbers quantized by one scale and zero point."""
    parameters = Parameters(np.asarray(scale), np.asarray(zero_point), qType)
    return quantized(np.asarray(arr), parameters, low, high)


def quantize_data(
    data: np.ndarray, qType: int, symmetric: bool, reduce_range: bool = False,  # noqa: N803 - onnxruntime's name
    min_real_range: float | None = None, rmin_override: float | None = None, rmax_override: float | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Return zero point, scale and the quantized numbers."""
    found = parameters_of(data, qType, symmetric, reduce_range, min_real_range, rmin_override, rmax_override)
    return found.zero_point, found.scale, quantized(data, found)


def quantize_onnx_initializer(
    weight: TensorProto, quant_type: int, zero_point: np.ndarray, scale: np.ndarray,
    axis: int | None = None, quant_weight_name: str | None = None, block_size: int = 0,
) -> TensorProto:  # fmt: skip
    """Return an initializer quantized by given scales and zero points."""
    parameters = Parameters(np.asarray(scale), np.asarray(zero_point), quant_type, axis, block_size)
    return quantized_tensor(weight, parameters, quant_weight_name or weight.name + TENSOR_NAME_QUANT_SUFFIX)


def normalize_axis(axis: int, rank: int) -> tuple[bool, int]:
    """Return whether an axis lies within a rank, and the axis counted from the front."""
    from_front = axis + rank if axis < 0 else axis
    return 0 <= from_front < rank, from_front


def attribute_to_kwarg(attribute: AttributeProto) -> dict[str, object]:
    """Return an attribute as an argument of ``onnx.helper.make_node``."""
    return {attribute.name: helper.get_attribute_value(attribute)}


def find_by_name(item_name: str, item_list: Iterable[Named]) -> Named | None:
    """Return the first of many that has a name, ``None`` where none has."""
    return next((item for item in item_list if getattr(item, "name", None) == item_name), None)


def get_elem_index(elem_name: object, elem_list: list[object]) -> int:
    """Return the last place of an element in a list, -1 where it is not in it."""
    return max((place for place, each in enumerate(elem_list) if each == elem_name), default=-1)


def get_mul_node(inputs: list[str], output: str, name: str) -> NodeProto:
    """Return a Mul."""
    return helper.make_node("Mul", inputs, [output], name)


def load_model_with_shape_infer(model_path: str | Path) -> ModelProto:
    """Return a model of a file, with its tensors, with the shapes that ONNX infers."""
    model, folder = read_model(model_path)
    for tensor in model.graph.initializer:
        if is_external(tensor):
            tensor.CopyFrom(read_tensor(tensor, folder))
    return with_shapes(model)


def save_and_reload_model_with_shape_infer(model: ModelProto) -> ModelProto:
    """Return a copy of a model with the shapes that ONNX infers."""
    return with_shapes(read_model(model)[0])


def model_has_external_data(model_path: Source) -> bool:
    """Return whether tensors of a model lie in files of their own."""
    return any(is_external(tensor) for tensor in read_model(model_path)[0].graph.initializer)


def add_pre_process_metadata(model: ModelProto) -> None:
    """Mark a model as prepared for quantization."""
    mark(model, PREPARED)


def model_has_pre_process_metadata(model: ModelProto) -> bool:
    """Return whether a model was prepared for quantization."""
    return is_marked(model, PREPARED)


def add_infer_metadata(model: ModelProto) -> None:
    """Mark a model as one whose shapes were inferred."""
    mark(model, INFERRED)


def model_has_infer_metadata(model: ModelProto) -> bool:
    """Return whether shapes of a model were inferred here."""
    return is_marked(model, INFERRED)


def update_opset_version(
    model: ModelProto, weight_type: QuantType | int, activation_type: QuantType | int | None = None,
    tensor_quant_overrides: dict[str, list[dict[str, object]]] | None = None, block_size: int = 0,
) -> ModelProto:  # fmt: skip
    """Return a model in an opset that can express a quantization: itself where its own can."""
    chosen = [weight_type, *([] if activation_type is None else [activation_type])]
    for listed in (tensor_quant_overrides or {}).values():
        types = (each.get("quant_type") for each in listed)
        chosen += [each for each in types if isinstance(each, (QuantType, int))]
    return with_opset_for(model, "", {tensor_type_of(each) for each in chosen}, block_size > 0)


def generate_identified_filename(filename: Path, identifier: str) -> Path:
    """Return the path of a file with something added before its ending."""
    return filename.with_name(filename.stem + identifier + filename.suffix)


def add_quant_suffix(tensor_name: str) -> str:
    """Return the name of the node that quantizes a tensor."""
    return tensor_name + "_QuantizeLinear"


def add_quant_input_suffix(tensor_name: str) -> str:
    """Return the name of what is quantized where a tensor's own name is taken by the result."""
    return tensor_name + QUANT_INPUT_SUFFIX


def add_quant_output_suffix(tensor_name: str) -> str:
    """Return the name of a quantized tensor."""
    return tensor_name + "_QuantizeLinear_Output"


def add_dequant_suffix(tensor_name: str) -> str:
    """Return the name of the node that gives a tensor its reals again."""
    return tensor_name + "_DequantizeLinear"


def add_dequant_input_suffix(tensor_name: str) -> str:
    """Return the name of what is dequantized."""
    return tensor_name + "_DequantizeLinear_Input"


def add_dequant_output_suffix(tensor_name: str) -> str:
    """Return the name of a dequantized tensor."""
    return tensor_name + DEQUANT_OUTPUT_SUFFIX
