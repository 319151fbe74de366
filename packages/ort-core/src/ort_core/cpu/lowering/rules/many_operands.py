"""Sum, Mean, Max and Min of more operands than one expression reads: in parts, each begun with the part before it.

Sum(a, ..., z)   ->   t = a + ... + j;  u = t + k + ... + s;  y = u + t + ... + z

A part is stored before the next one reads it, so that no kernel reads more than some ten operands.
"""

from __future__ import annotations

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import MAX_INPUTS, FusionState, PendingElementwise
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.plugin.ir import Node, Value
from ort_core.plugin.loops import Scalar, meaning_of

FOLDS = {"Sum": "Sum", "Mean": "Sum", "Max": "Max", "Min": "Min"}
MAX_OPERANDS = 64  # of one part, which may all be one view: expressions nest as deep, and are walked by recursion
PART = MAX_INPUTS - 2  # views that one part reads at most before its last operand, which may be an expression


def has_many_operands(lowering: Lowering, node: Node) -> bool:
    """Return whether a node is to be computed in parts."""
    is_fold = node.op_type in FOLDS and not node.domain and lowering.own_meaning(node) is None
    return is_fold and sum(_views_of(lowering, value) for value in node.present_inputs()) > MAX_INPUTS


def _views_of(lowering: Lowering, value: Value) -> int:
    """Return how many views an operand reads where its own computation is taken in."""
    known = lowering.pending(value)
    return max(len(known.inputs), 1) if isinstance(known, PendingElementwise) else 1


def many_operands(lowering: Lowering, node: Node) -> None:
    """Store what the operands but the last ones give, part by part, and describe the rest as an expression."""
    dtype, shape = tensor_type(node.output)
    if node.op_type == "Mean" and not dtype.is_float:
        raise NotLowered(f"a mean of {dtype.text} is not generated")
    fold, inputs = FOLDS[node.op_type], list(node.present_inputs())
    state, total, count = FusionState(), None, 0
    for value in inputs:
        if total is not None and (len(state.inputs) >= PART or count >= MAX_OPERANDS):
            part = PendingElementwise(total, tuple(state.inputs), shape, (node,))
            stored = lowering.stores.store_elementwise(part, lowering.new_view(dtype, shape))
            state, count = FusionState(), 0
            total = state.add(stored)
        operand = lowering.operands.operand(value, state, shape)
        total = operand if total is None else _folded(fold, total, operand)
        count += 1
    assert total is not None, node
    result = total / float(len(inputs)) if node.op_type == "Mean" else total
    if result.dtype is not dtype:
        raise NotLowered(f"the expression gives {result.dtype.text}, the model declares {dtype.text}")
    lowering.set(node.output, PendingElementwise(result, tuple(state.inputs), shape, (node,)))


def _folded(op_type: str, total: Scalar, operand: Scalar) -> Scalar:
    found = meaning_of("", op_type, [total, operand], {})
    if not isinstance(found, Scalar):
        raise NotLowered(found.reason)
    return found
