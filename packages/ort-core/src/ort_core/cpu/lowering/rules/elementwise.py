"""Elementwise operators: pending expressions, fused with what they read."""

from __future__ import annotations

from ort_core.cpu.lowering.expression_core import core_of
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor, PendingElementwise
from ort_core.cpu.lowering.steps import NotLowered, Operators
from ort_core.cpu.lowering.value_types import HALVES, stored_type, tensor_type
from ort_core.cpu.lowering.views import broadcast_strides
from ort_core.plugin import Rejection
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import SMALL_TYPES, Scalar, cast, converted, minimum

MAX_OPERANDS = 64  # of one Sum; expressions nest as deep, and are walked by recursion


def elementwise(lowering: Lowering, node: Node) -> None:
    """Describe the node's result as an expression over its operands."""
    inputs = list(node.present_inputs())
    is_clip_above = node.op_type == "Clip" and len(inputs) == 2 and node.input(1) is None
    if len(inputs) != len(node.inputs) and not is_clip_above:
        raise NotLowered("an optional operand in the middle is absent")
    if lowering.opset_of(node) < 7 and not node.domain and (node.op_type == "PRelu" or node.attribute("broadcast")):
        raise NotLowered("before opset 7 operands were aligned otherwise")
    if len(inputs) > MAX_OPERANDS:
        raise NotLowered(f"more than {MAX_OPERANDS} operands")
    dtype, shape = tensor_type(node.output)
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    half = stored_type(node.output)[0] if node.op_type == "Cast" else None
    is_rounded = half in HALVES and half is not stored_type(inputs[0])[0]
    if half in HALVES:
        attributes["to"] = int(DataType.FLOAT)  # within a group they are float32
    state, scalars = lowering.operands.fuse(node, inputs, shape)
    if is_clip_above:
        expression: Scalar | Rejection = minimum(scalars[0], scalars[1])
    elif node.op_type == "Cast" and not node.domain and SMALL_TYPES & {scalars[0].dtype, dtype}:
        expression = converted(scalars[0], dtype, saturate=bool(node.int_attribute("saturate", 1)))
    else:
        expression = lowering.meaning_of(node, scalars, attributes)
    if not isinstance(expression, Scalar):
        raise NotLowered(expression.reason)
    if is_rounded:  # the model asks for the halves' precision and range, also where no memory lies between
        assert half is not None
        expression = cast(cast(expression, half), DataType.FLOAT)
    if expression.dtype is not dtype:
        raise NotLowered(f"the expression gives {expression.dtype.text}, the model declares {dtype.text}")
    for view in state.inputs:
        if broadcast_strides(view, shape) is None:
            raise NotLowered(f"whether {view.shape} broadcasts to {shape} is only known at run time")
    if state.anchor is not None:
        anchor = state.anchor
        operators = (*anchor.operators, node)
        lowering.set(node.output, PendingAnchor(anchor.anchor, expression, tuple(state.inputs), shape, operators))
    else:
        core = core_of(expression, state.core)
        operators = _operators(lowering, node)
        lowering.set(node.output, PendingElementwise(core.root, tuple(state.inputs), shape, operators, core))


def _operators(lowering: Lowering, node: Node) -> Operators:
    names: list[Node | str] = []
    for value in node.present_inputs():
        known = lowering.pending(value)
        if isinstance(known, PendingElementwise):
            names.extend(known.operators)
    return (*names[-16:], node)
