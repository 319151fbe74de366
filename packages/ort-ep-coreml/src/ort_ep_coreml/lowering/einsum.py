"""Einsum as one batched matrix product, or as sums of one input: MIL's own ``einsum`` knows two equations only.

Axes fall into four kinds: of the batch (both inputs and the result), of the left or of the right input alone, and
contracted. Axes of a kind are one axis for the time of the product, so at most one size of each kind may be open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ort_core.plugin.ir import Node
from ort_ep_coreml.lowering.emission import EmissionState
from ort_ep_coreml.lowering.lowering_context import LoweringContext, rank_of, sizes_of
from ort_ep_coreml.lowering.rule import Rule
from ort_ep_coreml.lowering.terms import Term, term
from ort_ep_coreml.mil import Operand, Size

_DOTS = "..."
_SPARE = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation without dots: letters of the axes of each input and of the result."""

    inputs: tuple[str, ...]
    result: str


def parsed(node: Node) -> Equation | str:
    """Return the equation of a node, or why it is not lowered."""
    text = node.string_attribute("equation", "").replace(" ", "")
    sides = text.split("->")
    inputs = sides[0].split(",")
    if len(inputs) != len(node.inputs) or len(inputs) > 2:
        return f"Einsum {text!r} of {len(node.inputs)} inputs: one or two are lowered"
    if any(letter in _SPARE for letter in text):
        return f"Einsum {text!r} with capital letters is not lowered"
    dots = [_hidden(each, rank_of(value)) for each, value in zip(inputs, node.inputs, strict=True)]
    most = max(dots)
    shared = _SPARE[:most]
    named = [each.replace(_DOTS, shared[most - count :]) for each, count in zip(inputs, dots, strict=True)]
    if len(sides) > 1:
        return Equation(tuple(named), sides[1].replace(_DOTS, shared))
    letters = "".join(each.replace(_DOTS, "") for each in inputs)
    return Equation(tuple(named), shared + "".join(sorted(each for each in set(letters) if letters.count(each) == 1)))


def _hidden(letters: str, rank: int) -> int:
    """Return for how many axes the dots stand."""
    return rank - len(letters.replace(_DOTS, "")) if _DOTS in letters else 0


def _sizes(node: Node, equation: Equation) -> dict[str, Size]:
    found: dict[str, Size] = {}
    for letters, value in zip(equation.inputs, node.present_inputs(), strict=True):
        for letter, size in zip(letters, sizes_of(value), strict=True):
            if found.get(letter, 1) == 1:
                found[letter] = size
    return found


def _einsum_as_lowered(context: LoweringContext, node: Node) -> str | None:
    equation = parsed(node)
    if isinstance(equation, str):
        return equation
    text = node.string_attribute("equation", "")
    if any(len(set(each)) < len(each) for each in (*equation.inputs, equation.result)):
        return f"Einsum {text!r} takes a diagonal, which is not lowered"
    sizes = _sizes(node, equation)
    for letters, value in zip(equation.inputs, node.present_inputs(), strict=True):
        if any(size == 1 and sizes[letter] != 1 for letter, size in zip(letters, sizes_of(value), strict=True)):
            return f"Einsum {text!r} repeats an axis of one element, which is not lowered"
    kinds = [kind for kind in _kinds(equation) if sum(not isinstance(sizes[letter], int) for letter in kind) > 1]
    if len(equation.inputs) == 2 and (kinds or sum(not isinstance(size, int) for size in sizes.values()) > 1):
        return f"Einsum {text!r} with several open sizes is not lowered"
    if len(equation.inputs) == 2 and not equation.result:
        return f"Einsum {text!r} gives a scalar, which is not lowered"
    return None


def _kinds(equation: Equation) -> tuple[str, str, str, str]:
    """Return the letters of the batch, of the left, of the right, and of what is contracted."""
    if len(equation.inputs) == 1:
        return ("", "", "", "")
    left, right = equation.inputs
    kept = equation.result
    batch = "".join(each for each in kept if each in left and each in right)
    rows = "".join(each for each in kept if each in left and each not in right)
    columns = "".join(each for each in kept if each in right and each not in left)
    return batch, rows, columns, "".join(each for each in left if each in right and each not in kept)


def _einsum(to: EmissionState, node: Node) -> Operand:
    equation = parsed(node)
    assert isinstance(equation, Equation), "_einsum_as_lowered was asked"
    terms = [term(to, value) for value in node.present_inputs()]
    summed = [_summed(x, letters, equation) for x, letters in zip(terms, equation.inputs, strict=True)]
    if len(summed) == 1:
        ((x, letters),) = summed
        return x.transposed(*(letters.index(each) for each in equation.result)).do("identity").operand
    sizes = _sizes(node, equation)
    batch, rows, columns, inner = _kinds(equation)
    x = _grouped(*summed[0], (batch, rows, inner), sizes)
    y = _grouped(*summed[1], (batch, inner, columns), sizes)
    found = (x @ y).reshaped(*(_number(sizes[each]) for each in batch + rows + columns))
    order = [(batch + rows + columns).index(each) for each in equation.result]
    return found.transposed(*order).operand


def _summed(x: Term, letters: str, equation: Equation) -> tuple[Term, str]:
    """Return an input without the axes that nobody else has."""
    others = "".join(each for each in equation.inputs if each != letters) + equation.result
    if len(equation.inputs) == 2 and equation.inputs[0] == equation.inputs[1]:
        others = letters
    alone = [place for place, each in enumerate(letters) if each not in others]
    if not alone:
        return x, letters
    kept = "".join(each for place, each in enumerate(letters) if place not in alone)
    return x.reduced("reduce_sum", *alone, keeps=False), kept


def _grouped(x: Term, letters: str, kinds: tuple[str, str, str], sizes: Mapping[str, Size]) -> Term:
    """Return a stack of matrices: axes of each kind as one."""
    order = [letters.index(each) for each in "".join(kinds)]
    return x.transposed(*order).reshaped(*(_merged([sizes[each] for each in kind]) for kind in kinds))


def _number(size: Size) -> int:
    return size if isinstance(size, int) else -1


def _merged(sizes: Sequence[Size]) -> int:
    return -1 if any(not isinstance(size, int) for size in sizes) else int(np.prod([int(size) for size in sizes]))


EINSUM: Mapping[str, Rule] = {"Einsum": Rule(_einsum, conditions=(_einsum_as_lowered,))}
"""Rules by operator."""
