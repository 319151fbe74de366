"""Precision: casts that let a claim of float32 be computed in float16 or bfloat16, where the user asked for that.

Networks are strongly typed, so that the casts are written out. Inputs and outputs of the claim keep their types. A node
stays in float32 when its sums, powers or exponentials leave the range or the digits of the narrow type (the operators
that mixed precision keeps everywhere), when a constant of its does not fit, when it is computed in int8 anyway, and
when nothing is known of its types.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import Constant, DataType, Graph, Node, Value
from ort_ep_tensorrt.lowering.editing import Editor, mark_parts, place_of

NARROW: Mapping[str, DataType] = {"float16": DataType.FLOAT16, "bfloat16": DataType.BFLOAT16}
_SUMS = "it sums or multiplies many numbers up"
_CURVES = "its results leave the digits or the range of narrow types"
_KEPT: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "CumSum", "LogSoftmax", "LpNormalization", "MeanVarianceNormalization", "ReduceL1", "ReduceL2",
            "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Softmax",
        ),
        _SUMS,
    ),
    **dict.fromkeys(
        (
            "Acos", "Acosh", "Asin", "Asinh", "Atanh", "Cosh", "Exp", "Log", "Pow", "Reciprocal", "Sinh", "Softplus",
            "Tan",
        ),
        _CURVES,
    ),
    **dict.fromkeys(("Range", "Resize", "Upsample", "GridSample", "CumProd"), "its numbers are positions"),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), "its scale is float32"),
    "Cast": "it names its types itself",
    "CastLike": "it names its types itself",
}  # fmt: skip
NORMALIZATIONS = frozenset({"LayerNormalization", "RMSNormalization", "GroupNormalization", "InstanceNormalization"})
_MOVING = frozenset(
    {
        "Compress", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity",
        "Pad", "Reshape", "ReverseSequence", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose",
        "Unsqueeze", "Where",
    }
)  # fmt: skip
_SAMPLED = 1 << 22  # elements of a constant that are looked at; a larger one is looked at in steps


def narrow(graph: Graph, precision: str, *, keeps_normalizations: bool) -> dict[int, str]:
    """Write casts into a marked copy of a claim.

    Args:
        graph: the copy.
        precision: ``"float16"`` or ``"bfloat16"``.
        keeps_normalizations: layer normalization and its kin stay in float32.

    Returns:
        For each place whose node of float32 numbers stays in float32, the reason.
    """
    dtype = NARROW[precision]
    kept: dict[int, str] = {}
    narrowed: dict[Value, Value] = {}
    for node in graph.nodes:
        if not _makes_floats(node) or (node.op_type in _MOVING and not any(value in narrowed for value in node.inputs)):
            continue  # what only moves or compares numbers of float32 leaves them so
        reason = _reason(graph, node, dtype, keeps_normalizations)
        if reason is not None:
            kept[place_of(node)] = reason
        else:
            _narrow_node(graph, node, dtype, narrowed)
    return kept


def _makes_floats(node: Node) -> bool:
    return any(dtype_of(value) is DataType.FLOAT for value in node.present_outputs())


def _reason(graph: Graph, node: Node, dtype: DataType, keeps_normalizations: bool) -> str | None:
    if node.op_type in _KEPT:
        return f"{node.op_type} stays in float32: {_KEPT[node.op_type]}"
    if node.op_type in NORMALIZATIONS and keeps_normalizations:
        return f"{node.op_type} stays in float32: option trt_layer_norm_fp32_fallback"
    if node.subgraphs():
        return f"{node.op_type} stays in float32: its bodies keep their types"
    values = (*node.present_inputs(), *node.present_outputs())
    if any(value.type is None for value in values):
        return f"{node.op_type} stays in float32: the types of its values are not known"
    if any(v.producer is not None and v.producer.op_type == "DequantizeLinear" for v in node.present_inputs()):
        return f"{node.op_type} stays in float32: it reads quantized values, with which TensorRT computes in int8"
    for value in node.present_inputs():
        constant = graph.fixed_constant(value)
        misfit = None if constant is None or constant.dtype is not DataType.FLOAT else misfit_of(constant, dtype)
        if misfit is not None:
            return f"{node.op_type} stays in float32: its constant {value.name!r} holds {misfit}"
    return None


def misfit_of(constant: Constant, dtype: DataType) -> str | None:
    """Return a number of a constant that a narrow type would turn to infinity or, alone, to zero; ``None``: all fit."""
    if dtype is not DataType.FLOAT16:
        return None  # bfloat16 has the range of float32
    flat = constant.array().reshape(-1)
    sizes = np.abs(flat[:: max(1, flat.size // _SAMPLED)])
    finite = sizes[np.isfinite(sizes)]
    limit = float(np.finfo(np.float16).max)
    if finite.size and float(finite.max()) > limit:
        return f"{float(finite.max()):g}, more than the {limit:g} of float16"
    smallest = float(np.finfo(np.float16).smallest_subnormal)
    if finite.size and 0 < float(finite.max()) < smallest:  # an epsilon; a few vanishing weights among many may go
        return f"{float(finite.max()):g}, which is 0 in float16"
    return None


def _narrow_node(graph: Graph, node: Node, dtype: DataType, narrowed: dict[Value, Value]) -> None:
    editor = Editor(graph, node)
    inputs = [_narrowed_input(editor, value, dtype, narrowed) for value in node.inputs]
    attributes = tuple(node.attributes.values())
    twin = graph.insert_before(node, Node(node.op_type, inputs, len(node.outputs), attributes, domain=node.domain,
                                          name=node.name, opset=node.opset))  # fmt: skip
    mark_parts([twin], place_of(node))
    for index, original in enumerate(node.outputs):
        if original is None:
            continue
        made = twin.outputs[index]
        assert made is not None
        if dtype_of(original) is not DataType.FLOAT:
            made.type = original.type
            widened = graph.insert_before(node, Node("Identity", [made], 1))
        else:
            narrowed[original] = made
            widened = graph.insert_before(node, Node("Cast", [made], 1, {"to": int(DataType.FLOAT)}))
        mark_parts([widened], place_of(node))
        widened.adopt_outputs([node.detach_output(index)])
    graph.remove(node)


def _narrowed_input(editor: Editor, value: Value | None, dtype: DataType, narrowed: dict[Value, Value]) -> Value | None:
    if value is None or dtype_of(value) is not DataType.FLOAT:
        return value
    if value not in narrowed:
        narrowed[value] = editor.cast(value, dtype)
    return narrowed[value]


def remove_unread_casts(graph: Graph) -> None:
    """Remove casts that nothing reads: between two narrow nodes no number goes back to float32."""
    for node in reversed(graph.nodes):
        if node.op_type in ("Cast", "Identity") and not node.output.use_count and not node.output.is_graph_output:
            graph.remove(node)
