"""Nodes that find scale and zero point of a value while the model runs, as operators before opset 11 must.

From opset 11 on one DynamicQuantizeLinear does it for unsigned bytes. As there, zero is one of the numbers: the range
reaches to it where all values lie on one side, and a range of nothing has some scale. onnxruntime's tool does neither:
behind a Relu and a mean its zero points are negative numbers, cast to unsigned bytes.
"""

from __future__ import annotations

import ml_dtypes
from onnx import NodeProto, TensorProto, helper

from ort_quantization.quantizers.quantized_tensors import scalar_tensor

_RANGE, _SIGNED_RANGE = "fixed_quantization_range_uint8", "fixed_quantization_range_int8"
_ZERO, _ZERO_POINT, _LEAST = "fixed_zero", "fixed_zero_zp", "fixed_least_scale"


def parameter_nodes(
    name: str, tensor_type: int, float_type: int
) -> tuple[list[NodeProto], list[TensorProto], tuple[str, str]]:
    """Return nodes, the constants that they read, and the names of the scale and the zero point that they give.

    Args:
        name: of the value.
        tensor_type: INT8 (zero in the middle) or UINT8.
        float_type: of the value.
    """
    if tensor_type == TensorProto.INT8:
        return _signed(name, float_type)
    return _unsigned(name, float_type)


def _step(op_type: str, inputs: list[str], name: str) -> NodeProto:
    return helper.make_node(op_type, inputs, [f"{name}:0"], name)


def _extreme(op_type: str, value: str, name: str) -> NodeProto:
    return helper.make_node(op_type, [value], [f"{name}:0"], name, keepdims=0)


def _signed(name: str, float_type: int) -> tuple[list[NodeProto], list[TensorProto], tuple[str, str]]:
    least, most = f"{name}_ReduceMin", f"{name}_ReduceMax"
    nodes = [
        _extreme("ReduceMin", name, least),
        _extreme("ReduceMax", name, most),
        _step("Abs", [f"{least}:0"], f"{least}_Abs"),
        _step("Abs", [f"{most}:0"], f"{most}_Abs"),
        _step("Max", [f"{least}_Abs:0", f"{most}_Abs:0"], f"{name}_Abs_Max"),
        _step("Div", [f"{name}_Abs_Max:0", _SIGNED_RANGE], f"{name}scale_Div"),
        helper.make_node("Max", [f"{name}scale_Div:0", _LEAST], [f"{name}_scale"], f"{name}scale_Max"),
    ]
    constants = [
        scalar_tensor(_SIGNED_RANGE, float_type, 127.5), scalar_tensor(_ZERO_POINT, TensorProto.INT8, 0),
        _least_scale(float_type),
    ]  # fmt: skip
    return nodes, constants, (f"{name}_scale", _ZERO_POINT)


def _unsigned(name: str, float_type: int) -> tuple[list[NodeProto], list[TensorProto], tuple[str, str]]:
    least, most, scale, point = (f"{name}_{part}" for part in ("ReduceMin", "ReduceMax", "scale", "zero_point"))
    nodes = [
        _extreme("ReduceMin", name, least),
        _extreme("ReduceMax", name, most),
        _step("Min", [f"{least}:0", _ZERO], f"{least}_Min"),
        _step("Max", [f"{most}:0", _ZERO], f"{most}_Max"),
        _step("Sub", [f"{most}_Max:0", f"{least}_Min:0"], f"{scale}_Sub"),
        _step("Div", [f"{scale}_Sub:0", _RANGE], f"{scale}_Div"),
        helper.make_node("Max", [f"{scale}_Div:0", _LEAST], [scale], f"{scale}_Max"),
        _step("Sub", [_ZERO, f"{least}_Min:0"], f"{point}_Sub"),
        _step("Div", [f"{point}_Sub:0", scale], f"{point}_Div"),
        _step("Floor", [f"{point}_Div:0"], f"{point}_Floor"),
        helper.make_node("Cast", [f"{point}_Floor:0"], [point], f"{point}_Cast", to=TensorProto.UINT8),
    ]
    constants = [scalar_tensor(_RANGE, float_type, 255), scalar_tensor(_ZERO, float_type, 0), _least_scale(float_type)]
    return nodes, constants, (scale, point)


def _least_scale(float_type: int) -> TensorProto:
    """Return the scale of a value that is zero everywhere: the least positive number that is no denormal."""
    return scalar_tensor(_LEAST, float_type, float(ml_dtypes.finfo(helper.tensor_dtype_to_np_dtype(float_type)).tiny))
