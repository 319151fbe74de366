"""QDQSelectorActionTransformer: dequantize, compute, quantize becomes one integer operator.

    y = QuantizeLinear(Conv(DequantizeLinear(x), DequantizeLinear(w), DequantizeLinear(b)))
        ->  y = QLinearConv(x, w, b)

and so for MatMul, Gemm, Add, Mul, pooling, activations, Concat and Where (onnxruntime's QLinear operators). An
operator that only moves values about works on the integers themselves when the grids on both sides are equal. The
result may differ by one step of the output's grid, as sums are rounded once instead of in float32 first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import field

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.ir.values import Value
from ort_core.passes.fusions.integer_product import without_trailing
from ort_core.passes.fusions.operands import ONNXRUNTIME, fixed_dim, refuse_attributes
from ort_core.passes.fusions.quantized_values import (
    Quantized,
    find_dequantized,
    find_quantized,
    has_same_grid,
    quantized_by,
)
from ort_core.rewrite.fuse import fuse
from ort_core.rewrite.matcher import Match, constant_of
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, one_of, op, var
from ort_core.rewrite.rule import RewriteRule

BIAS_TOLERANCE = 1e-4  # of the bias' scale against the product of the operands': float32 rounds at 6e-8


@frozen
class IntegerNode:
    """The integer operator to put there, and the nodes that it stands for."""

    op_type: str
    domain: str
    inputs: tuple[Value | None, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    attributes: dict[str, object] = field(default_factory=dict)


_LINEAR = ("DequantizeLinear", "QuantizeLinear")
Selector = Callable[[Node, Quantized, int], "IntegerNode | Rejection"]


class QDQSelectorActionTransformer(RewriteRule[IntegerNode]):
    """Replace an operator between dequantized inputs and a quantized output.

    Args:
        operators: the names of those to replace; ``None``: all that have an integer form.
    """

    name = "QDQSelectorActionTransformer"

    def __init__(self, operators: Collection[str] | None = None) -> None:
        self._operators = frozenset(SELECTORS if operators is None else operators)

    def build_pattern(self) -> Pattern:
        """Return any quantization; what it quantizes selects the rule."""
        source = var("y", where=lambda value: value.producer is not None)
        return one_of(*(op("QuantizeLinear", source, more_inputs=True, domain=domain) for domain in ("", ONNXRUNTIME)))

    def check(self, match: Match) -> IntegerNode | Rejection:
        """Ask the selector of the operator."""
        node = match["y"].producer
        assert node is not None
        select = SELECTORS.get(node.op_type) if node.domain == "" and node.op_type in self._operators else None
        if select is None:
            return Rejection(f"there is no integer form of {node.op_type}", node)
        made = quantized_by(match.root)
        if made is None or not made.has_one_scale:
            return Rejection("the output is not quantized to 8 bits with one constant scale", match.root)
        if find_quantized(node.output) is None:
            return Rejection("the float result has other readers", node)
        found = select(node, made, match.opset(node))
        if isinstance(found, IntegerNode) and _lacks_zero_point(found):
            return Rejection(f"{found.op_type} needs all zero points in onnxruntime", node)
        return found

    def rewrite(self, match: Match, bindings: IntegerNode) -> GraphPatch:
        """Put the integer operator there; the forms of onnxruntime's domain want scales of no axis."""
        patch = GraphPatch(match.model, match.root)
        inputs = tuple(_scalar(patch, each, bindings) for each in bindings.inputs)
        if bindings.domain == "" and not bindings.op_type.startswith("QLinear"):
            types = tuple(value.type for value in bindings.outputs)
            moved = patch.node(bindings.op_type, bindings.inputs, bindings.attributes, outputs=types)
            for old, new in zip(bindings.outputs, moved.outputs, strict=True):
                assert new is not None
                patch.replace(old, new)
            patch.remove(*bindings.nodes)
        else:
            fuse(patch, match, bindings.op_type, without_trailing(inputs), bindings.attributes,
                 domain=bindings.domain, outputs=bindings.outputs, nodes=bindings.nodes)  # fmt: skip
        return patch


