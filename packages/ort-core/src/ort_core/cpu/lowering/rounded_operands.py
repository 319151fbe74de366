"""Halves as they would lie in memory, for operators whose results jump where an operand crosses a border.

Within a group float16 and bfloat16 are computed and kept as float32, which errs less. An operator that compares, orders
or rounds tells apart what a half stores alike: of two values that are equal in bfloat16 Hardmax marks the first, by
float32 the larger one. Such an operator reads what the model's own element types would give it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor, PendingElementwise
from ort_core.cpu.lowering.value_types import HALVES
from ort_core.plugin.ir import DataType, Node, TensorType, Value
from ort_core.plugin.loops import Scalar, cast, element

_JUMPS = frozenset(
    [
        "Equal",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "ArgMax",
        "ArgMin",
        "Hardmax",
        "TopK",
        "Unique",
        "NonMaxSuppression",
        "Floor",
        "Ceil",
        "Round",
        "Sign",
        "Mod",
        "IsInf",
        "IsNaN",
        "NonZero",
        "RoiAlign",
        "Shrink",
        "ThresholdedRelu",
        "BitCast",
    ]
)
_KEEPS = frozenset(  # exact results of exact operands
    [
        "Abs",
        "Concat",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "Max",
        "Min",
        "Neg",
        "Relu",
        "Reshape",
        "ReverseSequence",
        "Slice",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
        "Where",
    ]
)
_WIDE = (DataType.FLOAT, DataType.DOUBLE)
_SHIPPED = ("com.microsoft", "ai.onnx.ml", "ai.onnx.preview.training")  # domains of operators that are known here
_DEPTH = 8  # of operators that keep what they are given: beyond it a value is rounded once more, which changes nothing


def round_operands(lowering: Lowering, node: Node) -> None:
    """Round a node's operands to the element types that the model gives them, where the node's results may jump."""
    jumps = _jumps(node)
    if not jumps and node.op_type != "Cast":
        return
    halves = {value: _half_of(value) or _half_behind_cast(lowering, value, _DEPTH) for value in node.present_inputs()}
    if not any(halves.values()) or not (jumps or is_ranked_outside(node.output, lowering.is_member)):
        return
    for value, half in halves.items():
        if half is not None and not _is_exact(lowering, value):
            _round(lowering, value, half)


def _jumps(node: Node) -> bool:
    if node.op_type == "QuantizeLinear":
        return True  # com.microsoft's, too
    if node.domain:
        return node.domain not in _SHIPPED
    if node.op_type == "MaxPool":
        return len(node.outputs) > 1  # the places of the largest ones, too
    if node.op_type == "GridSample":
        return node.string_attribute("mode", "linear") == "nearest"
    if node.op_type in ("Cast", "CastLike"):
        to = node.output.type
        return isinstance(to, TensorType) and to.dtype not in _WIDE
    return node.op_type in _JUMPS


def _half_of(value: Value) -> DataType | None:
    dtype = value.type.dtype if isinstance(value.type, TensorType) else None
    return dtype if dtype in HALVES else None


def is_ranked_outside(value: Value, is_member: Callable[[Node], bool]) -> bool:
    """Return whether a node that jumps reads a value outside of a group, at once or behind moves."""
    values = [value]
    for _ in range(_DEPTH):  # level by level: there may be more ways than nodes by far
        readers = dict.fromkeys([each for value in values for each in value.consumers()])
        if any(_jumps(each) and not is_member(each) for each in readers):
            return True
        moves = [each for each in readers if each.op_type in _KEEPS and not each.domain and len(each.outputs) == 1]
        values = [each.output for each in moves]
    return False


def _half_behind_cast(lowering: Lowering, value: Value, depth: int) -> DataType | None:
    """Return the half of which a wide float has been made within this group, by a Cast that changes no element."""
    node = value.producer
    if not (isinstance(value.type, TensorType) and value.type.dtype in _WIDE and depth):
        return None
    if node is None or node.domain or not lowering.is_member(node):
        return None
    given = node.inputs[0] if node.inputs else None
    if given is None:
        return None
    if node.op_type == "Cast":
        return _half_of(given) or _half_behind_cast(lowering, given, depth - 1)
    if node.op_type in _KEEPS and not any(_is_wide(each) for each in node.present_inputs() if each is not given):
        return _half_behind_cast(lowering, given, depth - 1)
    return None


def _is_wide(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype in _WIDE


def _is_exact(lowering: Lowering, value: Value) -> bool:
    """Return whether a half's elements are among those that its type has: it comes from memory, or was rounded."""
    values = [value]
    for _ in range(_DEPTH):
        makers = dict.fromkeys([each.producer for each in values if lowering.is_member(each.producer)])
        values = []
        for node in makers:
            if node is None or node.domain or (node.op_type not in _KEEPS and node.op_type != "Cast"):
                return False
            floats = [each for each in node.present_inputs() if _half_of(each) is not None or _is_wide(each)]
            if node.op_type != "Cast" or _half_of(node.output) is None:
                values.extend(floats)
            elif node.inputs[0] is None or _half_of(node.inputs[0]) is _half_of(node.output):
                return False
    return not any(lowering.is_member(each.producer) for each in values)


def _round(lowering: Lowering, value: Value, dtype: DataType) -> None:
    known = lowering.pending(value)
    if isinstance(known, PendingElementwise):
        expression = lowering.expressions.alone(known.expression)
        lowering.set(value, replace(known, expression=_rounded(expression, dtype), core=None))
        return
    if isinstance(known, PendingAnchor):
        lowering.set(value, replace(known, expression=_rounded(known.expression, dtype)))
        return
    view = lowering.view(value)
    expression = _rounded(element(0, view.dtype), dtype)
    lowering.set(value, PendingElementwise(expression, (view,), view.shape, ("Round",)))


def _rounded(expression: Scalar, dtype: DataType) -> Scalar:
    """Return an expression of what a half holds, whose float32 may stand as a double."""
    held = cast(cast(cast(expression, DataType.FLOAT), dtype), DataType.FLOAT)
    return cast(held, expression.dtype)
