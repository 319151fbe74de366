"""What sums may begin with instead of 0: a number for each channel that is added to them first of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ort_core.cpu.codegen.quantized.integer_convolution_plan import IntegerOperand
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, element


def first_operand(expression: Scalar, operands: Sequence[IntegerOperand]) -> tuple[int, Scalar] | None:
    """Find the operand that an expression adds to its sum before anything else.

    Returns:
        The operand's number and the expression over sums that begin with it; ``None`` where the sum is read otherwise.
    """
    nodes = _nodes(expression)
    readers = [node for node in nodes if any(_is_sum(argument) for argument in node.arguments)]
    if len(readers) != 1 or readers[0].operation != "add":
        return None
    left, right = readers[0].arguments
    other = right if _is_sum(left) else left
    if other.operation != "input" or _is_sum(other):
        return None
    operand = operands[other.index - 1]
    if operand.kind != "channel" or operand.dtype is not DataType.INT32:
        return None
    made: dict[int, Scalar] = {id(readers[0]): element(0, DataType.INT32)}
    for node in nodes:  # arguments stand before what is made of them
        if id(node) not in made:
            made[id(node)] = replace(node, arguments=tuple(made[id(argument)] for argument in node.arguments))
    return other.index - 1, made[id(expression)]


def _is_sum(node: Scalar) -> bool:
    return node.operation == "input" and node.index == 0


def _nodes(root: Scalar) -> list[Scalar]:
    """Return the nodes of an expression, each once and behind its arguments."""
    seen: dict[int, Scalar] = {}

    def walk(node: Scalar) -> None:
        if id(node) not in seen:
            for argument in node.arguments:
                walk(argument)
            seen[id(node)] = node

    walk(root)
    return list(seen.values())
