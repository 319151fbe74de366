"""Numbers quantized by given parameters, and the tensors of a model that hold them."""

from __future__ import annotations

import numpy as np
from ml_dtypes import float8_e4m3fn
from onnx import TensorProto, helper, numpy_helper

from ort_quantization.errors import InvalidQuantization
from ort_quantization.quantized_types import NUMPY_TYPES, RANGES, type_name
from ort_quantization.quantizers.scales import Parameters

_FLOAT8_MOST = np.float32(448)


_TYPED = frozenset(
    {TensorProto.FLOAT, TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16, TensorProto.INT32}
)
"""Types whose numbers have fields of their own in files; those of others are bits."""


def quantized(
    values: np.ndarray, parameters: Parameters, low: int | None = None, high: int | None = None
) -> np.ndarray:
    """Return numbers divided by their scales and rounded, halves to even, shifted, and cut to what the type holds.

    Args:
        values: float32 or float16, any shape.
        parameters: scale and zero point; per channel or block along their axis.
        low: least result, where that is more than the type's.
        high: greatest result, where that is less than the type's.

    Raises:
        InvalidQuantization: the type is not quantized to, or 8 bit floats get a zero point or no finite result.
    """
    scale, zero_point = (_spread(each, values, parameters) for each in (parameters.scale, parameters.zero_point))
    if parameters.tensor_type == TensorProto.FLOAT8E4M3FN:
        return _as_float8(values, scale, zero_point)
    if parameters.tensor_type not in RANGES:
        raise InvalidQuantization(f"nothing is quantized to {type_name(parameters.tensor_type)}")
    least, most = RANGES[parameters.tensor_type]
    wide = zero_point.astype(np.float64 if scale.dtype == np.float64 else np.float32)
    whole = np.asarray(values.astype(np.float32, copy=False) / scale)
    np.round(whole, out=whole)  # in place: weights may be large
    whole = np.add(whole, wide, out=whole) if whole.dtype == np.result_type(whole, wide) else whole + wide
    np.clip(whole, least if low is None else max(least, low), most if high is None else min(most, high), out=whole)
    return whole.astype(NUMPY_TYPES[parameters.tensor_type])


def dequantized(values: np.ndarray, parameters: Parameters) -> np.ndarray:
    """Return the reals, in the type of the scale, that quantized numbers stand for."""
    scale, zero_point = (_spread(each, values, parameters) for each in (parameters.scale, parameters.zero_point))
    return ((values.astype(np.float32) - zero_point.astype(np.float32)) * scale).astype(scale.dtype)


def _as_float8(values: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    if zero_point.astype(np.float32).any():
        raise InvalidQuantization("8 bit floats have no zero point other than 0")
    ratio = (values / scale).astype(np.float32)  # rounded in the type of the numbers, as QuantizeLinear divides floats
    found = np.clip(ratio, -_FLOAT8_MOST, _FLOAT8_MOST).astype(float8_e4m3fn)
    if np.isnan(found.astype(np.float32)).any():
        raise InvalidQuantization("a number to quantize to FLOAT8E4M3FN is no number (NaN)")
    return found


def _spread(numbers: np.ndarray, values: np.ndarray, parameters: Parameters) -> np.ndarray:
    """Return scales or zero points in a shape that broadcasts against the values."""
    axis = parameters.axis
    if axis is None:
        return numbers.reshape(()) if numbers.size == 1 else numbers
    axis %= values.ndim
    if parameters.block_size:
        return np.repeat(numbers, parameters.block_size, axis=axis).take(range(values.shape[axis]), axis)
    return numbers.reshape([-1 if each == axis else 1 for each in range(values.ndim)])


def float_array(initializer: TensorProto) -> np.ndarray:
    """Return the numbers of a tensor of float32 or float16.

    Raises:
        InvalidQuantization: it has another element type.
    """
    if initializer.data_type not in (TensorProto.FLOAT, TensorProto.FLOAT16):
        raise InvalidQuantization(
            f"{initializer.name!r} is {type_name(initializer.data_type)}; only FLOAT and FLOAT16 are quantized"
        )
    return numpy_helper.to_array(initializer)


def is_float(tensor: TensorProto) -> bool:
    """Return whether the numbers of a tensor can be quantized."""
    return tensor.data_type in (TensorProto.FLOAT, TensorProto.FLOAT16)


def quantized_tensor(tensor: TensorProto, parameters: Parameters, name: str) -> TensorProto:
    """Return a tensor of the model, quantized, under a new name."""
    return numpy_helper.from_array(quantized(float_array(tensor), parameters), name)


def parameter_tensors(parameters: Parameters, scale_name: str, zero_point_name: str) -> tuple[TensorProto, TensorProto]:
    """Return the tensors of a scale and of a zero point; those per tensor have no axes.

    Their numbers stand in the fields of their types, where programs of onnxruntime's tool read them.
    """
    scale, zero_point = parameters.scale, parameters.zero_point
    if parameters.axis is None:
        scale, zero_point = scale.reshape(()), zero_point.reshape(())
    return _typed_tensor(scale, scale_name), _typed_tensor(zero_point, zero_point_name)


def _typed_tensor(array: np.ndarray, name: str) -> TensorProto:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    if kind not in _TYPED:
        return numpy_helper.from_array(array, name)
    return helper.make_tensor(name, kind, array.shape, array.reshape(-1).tolist())


def scalar_tensor(name: str, tensor_type: int, value: float) -> TensorProto:
    """Return a tensor of one number, without axes."""
    return helper.make_tensor(name, tensor_type, [], [value])


def packed_pairs(src_8bit: bytes) -> bytearray:
    """Return bytes that hold two 4-bit numbers each, the first in the low bits; an odd last one stands alone."""
    each = np.frombuffer(src_8bit, np.uint8) & 15
    if each.size % 2:
        each = np.append(each, np.uint8(0))
    return bytearray((each[0::2] | each[1::2] << 4).astype(np.uint8).tobytes())