def _lacks_zero_point(integer: IntegerNode) -> bool:
    """Return whether an operator of onnxruntime has an input left out: it refuses that, or reads beyond the inputs."""
    return integer.domain == ONNXRUNTIME and integer.op_type.startswith("QLinear") and None in integer.inputs


def _scalar(patch: GraphPatch, value: Value | None, integer: IntegerNode) -> Value | None:
    """Return a scale or zero point of one element as a number, any other input of an integer operator as it is."""
    found = constant_of(value)
    is_parameter = any(value is each for node in integer.nodes if node.op_type in _LINEAR for each in node.inputs[1:3])
    if value is None or found is None or found.shape != (1,) or not is_parameter or not integer.domain:
        return value
    return patch.constant(found.array().reshape(()), value.name, found.dtype)


def _operands(node: Node, indices: Sequence[int], dtype: DataType | None) -> list[Quantized] | Rejection:
    """Return the dequantized inputs, each with one scale and of ``dtype``."""
    found = []
    for index in indices:
        operand = find_dequantized(node.input(index))
        if operand is None or not operand.has_one_scale:
            return Rejection(f"input {index} is not dequantized from 8 bits with one constant scale", node)
        if dtype is not None and operand.dtype != dtype:
            return Rejection(f"input {index} is {operand.dtype.text}, the output {dtype.text}", node)
        found.append(operand)
    return found


def _linear(
    op_type: str, node: Node, made: Quantized, operands: Sequence[Quantized], attributes: dict[str, object]
) -> IntegerNode:
    inputs = [part for operand in operands for part in operand.triple()]
    nodes = (*dict.fromkeys(operand.node for operand in operands), node, made.node)
    return IntegerNode(op_type, ONNXRUNTIME, (*inputs, made.scale, made.zero), nodes, (made.tensor,), attributes)


def _elementwise(op_type: str, count: int, attribute_names: tuple[str, ...] = ()) -> Selector:
    def select(node: Node, made: Quantized, opset: int) -> IntegerNode | Rejection:
        operands = _operands(node, range(count), made.dtype)
        if isinstance(operands, Rejection):
            return operands
        refusal = refuse_attributes(node, attribute_names, ones=("dilations",))
        if refusal is not None:
            return refusal
        attributes = {name: node.attributes[name] for name in attribute_names if name in node.attributes}
        return _linear(op_type, node, made, operands, dict(attributes))

    return select


def _select_softmax(node: Node, made: Quantized, opset: int) -> IntegerNode | Rejection:
    operands = _operands(node, (0,), made.dtype)
    if isinstance(operands, Rejection):
        return operands
    axis = node.int_attribute("axis", -1 if opset >= 13 else 1)
    if made.zero is None:
        return Rejection("onnxruntime's QLinearSoftmax needs the zero point of its output", node)
    return _linear("QLinearSoftmax", node, made, operands, {"axis": axis, "opset": opset})


def _select_global_pool(node: Node, made: Quantized, opset: int) -> IntegerNode | Rejection:
    operands = _operands(node, (0,), made.dtype)
    if isinstance(operands, Rejection):
        return operands
    return _linear("QLinearGlobalAveragePool", node, made, operands, {"channels_last": 0})


def _select_where(node: Node, made: Quantized, opset: int) -> IntegerNode | Rejection:
    operands = _operands(node, (1, 2), made.dtype)
    if isinstance(operands, Rejection):
        return operands
    if made.zero is None or any(operand.zero is None for operand in operands):
        return Rejection("QLinearWhere needs all zero points", node)
    found = _linear("QLinearWhere", node, made, operands, {})
    return IntegerNode(found.op_type, found.domain, (node.inputs[0], *found.inputs), found.nodes, found.outputs)


def _select_concat(node: Node, made: Quantized, opset: int) -> IntegerNode | Rejection:
    operands = _operands(node, range(len(node.inputs)), made.dtype)
    if isinstance(operands, Rejection):
        return operands
    if made.zero is None or any(operand.zero is None for operand in operands):
        return Rejection("QLinearConcat needs all zero points", node)
    found = _linear("QLinearConcat", node, made, operands, {"axis": node.int_attribute("axis", 1)})
    inputs = (made.scale, made.zero, *found.inputs[:-2])
    return IntegerNode(found.op_type, found.domain, inputs, found.nodes, found.outputs, found.attributes)


