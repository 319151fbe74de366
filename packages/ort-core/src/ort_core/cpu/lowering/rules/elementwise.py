"""Elementwise operators: pending expressions, fused with what they read."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from ort_core.cpu.lowering.broadcasting import known_strides
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor, PendingElementwise, order_of
from ort_core.cpu.lowering.rules.many_operands import has_many_operands, many_operands
from ort_core.cpu.lowering.steps import NotLowered, Operators
from ort_core.cpu.lowering.value_types import HALVES, stored_type
from ort_core.plugin import Rejection
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import SMALL_TYPES, Scalar, cast, converted, minimum


def elementwise(lowering: Lowering, node: Node) -> None:
    """Describe the node's result as an expression over its operands."""
    inputs, is_clip_above = list(node.present_inputs()), False
    if len(inputs) < len(node.inputs):
        is_clip_above = node.op_type == "Clip" and len(inputs) == 2 and node.input(1) is None
        if inputs != list(node.inputs[: len(inputs)]) and not is_clip_above:  # absent ones at the end are none
            raise NotLowered("an optional operand in the middle is absent")
    if lowering.opset_of(node) < 7 and not node.domain and (node.op_type == "PRelu" or node.attribute("broadcast")):
        raise NotLowered("before opset 7 operands were aligned otherwise")
    if has_many_operands(lowering, node):
        many_operands(lowering, node)
        return
    dtype, shape = lowering.type_of(node.output)
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    half = stored_type(node.output)[0] if node.op_type == "Cast" else None
    if half in HALVES:
        attributes["to"] = int(DataType.FLOAT)  # within a group they are float32
    rounded = half if half in HALVES and half is not stored_type(inputs[0])[0] else None
    state, scalars = lowering.operands.fuse(node, inputs, shape)
    expression, core = lowering.expressions.grown(
        _what(lowering, node, attributes, dtype, rounded, is_clip_above), scalars, state.core, state.anchor is None,
        lambda: _expression(lowering, node, scalars, attributes, dtype, rounded, is_clip_above),
    )  # fmt: skip
    if expression.dtype is not dtype:
        raise NotLowered(f"the expression gives {expression.dtype.text}, the model declares {dtype.text}")
    for view in state.inputs:
        known_strides(view, shape)
    if state.anchor is not None:
        anchor = state.anchor
        operators = (*anchor.operators, node)
        lowering.set(node.output, PendingAnchor(anchor.anchor, expression, tuple(state.inputs), shape, operators))
    else:
        pending = PendingElementwise(expression, tuple(state.inputs), shape, _operators(lowering, node), core)
        if not order_of(pending):
            views = tuple([lowering.operands.dense_where_repeated(view, shape) for view in state.inputs])
            pending = pending if views == pending.inputs else replace(pending, inputs=views)
        lowering.set(node.output, pending)


def _expression(
    lowering: Lowering, node: Node, scalars: Sequence[Scalar], attributes: Mapping[str, object], dtype: DataType,
    rounded: DataType | None, is_clip_above: bool,
) -> Scalar:  # fmt: skip
    """Return what the node makes of its operands; ``_what`` names all that it depends on."""
    if is_clip_above:
        expression: Scalar | Rejection = minimum(scalars[0], scalars[1])
    elif node.op_type == "Cast" and not node.domain and SMALL_TYPES & {scalars[0].dtype, dtype}:
        expression = converted(scalars[0], dtype, saturate=bool(attributes.get("saturate", 1)))
    else:
        expression = lowering.meaning_of(node, scalars, attributes)
    if not isinstance(expression, Scalar):
        raise NotLowered(expression.reason)
    if rounded is not None:  # the model asks for the halves' precision and range, also where no memory lies between
        expression = cast(cast(expression, rounded), DataType.FLOAT)
    return expression


def _what(
    lowering: Lowering, node: Node, attributes: Mapping[str, object], dtype: DataType, rounded: DataType | None,
    is_clip_above: bool,
) -> Hashable:  # fmt: skip
    """Return what decides what the node makes of its operands, ``None`` where an attribute is not a number or text."""
    own = lowering.own_meaning(node)
    if own is not None or not all(isinstance(value, (int, float, str)) for value in attributes.values()):
        return None
    told = tuple([(name, repr(value)) for name, value in sorted(attributes.items())]) if attributes else ()
    return node.domain, node.op_type, told, dtype, rounded, is_clip_above


def _operators(lowering: Lowering, node: Node) -> Operators:
    names: list[Node | str] = []
    for value in node.present_inputs():
        known = lowering.pending(value)
        if isinstance(known, PendingElementwise):
            names.extend(known.operators)
    return (*names[-16:], node)
