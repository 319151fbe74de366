"""Einsums beside a softmax that are products of matrices: Transposes and one MatMul, as fusions know them.

    Einsum("ibnd,jbnd->bnij", q, k)  ->  MatMul(Transpose(q, (1, 2, 0, 3)), Transpose(k, (1, 2, 3, 0)))

Each letter stands for an axis of both operands and the result (a batch), of both operands alone (it is summed over), or
of one operand and the result. With one letter of each of the last three kinds, what remains are orders of axes. More
letters of one operand and the result are batches along which the other is one and the same, as with keys of all heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.ir import Value
from ort_core.plugin.passes import Level, RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, op, var

_AXES_AS_INPUT = 13  # since this opset
_ELLIPSIS = 4  # axes of one, more than attentions have
_STEPS = 6  # between a product and a softmax, of the exports that were looked at


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """The orders of axes in which an Einsum is a product of matrices: of both operands, and of the result.

    ``None`` stands for an axis of one element that the operand does not have.
    """

    left: tuple[int | None, ...]
    right: tuple[int | None, ...]
    result: tuple[int, ...]


def spelled_out(equation: str, ranks: tuple[int | None, int | None]) -> str:
    """Return an equation of two operands with a capital letter for each axis of its ellipses, as far as it has some."""
    terms, arrow, result = equation.replace(" ", "").partition("->")
    operands = terms.split(",")
    if "..." not in equation or not arrow or len(operands) != 2 or not set("ABCDEFGH").isdisjoint(equation):
        return equation
    counts = []
    for term, rank in zip(operands, ranks, strict=True):
        count = 0 if rank is None else rank - len(term.replace("...", ""))
        if rank is None or not 0 <= count <= _ELLIPSIS or ("..." not in term and count):
            return equation
        counts.append(count)
    letters = "ABCDEFGH"[: max(counts)]
    filled = [
        term.replace("...", letters[len(letters) - count :]) for term, count in zip(operands, counts, strict=True)
    ]
    return f"{','.join(filled)}->{result.replace('...', letters)}"


def matrix_product(equation: str, shares: int | None = None) -> MatrixProduct | None:
    """Return the orders of axes of an equation of two operands, ``None`` where it is no product of matrices.

    ``shares`` is the operand that comes from a softmax. It, or else the result, has the axes of scores in their order:
    so they stay, with those of one operand alone among the batches, and the last of them rows and columns.
    """
    terms, arrow, result = equation.replace(" ", "").partition("->")
    operands = terms.split(",")
    if not arrow or len(operands) != 2 or "." in equation or any(len(set(t)) != len(t) for t in (*operands, result)):
        return None
    left, right = operands
    scores = result if shares is None else operands[shares]
    order = [*scores, *(letter for letter in result if letter not in scores)]
    batch = {letter for letter in result if letter in left and letter in right}
    summed = [letter for letter in left if letter in right and letter not in result]
    rows = [letter for letter in order if letter in result and letter in left and letter not in right]
    columns = [letter for letter in order if letter in result and letter in right and letter not in left]
    others = set(left + right + result) - {*batch, *summed, *rows, *columns}
    if others or len(summed) != 1 or not rows or not columns or min(len(rows), len(columns)) > 1:
        return None
    batch |= {*rows[:-1], *columns[:-1]}
    kept = [letter for letter in order if letter in batch]
    made = [*kept, rows[-1], columns[-1]]
    return MatrixProduct(
        tuple(left.index(letter) if letter in left else None for letter in (*kept, rows[-1], *summed)),
        tuple(right.index(letter) if letter in right else None for letter in (*kept, *summed, columns[-1])),
        tuple(made.index(letter) for letter in result),
    )


class EinsumToMatMul(RewriteRule[MatrixProduct]):
    """Make a MatMul of an Einsum in front of a softmax, or behind one."""

    name = "EinsumToMatMul"

    def build_pattern(self) -> Pattern:
        """Return an Einsum of two operands."""
        return op("Einsum", var("left"), var("right"))

    def check(self, match: Match) -> MatrixProduct | Rejection:
        """The equation must be one of matrices, and a softmax be near."""
        equation = match.root.attribute("equation")
        shares = next((at for at, each in enumerate(_OPERANDS) if _comes_from_softmax(match[each])), None)
        ranks = (match["left"].rank, match["right"].rank)
        found = matrix_product(spelled_out(equation, ranks), shares) if isinstance(equation, str) else None
        if found is None:
            return Rejection(f"{equation!r} is no product of matrices", match.root)
        if shares is None and not leads_to_softmax(match.output):
            return Rejection("there is no softmax near, for which an attention could be", match.root)
        return found

    def rewrite(self, match: Match, bindings: MatrixProduct) -> GraphPatch:
        """Put a MatMul there, between what turns its operands and its result."""
        patch = GraphPatch(match.model, match.root)
        orders = (bindings.left, bindings.right)
        opset = match.opset()
        factors = [_turned(patch, match[name], order, opset) for name, order in zip(_OPERANDS, orders, strict=True)]
        patch.replace(match.output, _turned(patch, patch.op("MatMul", factors), bindings.result, opset))
        patch.remove(match.root)
        return patch


_OPERANDS = ("left", "right")


def _turned(patch: GraphPatch, value: Value, order: tuple[int | None, ...], opset: int) -> Value:
    """Return a value with its axes in an order, and new ones of one element."""
    there = tuple(axis for axis in order if axis is not None)
    if there != tuple(range(len(there))):
        value = patch.op("Transpose", [value], {"perm": there})
    new = [place for place, axis in enumerate(order) if axis is None]
    if not new:
        return value
    if opset < _AXES_AS_INPUT:
        return patch.op("Unsqueeze", [value], {"axes": new})
    return patch.op("Unsqueeze", [value, patch.constant(np.array(new, np.int64), "new_axes")])


def leads_to_softmax(value: Value) -> bool:
    """Return whether a softmax is near behind a value, and what is between only moves, scales or masks it."""
    waiting = [(value, 0)]
    while waiting:
        current, depth = waiting.pop()
        for node in current.consumers():
            if node.op_type == "Softmax":
                return True
            if depth < _STEPS and node.op_type in _ON_THE_WAY and node.domain == "":
                waiting.append((node.output, depth + 1))
    return False


def _comes_from_softmax(value: Value | None, steps: int = _STEPS) -> bool:
    node = None if value is None else value.producer
    if node is None or node.op_type == "Softmax":
        return node is not None
    if not steps or node.domain != "":
        return False
    if node.op_type == "Where":  # of shares and zero
        return any(_comes_from_softmax(each, steps - 1) for each in node.inputs[1:])
    return node.op_type in _BEHIND and _comes_from_softmax(node.inputs[0], steps - 1)


_ON_THE_WAY = frozenset([
    "Add", "Sub", "Mul", "Div", "Where", "Reshape", "Transpose", "Cast", "Slice", "Unsqueeze", "Gather", "Squeeze",
    "Concat", "Pad",
])  # fmt: skip
_BEHIND = frozenset({"Transpose", "Reshape", "Cast", "Identity", "Mul", "Dropout", "Slice"})
EINSUM_FORMS = RulePass("EinsumForms", [EinsumToMatMul()], Level.EXTENDED)
