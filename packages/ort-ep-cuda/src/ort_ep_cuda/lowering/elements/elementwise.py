"""Elementwise operators: their meanings from ``ort_core.loops`` over lazy tensors, so that chains become one kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_core.plugin import NotImplemented, Rejection
from ort_core.plugin.ir import DataType, Node, TensorType, Value
from ort_core.plugin.loops import MEANINGS, Scalar, binary, cast, element, lift, meaning_of, print_expression, unary
from ort_ep_cuda.lowering.builder import element_type
from ort_ep_cuda.lowering.node_facts import LoweredNode, axis_of, broadcast
from ort_ep_cuda.lowering.values.tensors import LazyTensor, combine
from ort_ep_cuda.lowering.values.views import TensorView
from ort_ep_cuda.lowering.writing.double_math import DOUBLE_MEANINGS
from ort_ep_cuda.lowering.writing.preamble import NARROW, compute_type

HALVES = frozenset({DataType.FLOAT16, DataType.BFLOAT16})
_RANGES = {DataType.INT8: (-128, 127), DataType.UINT8: (0, 255)}


def refuse_elementwise(node: Node) -> str | None:
    """Return why a node has no generated form, ``None`` where it has one."""
    scalars = [symbol(index, value) for index, value in enumerate(node.present_inputs())]
    meaning = _meaning(node, scalars)
    if isinstance(meaning, Rejection):
        return meaning.reason
    try:
        print_expression(meaning, lambda index: "x")
    except ValueError as error:
        return str(error)
    return None


def lower_elementwise(facts: LoweredNode) -> None:
    """Define the output as an expression over the inputs' expressions."""
    inputs = list(facts.node.present_inputs())
    read = inputs[:1] if facts.node.op_type == "CastLike" else inputs  # of the other one only its type counts
    tensors = [facts.builder.tensor(value) for value in read]
    shape = broadcast(*(tensor.shape for tensor in tensors))
    dtype = element_type(facts.output)
    result = combine([t.broadcast_to(shape) for t in tensors], lambda roots: _known(facts.node, roots), dtype)
    if facts.node.op_type == "Cast" and dtype in HALVES:  # the rounding that was asked for happens in memory
        view = facts.builder.result(facts.output, shape)
        facts.builder.stored(result, view)
    else:
        facts.builder.define(facts.output, result)


def symbol(index: int, value: Value) -> Scalar:
    """Return how a formula reads an input before shapes are known: a constant of one element as its value."""
    constant = value.constant
    dtype = compute_type(element_type(value))
    if constant is not None and constant.size == 1:
        return lift(constant.array().reshape(()).astype(dtype.numpy).item(), dtype)
    return element(index, dtype)


def _meaning(node: Node, scalars: Sequence[Scalar]) -> Scalar | Rejection:
    attributes: Mapping[str, object] = {name: a.value for name, a in node.attributes.items()}
    if node.op_type in ("Cast", "CastLike"):
        target = compute_type(element_type(node.output))
        source = scalars[:1]
        return source[0] if source[0].dtype is target else meaning_of("", "Cast", source, {"to": int(target)})
    if node.op_type == "Clip" and node.input(1) is None and node.input(2) is not None:  # no lower bound
        return binary("min", *scalars)
    if node.op_type == "Pow" and not scalars[0].dtype.is_float:
        return Rejection("no generated power of integers")
    if scalars and scalars[0].dtype is DataType.DOUBLE and node.op_type in DOUBLE_MEANINGS:
        return DOUBLE_MEANINGS[node.op_type](scalars, attributes)
    return meaning_of(node.domain, node.op_type, scalars, attributes)


def _known(node: Node, scalars: Sequence[Scalar]) -> Scalar:
    meaning = _meaning(node, scalars)
    if isinstance(meaning, Rejection):
        raise NotImplemented(f"{node.describe()}: {meaning.reason}")
    return meaning


def refuse_quantization(node: Node) -> str | None:
    """Return why a quantization is not generated: types, or blocks that do not divide the axis of what is read."""
    narrow = node.output if node.op_type == "QuantizeLinear" else node.input(0)
    assert narrow is not None
    block = node.int_attribute("block_size", 0)
    if block and (node.op_type == "QuantizeLinear" or not _has_whole_blocks(node, narrow, block)):
        return "quantization in blocks, other than reading whole ones, is not generated"
    allowed = (*_RANGES, DataType.INT32, *NARROW) if node.op_type == "DequantizeLinear" else tuple(_RANGES)
    if element_type(narrow) not in allowed:
        return f"quantization of {element_type(narrow).text} is not generated"
    return None


def _has_whole_blocks(node: Node, value: Value, block: int) -> bool:
    shape = value.type.shape if isinstance(value.type, TensorType) else None
    if not shape:
        return False
    size = shape[axis_of(node.int_attribute("axis", 1), len(shape))]
    return isinstance(size, int) and size % block == 0


