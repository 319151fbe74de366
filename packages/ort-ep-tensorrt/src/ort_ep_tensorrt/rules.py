"""Rules of ours: nodes that are refused before TensorRT is asked: its parser would go on with something else."""

from __future__ import annotations

from ort_core.plugin import GraphView
from ort_core.plugin.ir import DataType, Node, TensorType, Value
from ort_ep_tensorrt.settings import BuildSettings

_COMPUTED = frozenset(
    {DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16, DataType.INT32, DataType.INT64, DataType.BOOL}
)
_QUANTIZED = frozenset({DataType.INT8, DataType.INT4, DataType.FLOAT8E4M3FN})
_WHY = {
    DataType.DOUBLE: "TensorRT's parser makes float32 of float64",
    DataType.UINT8: "TensorRT computes nothing in uint8, and quantises to int8 alone",
    DataType.STRING: "TensorRT has no strings",
}
_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
_NOT_BUILT_BY_RTX = {
    "Attention": "TensorRT-RTX parses it, and mostly finds no kernel when it builds",
    "NonMaxSuppression": "TensorRT-RTX parses it, and has no kernel for it when it builds",
}  # found by building every node case that is claimed
_CONVERTING = frozenset({"QuantizeLinear", "DequantizeLinear"})


def refusal(view: GraphView, node: Node, settings: BuildSettings, *, is_rtx: bool) -> str | None:
    """Return why a node is not for TensorRT (or TensorRT-RTX), or ``None``."""
    if is_rtx and node.op_type in _NOT_BUILT_BY_RTX:
        return _NOT_BUILT_BY_RTX[node.op_type]
    if node.op_type in settings.excluded:
        return f"option trt_op_types_to_exclude names {node.op_type}"
    if node.subgraphs():
        return "control flow is run by ort-core; its bodies are offered on their own"
    if node.op_type in _RANDOM:
        return "TensorRT takes no seed: its numbers could not be repeated"
    if node.op_type == "Dropout" and view.opset(node) >= 12 and node.input(2) is not None:
        return "Dropout that may be training has random numbers; TensorRT leaves them out"
    zero_point = node.input(2) if node.op_type in _CONVERTING else None
    if zero_point is not None and view.constant(zero_point) is None:
        return f"the zero point {zero_point.name!r} is no constant; TensorRT needs its values when it builds"
    allowed = _COMPUTED | _QUANTIZED if node.op_type in _CONVERTING else _COMPUTED
    for value in (*node.present_inputs(), *node.present_outputs()):
        reason = _type_reason(value, allowed)
        if reason is not None:
            return reason
    return None


def _type_reason(value: Value, allowed: frozenset[DataType]) -> str | None:
    if not isinstance(value.type, TensorType):
        return f"{value.name!r} is no dense tensor"
    if value.shape is None:
        return f"the rank of {value.name!r} is not known; TensorRT needs it when it builds"
    dtype = value.type.dtype
    if dtype in allowed:
        return None
    if dtype in _QUANTIZED:
        return f"{value.name!r} is {value.type}: TensorRT holds these only beside QuantizeLinear and DequantizeLinear"
    return f"{value.name!r} is {value.type}: " + _WHY.get(dtype, "TensorRT has no such element type")