def weights_of(value: Value | None, axis: int, node: Node) -> Quantized | Rejection:
    """Return dequantized weights whose scale is one number, or one for each index of ``axis``."""
    found = find_dequantized(value)
    scale = None if found is None else found.scale_array()
    if found is None or scale is None or found.zero_array() is None:
        return Rejection("the weights are not dequantized from 8 bits by constants", node)
    rank = found.tensor.rank
    if found.has_one_scale:
        return found
    if rank is None or found.axis % rank != axis % rank or scale.shape != (fixed_dim(found.tensor, axis),):
        return Rejection(f"the scales of the weights run along axis {found.axis}, not {axis}", node)
    return found


def bias_of(value: Value | None, x: Quantized, w: Quantized, factor: float, node: Node) -> Quantized | Rejection | None:
    """Return the bias as int32 with the scale of the product, ``None`` where there is none."""
    if value is None:
        return None
    found = find_dequantized(value, frozenset({DataType.INT32}))
    scale, x_scale, w_scale = (None if each is None else each.scale_array() for each in (found, x, w))
    if found is None or scale is None or x_scale is None or w_scale is None:
        return Rejection("the bias is not dequantized from int32 by constants", node)
    zero, rank = found.zero_array(), found.tensor.rank
    if zero is None or zero.any():
        return Rejection("the bias has a zero point", node)
    if not found.has_one_scale and (rank is None or found.axis % rank != rank - 1):
        return Rejection(f"the scales of the bias run along axis {found.axis}, not the last", node)
    if not np.allclose(scale.reshape(-1), (x_scale.reshape(-1) * w_scale.reshape(-1) * factor), BIAS_TOLERANCE, 0):
        return Rejection("the scale of the bias is not the product of the scales of input and weights", node)
    return found


def _select_conv(node: Node, made: Quantized, opset: int) -> IntegerNode | Rejection:
    x = _operands(node, (0,), made.dtype)
    if isinstance(x, Rejection):
        return x
    w = weights_of(node.input(1), 0, node)
    if isinstance(w, Rejection):
        return w
    if x[0].dtype is DataType.INT8 and w.dtype is DataType.UINT8:
        return Rejection("onnxruntime has no QLinearConv of int8 with uint8 weights", node)
    bias = bias_of(node.input(2), x[0], w, 1.0, node)
    if isinstance(bias, Rejection):
        return bias
    zeros = (x[0].zero, w.zero, made.zero)
    if any(zero is None for zero in zeros):
        return Rejection("QLinearConv needs all zero points", node)
    inputs = (*x[0].triple(), *w.triple(), made.scale, made.zero, None if bias is None else bias.tensor)
    nodes = (x[0].node, w.node, *(() if bias is None else (bias.node,)), node, made.node)
    return IntegerNode("QLinearConv", "", inputs, nodes, (made.tensor,), dict(node.attributes))


def _select_matmul(node: Node, made: Quantized, opset: int) -> IntegerNode | Rejection:
    a = _operands(node, (0,), made.dtype)
    if isinstance(a, Rejection):
        return a
    b = weights_of(node.input(1), -1, node)
    if isinstance(b, Rejection):
        return b
    if a[0].dtype is DataType.INT8 and b.dtype is DataType.UINT8:
        return Rejection("onnxruntime has no QLinearMatMul of int8 with uint8", node)
    if any(zero is None for zero in (a[0].zero, b.zero, made.zero)):
        return Rejection("QLinearMatMul needs all zero points", node)
    inputs = (*a[0].triple(), *b.triple(), made.scale, made.zero)
    return IntegerNode("QLinearMatMul", "", inputs, (a[0].node, b.node, node, made.node), (made.tensor,))


