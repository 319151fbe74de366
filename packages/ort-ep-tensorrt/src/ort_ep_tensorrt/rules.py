"""Rules of ours: nodes that are refused before TensorRT is asked: its parser would go on with something else."""

from __future__ import annotations

from ort_core.plugin import GraphView
from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import DataType, Node, TensorType, Value, captured_values, walk
from ort_core.plugin.ops import scaled_size
from ort_ep_tensorrt.lowering import integer_emulation
from ort_ep_tensorrt.lowering.branches import unequal_branches
from ort_ep_tensorrt.lowering.decomposition import RANDOM, has_parts, is_misread_by_parser, mistaken_words
from ort_ep_tensorrt.settings import BuildSettings

_COMPUTED = frozenset(
    {DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16, DataType.INT32, DataType.INT64, DataType.BOOL}
)
_QUANTIZED = frozenset({DataType.INT8, DataType.INT4, DataType.FLOAT8E4M3FN})
_BUILT_IN = _QUANTIZED - integer_emulation.BOUNDS.keys()
_WHY = {
    DataType.DOUBLE: "TensorRT's parser makes float32 of float64",
    DataType.UINT8: "TensorRT computes this in no integers of 8 bits",
    DataType.INT8: "TensorRT computes this in no integers of 8 bits",
    DataType.STRING: "TensorRT has no strings",
}
_NOT_BUILT_BY_RTX = {
    "NonMaxSuppression": "TensorRT-RTX parses it, and has no kernel for it when it builds",
}  # found by building every node case that is claimed
_IN_PARTS_FOR_RTX = frozenset({"Attention"})  # TensorRT-RTX parses it, and mostly finds no kernel when it builds
_PARTS_TAKE_8_BITS = frozenset(
    {"ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul"}
)
_UNPACKED = frozenset({"GatherBlockQuantized", "MatMulNBits"})
_ROUNDING = 1e-5  # of a scale in float32, and of its product with a size
_CONVERTING = frozenset({"QuantizeLinear", "DequantizeLinear"})


def built_in_parts(node: Node, *, is_rtx: bool) -> bool:
    """Return whether a node is handed over in its operator's parts at once, although the parser knows the operator."""
    if node.op_type == "MatMulNBits":  # of which the parser takes float16 alone
        return dtype_of(node.input(0)) is not DataType.FLOAT16
    if node.op_type in ("Resize", "Upsample"):
        return _has_scales_beside_the_ratio(node)
    return is_rtx and node.op_type in _IN_PARTS_FOR_RTX


def _has_scales_beside_the_ratio(node: Node) -> bool:
    """Return whether a scale is not the ratio of the sizes along its axis: 5 elements times 0.5 are 2.

    ONNX reads places by the scale. Nothing of TensorRT says which of both its layer goes by, and no GPU was at hand.
    """
    x, scales = node.input(0), node.input(1 if len(node.inputs) == 2 else 2)
    if x is None or x.shape is None or scales is None or scales.constant is None or scales.is_graph_input:
        return False
    if node.string_attribute("coordinate_transformation_mode", "") == "align_corners":  # which goes by sizes
        return False
    given = scales.constant.array().reshape(-1).tolist()
    axes = node.ints_attribute("axes") or range(len(given))
    pairs = [(x.shape[axis], scale) for axis, scale in zip(axes, given, strict=False)]
    return any(
        isinstance(size, int) and abs(scaled_size(size, scale) - size * scale) > _ROUNDING * size * scale
        for size, scale in pairs
    )


def refusal(view: GraphView, node: Node, settings: BuildSettings, *, is_rtx: bool) -> str | None:
    """Return why a node is not for TensorRT (or TensorRT-RTX), or ``None``."""
    if is_rtx and node.op_type in _NOT_BUILT_BY_RTX:
        return _NOT_BUILT_BY_RTX[node.op_type]
    if node.op_type in settings.excluded:
        return f"option trt_op_types_to_exclude names {node.op_type}"
    if node.op_type in RANDOM:
        return "TensorRT takes no seed: its numbers could not be repeated"
    if node.op_type == "Dropout" and view.opset(node) >= 12 and node.input(2) is not None:
        return "Dropout that may be training has random numbers; TensorRT leaves them out"
    if is_misread_by_parser(node, view.context) and not has_parts(node, view.context):
        return mistaken_words(node)
    zero_point = node.input(2) if node.op_type in _CONVERTING else None
    if dtype_of(zero_point) in _BUILT_IN and view.constant(zero_point) is None:
        return f"the zero point of {node.op_type} is not a constant; TensorRT needs its values when it builds"
    for value in (*node.present_inputs(), *node.present_outputs()):
        if node.op_type in _UNPACKED and view.constant(value) is not None:
            continue  # packed weights become int4, packed tables words
        reason = _type_reason(value, _allowed(node))
        if reason is not None:
            return reason
    return _body_reason(view, node, settings, is_rtx=is_rtx) if node.subgraphs() else None


def _allowed(node: Node) -> frozenset[DataType]:
    if node.op_type in _CONVERTING:
        return _COMPUTED | _QUANTIZED | integer_emulation.BOUNDS.keys()
    if node.op_type in integer_emulation.OPERATORS or node.op_type in _PARTS_TAKE_8_BITS:
        return _COMPUTED | integer_emulation.BOUNDS.keys()
    return _COMPUTED


def _body_reason(view: GraphView, node: Node, settings: BuildSettings, *, is_rtx: bool) -> str | None:
    """Return why the bodies of a control-flow node are not for TensorRT, or ``None``."""
    unequal = unequal_branches(node)
    if unequal is not None:
        return unequal
    for value in captured_values(node):
        reason = _type_reason(value, _COMPUTED)
        if reason is not None:
            return f"its body reads {reason}"
    for inner in (each for body in node.subgraphs() for each in walk(body)):
        reason = refusal(view, inner, settings, is_rtx=is_rtx)
        narrow = (_type_reason(value, _COMPUTED) for value in (*inner.present_inputs(), *inner.present_outputs()))
        reason = reason or next(filter(None, narrow), None)
        if reason is not None:
            return f"{inner.op_type} in its body: {reason}"
    return None


def _type_reason(value: Value, allowed: frozenset[DataType]) -> str | None:
    if not isinstance(value.type, TensorType):
        return f"{value.name!r} is not a dense tensor"
    if value.shape is None:
        return f"the rank of {value.name!r} is not known; TensorRT needs it when it builds"
    dtype = value.type.dtype
    if dtype in allowed:
        return None
    if dtype in _BUILT_IN:
        return f"{value.name!r} is {value.type}: TensorRT holds these only beside QuantizeLinear and DequantizeLinear"
    return f"{value.name!r} is {value.type}: " + _WHY.get(dtype, "TensorRT has no such element type")
