"""Halves as they would lie in memory, for operators whose results jump where an operand crosses a border.

Within a group float16 and bfloat16 are computed and kept as float32, which errs less. An operator that compares, orders
or rounds tells apart what a half stores alike: of two values that are equal in bfloat16 Hardmax marks the first, by
float32 the larger one. Such an operator reads what the model's own element types would give it.
"""

from __future__ import annotations

from dataclasses import replace

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingAnchor, PendingElementwise
from ort_core.cpu.lowering.value_types import HALVES, stored_type
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
        "Slice",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
        "Where",
    ]
)
_DEPTH = 8  # of operators that keep what they are given: beyond it a value is rounded once more, which changes nothing


def round_operands(lowering: Lowering, node: Node) -> None:
    """Round a node's operands to the element types that the model gives them, where the node's results may jump."""
    if not _jumps(node):
        return
    for value in node.present_inputs():
        if _half_of(value) is not None and not _is_exact(lowering, value, _DEPTH):
            _round(lowering, value)


def _jumps(node: Node) -> bool:
    if node.op_type == "QuantizeLinear":
        return True  # com.microsoft's, too
    if node.domain:
        return False
    if node.op_type == "MaxPool":
        return len(node.outputs) > 1  # the places of the largest ones, too
    if node.op_type in ("Cast", "CastLike"):
        to = node.output.type
        return isinstance(to, TensorType) and not to.dtype.is_float
    return node.op_type in _JUMPS


def _half_of(value: Value) -> DataType | None:
    dtype = value.type.dtype if isinstance(value.type, TensorType) else None
    return dtype if dtype in HALVES else None


def _is_exact(lowering: Lowering, value: Value, depth: int) -> bool:
    """Return whether a half's elements are among those that its type has: it comes from memory, or was rounded."""
    node = value.producer
    if node is None or not lowering.is_member(node):
        return True
    if node.domain or not depth:
        return False
    if node.op_type == "Cast":
        return node.inputs[0] is not None and _half_of(node.inputs[0]) is not _half_of(value)
    if node.op_type not in _KEEPS:
        return False
    halves = [each for each in node.present_inputs() if _half_of(each) is not None]
    return all(_is_exact(lowering, each, depth - 1) for each in halves)


def _round(lowering: Lowering, value: Value) -> None:
    dtype, _ = stored_type(value)
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
    return cast(cast(expression, dtype), DataType.FLOAT)