def lower_quantize(facts: LoweredNode) -> None:
    """Define ``saturate(rint(x / scale) + zero_point)``."""
    tensors = _quantization_operands(facts)
    dtype = element_type(facts.output)
    low, high = _RANGES[dtype]

    def meaning(roots: Sequence[Scalar]) -> Scalar:
        rounded = unary("rint", roots[0] / cast(roots[1], roots[0].dtype))
        shifted = rounded + cast(roots[2], rounded.dtype) if len(roots) > 2 else rounded
        bounded = binary("min", binary("max", shifted, float(low)), float(high))
        return cast(cast(bounded, DataType.INT32), dtype)

    facts.builder.define(facts.output, combine(tensors, meaning, dtype))


def lower_dequantize(facts: LoweredNode) -> None:
    """Define ``(x - zero_point) * scale``; a float of 8 bits has no zero point but 0."""
    block = facts.node.int_attribute("block_size", 0)
    tensors = _blocked_operands(facts, block) if block else _quantization_operands(facts)
    dtype = element_type(facts.output)

    def meaning(roots: Sequence[Scalar]) -> Scalar:
        if roots[0].dtype is DataType.FLOAT:
            return roots[0] * cast(roots[1], DataType.FLOAT)
        whole = cast(roots[0], DataType.INT32)
        whole = whole - cast(roots[2], DataType.INT32) if len(roots) > 2 else whole
        return cast(whole, DataType.FLOAT) * cast(roots[1], DataType.FLOAT)

    found = combine(tensors, meaning, dtype)
    if not block:
        facts.builder.define(facts.output, found)
        return
    out = facts.builder.result(facts.output, facts.tensor(0).shape)
    facts.builder.stored(found, TensorView.dense(out.buffer, out.dtype, found.shape))


def _blocked_operands(facts: LoweredNode, block: int) -> list[LazyTensor]:
    """Return what is read with its axis as blocks and places within them, and what each block has."""
    x = facts.builder.dense(facts.value(0))
    axis = axis_of(facts.node.int_attribute("axis", 1), len(x.shape))
    before, count, behind = x.shape[:axis], x.shape[axis] // block, x.shape[axis + 1 :]
    shape = (*before, count, block, *behind)
    of_blocks = [facts.builder.dense(value) for value in list(facts.node.present_inputs())[1:]]
    column = (*before, count, 1, *behind)
    tensors = [LazyTensor.of(view.regrouped(column)).broadcast_to(shape) for view in of_blocks]
    return [LazyTensor.of(x.regrouped(shape)), *tensors]


def _quantization_operands(facts: LoweredNode) -> list[LazyTensor]:
    x = facts.tensor(0)
    axis = axis_of(facts.node.int_attribute("axis", 1), len(x.shape))
    scales = [facts.builder.tensor(value) for value in list(facts.node.present_inputs())[1:]]
    return [x, *(along_axis(tensor, x.shape, axis) for tensor in scales)]


def along_axis(tensor: LazyTensor, shape: tuple[int, ...], axis: int) -> LazyTensor:
    """Return a tensor of one axis (or of one element) repeated to ``shape``, its axis being ``axis``."""
    if not tensor.shape or tensor.shape == (1,):
        return tensor.moved(lambda view: view.reshaped(()) or view, ()).broadcast_to(shape)
    column = (tensor.shape[0], *[1] * (len(shape) - axis - 1))
    wide = tensor.moved(lambda view: view.reshaped(column) or view, column)
    return wide.broadcast_to(shape)


def refuse_batch_norm(node: Node) -> str | None:
    """Return why a batch normalization is not generated: training, or types that have no form."""
    if node.int_attribute("training_mode", 0) or len(list(node.present_outputs())) > 1:
        return "BatchNormalization in training is not generated"
    if not node.int_attribute("spatial", 1):
        return "BatchNormalization with statistics of every place is not generated"
    return None


def lower_batch_norm(facts: LoweredNode) -> None:
    """Define ``(x - mean) / sqrt(variance + epsilon) * scale + bias``: its statistics are given."""
    x = facts.tensor(0)
    parameters = [along_axis(facts.tensor(k), x.shape, 1) for k in (1, 2, 3, 4)]
    epsilon = facts.node.float_attribute("epsilon", 1e-5)

    def meaning(roots: Sequence[Scalar]) -> Scalar:
        values, scale, bias, mean, variance = (cast(root, roots[0].dtype) for root in roots)
        return (values - mean) / unary("sqrt", variance + epsilon) * scale + bias

    facts.builder.define(facts.output, combine([x, *parameters], meaning, element_type(facts.output)))


ELEMENTWISE = frozenset(MEANINGS) | {("", "Cast"), ("", "CastLike")}
"""Operators that ``lower_elementwise`` takes, where their types have a form."""