def _select_gemm(node: Node, made: Quantized, opset: int) -> IntegerNode | Rejection:
    a = _operands(node, (0,), made.dtype)
    if isinstance(a, Rejection):
        return a
    b = weights_of(node.input(1), 0 if node.int_attribute("transB", 0) else 1, node)
    if isinstance(b, Rejection):
        return b
    alpha = node.float_attribute("alpha", 1.0)
    if node.input(2) is not None and (node.float_attribute("beta", 1.0) != 1.0 or alpha != 1.0):
        return Rejection("QGemm adds the bias as it is", node)
    bias = bias_of(node.input(2), a[0], b, 1.0, node)
    if isinstance(bias, Rejection):
        return bias
    if any(zero is None for zero in (a[0].zero, b.zero, made.zero)):
        return Rejection("QGemm needs all zero points", node)
    inputs = (*a[0].triple(), *b.triple(), None if bias is None else bias.tensor, made.scale, made.zero)
    nodes = (a[0].node, b.node, *(() if bias is None else (bias.node,)), node, made.node)
    attributes = {name: node.int_attribute(name, 0) for name in ("transA", "transB")}
    return IntegerNode("QGemm", ONNXRUNTIME, inputs, nodes, (made.tensor,), {"alpha": alpha, **attributes})


def _moves_since(
    opset_needed: int, only: Callable[[Node], bool] = lambda node: True, *, compares: bool = False
) -> Selector:
    """Return the selector of operators that move numbers, or choose some where it ``compares`` them."""

    def select(node: Node, made: Quantized, opset: int) -> IntegerNode | Rejection:
        x = find_dequantized(node.input(0))
        if opset < opset_needed or not only(node):
            return Rejection(f"{node.op_type} does not take integers like this at opset {opset}", node)
        outputs = []
        for value in node.present_outputs():
            after = find_quantized(value)
            if x is None or after is None or not has_same_grid(x, after):
                return Rejection("the grids of input and outputs are not known to be equal", node)
            outputs.append(after)
        assert x is not None
        if compares and not x.keeps_order:
            return Rejection("the greatest number is not the greatest integer: the scale is not above zero", node)
        inputs = (x.tensor, *node.inputs[1:])
        nodes = (x.node, node, *(each.node for each in outputs))
        return IntegerNode(node.op_type, "", inputs, nodes, tuple(e.tensor for e in outputs), dict(node.attributes))

    return select


def has_one_result(node: Node) -> bool:
    """Return whether only the first output is there (MaxPool may also give indices)."""
    return sum(1 for _ in node.present_outputs()) == 1


def is_nearest(node: Node) -> bool:
    """Return whether a Resize picks values instead of mixing them, or giving others outside of the image."""
    gives_others = node.string_attribute("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    return node.string_attribute("mode", "nearest") == "nearest" and not gives_others


MOVES: dict[str, Selector] = {
    **dict.fromkeys(
        ("DepthToSpace", "SpaceToDepth", "Expand", "Flatten", "Gather", "GatherElements", "Reshape", "Slice", "Split",
         "Squeeze", "Tile", "Transpose", "Unsqueeze"), _moves_since(1),
    ),
    "MaxPool": _moves_since(12, has_one_result, compares=True),
    "ReduceMax": _moves_since(12, compares=True),
    "ReduceMin": _moves_since(12, compares=True),
    "Resize": _moves_since(11, is_nearest),
}  # fmt: skip
_POOL = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
SELECTORS: dict[str, Selector] = {
    **MOVES,
    "Add": _elementwise("QLinearAdd", 2),
    "AveragePool": _elementwise("QLinearAveragePool", 1, _POOL),
    "Concat": _select_concat,
    "Conv": _select_conv,
    "Gemm": _select_gemm,
    "GlobalAveragePool": _select_global_pool,
    "LeakyRelu": _elementwise("QLinearLeakyRelu", 1, ("alpha",)),
    "MatMul": _select_matmul,
    "Mul": _elementwise("QLinearMul", 2),
    "Sigmoid": _elementwise("QLinearSigmoid", 1),
    "Softmax": _select_softmax,
    "Where": _select_where,
}
