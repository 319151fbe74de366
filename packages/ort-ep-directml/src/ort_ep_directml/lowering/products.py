"""Products of matrices: all of them become GEMM. A transposed factor is told by a flag where rows are contiguous so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ort_core.plugin.ir import Node
from ort_ep_directml.lowering.emission import EmissionState
from ort_ep_directml.lowering.operand import Operand, broadcast, expanded, transposed
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.lowering.rule import Rule
from ort_ep_directml.schema.enumerators import MatrixTransform, ReduceFunction

_MAX_BATCH_DIMENSIONS = 2  # GEMM takes up to four dimensions


def matrices(to: EmissionState, a: Operand, b: Operand) -> tuple[Operand, Operand]:
    """Return two factors with equal batch dimensions, at most two; vectors have become matrices."""
    a = to.reshape(a, (1, *a.sizes)) if a.rank == 1 else a
    b = to.reshape(b, (*b.sizes, 1)) if b.rank == 1 else b
    batch = broadcast(a.sizes[:-2], b.sizes[:-2])
    a, b = expanded(a, batch + a.sizes[-2:]), expanded(b, batch + b.sizes[-2:])
    if len(batch) > _MAX_BATCH_DIMENSIONS:
        a, b = (to.reshape(each, (int(np.prod(batch)), *each.sizes[-2:])) for each in (a, b))
    return a, b


def flagged(operand: Operand) -> tuple[Operand, MatrixTransform]:
    """Return a factor as it lies in memory, and whether GEMM is to transpose it."""
    turned = transposed(operand, (*range(operand.rank - 2), operand.rank - 1, operand.rank - 2))
    is_turned = operand.strides[-2] == 1 and operand.sizes[-2] > 1 and turned.strides[-2] >= turned.sizes[-1]
    return (turned, MatrixTransform.TRANSPOSE) if is_turned else (operand, MatrixTransform.NONE)


def product(
    to: EmissionState, a: Operand, b: Operand, c: Operand | None = None, alpha: float = 1.0, beta: float = 0.0
) -> Operand:
    """Append ``alpha * a @ b + beta * c`` over the last two dimensions; batch dimensions are equal."""
    sizes = (*a.sizes[:-1], b.sizes[-1])
    (left, turn_left), (right, turn_right) = flagged(a), flagged(b)
    flags = {"TransA": int(turn_left), "TransB": int(turn_right)}
    bias = None if c is None else expanded(c, sizes)
    return to.emit("GEMM", (a.dtype, sizes), A=left, B=right, C=bias, Alpha=alpha, Beta=beta, **flags)


def _matmul(to: EmissionState, node: Node) -> Operand:
    a, b = matrices(to, to.operand(node.input(0)), to.operand(node.input(1)))
    return to.reshape(product(to, a, b), to.sizes(node.output))


def _gemm(to: EmissionState, node: Node) -> Operand:
    a, b = to.operand(node.input(0)), to.operand(node.input(1))
    a = transposed(a, (1, 0)) if node.int_attribute("transA", 0) else a
    b = transposed(b, (1, 0)) if node.int_attribute("transB", 0) else b
    c = None if node.input(2) is None else to.operand(node.input(2))
    beta = 0.0 if c is None else node.float_attribute("beta", 1.0)
    return product(to, a, b, c, node.float_attribute("alpha", 1.0), beta)


def _einsum(to: EmissionState, node: Node) -> Operand:
    operands = to.operands(node)
    terms, result = _terms(node.string_attribute("equation", ""), operands)
    if len(operands) == 1:
        return _ordered(to, *_summed(to, operands[0], terms[0], result), result)
    if len(operands) == 2:
        return _contracted(to, operands, terms, result)
    raise Refused("an Einsum of three operands or more is left to others")


def _terms(equation: str, operands: Sequence[Operand]) -> tuple[list[str], str]:
    """Return the letters of each operand, and those of the result.

    Raises:
        Refused: the equation has an ellipsis or a diagonal.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if "." in equation:
        raise Refused("an Einsum with an ellipsis is left to others")
    if any(len(set(term)) < len(term) for term in terms) or len(terms) != len(operands):
        raise Refused("an Einsum that takes a diagonal is left to others")
    letters = "".join(terms)
    return terms, right if arrow else "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))


def _summed(to: EmissionState, operand: Operand, term: str, kept: str) -> tuple[Operand, str]:
    """Return an operand summed over letters that nobody else has, and its letters."""
    axes = tuple(place for place, letter in enumerate(term) if letter not in kept)
    if not axes:
        return operand, term
    sizes = tuple(1 if place in axes else size for place, size in enumerate(operand.sizes))
    made = to.emit("REDUCE", (operand.dtype, sizes), Function=int(ReduceFunction.SUM), Input=operand, Axes=axes)
    left = "".join(letter for letter in term if letter in kept)
    return to.reshape(made, [size for place, size in enumerate(sizes) if place not in axes]), left


def _ordered(to: EmissionState, operand: Operand, term: str, result: str) -> Operand:
    return transposed(operand, [term.index(letter) for letter in result])


def _contracted(to: EmissionState, operands: Sequence[Operand], terms: Sequence[str], result: str) -> Operand:
    """Return the product of two operands as one of matrices: batch, rows, columns, and what is summed."""
    a, first = _summed(to, operands[0], terms[0], terms[1] + result)
    b, second = _summed(to, operands[1], terms[1], terms[0] + result)
    shared = [letter for letter in first if letter in second]
    batch = [letter for letter in shared if letter in result]
    inner = [letter for letter in shared if letter not in result]
    rows = [letter for letter in first if letter not in second]
    columns = [letter for letter in second if letter not in first]
    sizes = dict(zip(first + second, a.sizes + b.sizes, strict=True))

    def grouped(operand: Operand, term: str, *groups: list[str]) -> Operand:
        turned = transposed(operand, [term.index(letter) for group in groups for letter in group])
        return to.reshape(turned, [int(np.prod([sizes[letter] for letter in group], dtype=int)) for group in groups])

    found = product(to, grouped(a, first, batch, rows, inner), grouped(b, second, batch, inner, columns))
    order = [*batch, *rows, *columns]
    spread = to.reshape(found, [sizes[letter] for letter in order])
    return transposed(spread, [order.index(letter) for letter in result])


PRODUCTS: Mapping[str, Rule] = {
    "Einsum": Rule(_einsum),
    "Gemm": Rule(_gemm, required=2, oldest=7),
    "MatMul": Rule(_matmul, required=2),
}
"""Rules by operator."""
