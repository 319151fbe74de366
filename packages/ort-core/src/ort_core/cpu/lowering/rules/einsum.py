"""Einsum over views: an axis is a letter, so operands are transposed, repeated and cut to diagonals by strides alone.

Of two operands, letters are a batch (in both and the result), rows (in the left one alone), columns (in the right one
alone) or summed. Rows and columns make a matrix product. Without them, or where one operand has all letters, elements
are multiplied and summed in one step. More operands are taken from the left, two at a time.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence

from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, PendingAnchor, PendingElementwise
from ort_core.cpu.lowering.rows.reducing import ReductionOperand, reduce_operand
from ort_core.cpu.lowering.rules.products import MULTIPLIED, Product
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, count_of
from ort_core.plugin import frozen
from ort_core.plugin.ir import KnownDim, Node
from ort_core.plugin.loops import Scalar, element

DOTS = "..."
Sizes = dict[str, KnownDim]


@frozen
class Term:
    """An operand whose axes are letters, each of them once."""

    view: View
    letters: str

    def strides_of(self, letters: Iterable[str], sizes: Sizes) -> tuple[KnownDim, ...]:
        """Return the steps along letters: none along those that it has not, or has once only."""
        steps = dict(zip(self.letters, zip(self.view.shape, self.view.strides)))
        return tuple(
            0 if letter not in steps or (steps[letter][0] == 1 != sizes[letter]) else steps[letter][1]
            for letter in letters
        )

    def spread(self, letters: str, sizes: Sizes) -> View:
        """Return the operand with other axes, repeated along those that it has not."""
        shape = tuple(sizes[letter] for letter in letters)
        return View(self.view.buffer, shape, self.strides_of(letters, sizes), self.view.offset)


def einsum(lowering: Lowering, node: Node) -> None:
    """Einsum of operands of float32 or float64."""
    views = [lowering.view(value) for value in node.present_inputs()]
    dtype, declared = tensor_type(node.output)
    if dtype not in MULTIPLIED or any(view.dtype is not dtype for view in views):
        raise NotLowered(f"{dtype.text} is not summed natively")
    written, result = _letters(node.string_attribute("equation", ""), views)
    sizes = _sizes(lowering, written, views)
    terms = [_diagonal(lowering, view, letters) for view, letters in zip(views, written)]
    for letter, size in zip(result, declared):
        lowering.require_equal(sizes[letter], size)
    while len(terms) > 2 and not _is_one_step(terms, result):
        later = set(result).union(*(term.letters for term in terms[2:]))
        kept = "".join(letter for letter in _union(terms[:2]) if letter in later)
        terms = [Term(_joined(lowering, node, terms[:2], kept, sizes), kept), *terms[2:]]
    view = _joined(lowering, node, terms, result, sizes)
    lowering.set(node.output, PendingElementwise(element(0, dtype), (view,), view.shape, (node,)))


def _joined(lowering: Lowering, node: Node, terms: Sequence[Term], result: str, sizes: Sizes) -> View:
    """Return the sum of products of operands, with the axes of ``result``."""
    if not _is_one_step(terms, result):
        return _product(lowering, node, terms[0], terms[1], result, sizes)
    every = result + "".join(letter for letter in _union(terms) if letter not in result)
    state = FusionState()
    scalars: list[Scalar] = [state.add(term.spread(every, sizes)) for term in terms]
    total = scalars[0]
    for each in scalars[1:]:
        total = total * each
    shape = tuple(sizes[letter] for letter in every)
    if len(every) == len(result):
        pending = PendingElementwise(total, tuple(state.inputs), shape, (node,))
        return lowering.stores.store_elementwise(pending, lowering.new_view(total.dtype, shape))
    operand = ReductionOperand(total, tuple(state.inputs), shape)
    folded = reduce_operand(lowering, operand, range(len(result), len(every)), "sum", operators=(node,))
    return folded.reshaped(shape[: len(result)])


def _product(lowering: Lowering, node: Node, left: Term, right: Term, result: str, sizes: Sizes) -> View:
    """Return the matrix product of two operands with the axes of ``result``, as it lies in memory."""
    left, right = (
        _summed(lowering, node, each, result + other.letters, sizes) for each, other in ((left, right), (right, left))
    )
    batch = "".join(letter for letter in result if letter in left.letters and letter in right.letters)
    rows = "".join(letter for letter in result if letter in left.letters and letter not in batch)
    columns = "".join(letter for letter in result if letter in right.letters and letter not in batch)
    summed = "".join(letter for letter in left.letters if letter not in result)
    a = _matrix(lowering, left, batch, rows, summed, sizes)
    b = _matrix(lowering, right, batch, summed, columns, sizes)
    shape = (*(sizes[letter] for letter in batch), a.shape[-2], b.shape[-1])
    target = lowering.new_view(a.dtype, shape)
    product = Product(a, b, None, "Einsum")
    product.store(lowering, PendingAnchor(product, element(0, a.dtype), (), shape, (node,)), target)
    made = batch + rows + columns
    return Term(target.reshaped([sizes[letter] for letter in made]), made).spread(result, sizes)


def _summed(lowering: Lowering, node: Node, term: Term, wanted: str, sizes: Sizes) -> Term:
    """Return an operand without the letters that nothing else has."""
    kept = "".join(letter for letter in term.letters if letter in wanted)
    return term if kept == term.letters else Term(_joined(lowering, node, [term], kept, sizes), kept)


def _matrix(lowering: Lowering, term: Term, batch: str, rows: str, columns: str, sizes: Sizes) -> View:
    """Return an operand as matrices; copied where several letters of rows or columns lie apart."""
    letters = batch + rows + columns
    view = term.spread(letters, sizes)
    if len(rows) > 1 or len(columns) > 1:
        view = view if view.is_contiguous else lowering.copied(view)
    count = len(batch)
    inner = [count_of([sizes[letter] for letter in part]) for part in (rows, columns)]
    if view.is_contiguous:
        return view.reshaped((*view.shape[:count], *inner))
    steps = view.strides[count:]  # of one letter each, or of none
    row_step = steps[0] if rows else 0
    column_step = steps[-1] if columns else 0
    return View(view.buffer, (*view.shape[:count], *inner), (*view.strides[:count], row_step, column_step), view.offset)


def _is_one_step(terms: Sequence[Term], result: str) -> bool:
    """Return whether elements are multiplied and summed at once; of more than two operands one has all letters."""
    if len(terms) == 1:
        return True
    every = set(_union(terms)).union(result)
    if len(terms) > 2:
        return any(every == set(term.letters) for term in terms)
    left, right = (set(term.letters) for term in terms)
    has_rows, has_columns = (any(letter in result for letter in only) for only in (left - right, right - left))
    has_sum = any(letter not in result for letter in left & right)
    return not (has_sum and (has_rows or has_columns))


def _union(terms: Iterable[Term]) -> str:
    return "".join(dict.fromkeys(letter for term in terms for letter in term.letters))


def _letters(equation: str, views: Sequence[View]) -> tuple[list[str], str]:
    """Return the letters of each operand and of the result; those of an ellipsis are signs that no equation holds."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(views):
        raise NotLowered("the equation does not fit the operands")
    hidden = [len(view.shape) - len(term.replace(DOTS, "")) for term, view in zip(terms, views)]
    most = max((count for term, count in zip(terms, hidden) if DOTS in term), default=0)
    signs = string.digits[:most]
    if most > len(string.digits) or any(count < 0 or (count and DOTS not in t) for t, count in zip(terms, hidden)):
        raise NotLowered("the equation does not fit the ranks")
    found = [term.replace(DOTS, signs[most - count :]) for term, count in zip(terms, hidden)]
    if arrow:
        return found, right.replace(DOTS, signs)
    counts = "".join(found)
    return found, signs + "".join(sorted(letter for letter in set(counts) - set(signs) if counts.count(letter) == 1))


def _sizes(lowering: Lowering, written: Sequence[str], views: Sequence[View]) -> Sizes:
    """Return the size of each letter; axes of one element are repeated."""
    sizes: Sizes = {}
    for letters, view in zip(written, views):
        for letter, size in zip(letters, view.shape):
            if sizes.get(letter, 1) == 1:
                sizes[letter] = size
            elif size != 1:
                lowering.require_equal(sizes[letter], size)
    return sizes


def _diagonal(lowering: Lowering, view: View, letters: str) -> Term:
    """Return an operand whose repeated letters are one axis: its diagonal."""
    if len(set(letters)) == len(letters):
        return Term(view, letters)
    unique = "".join(dict.fromkeys(letters))
    places = {letter: [axis for axis, each in enumerate(letters) if each == letter] for letter in unique}
    shape = tuple(view.shape[axes[0]] for axes in places.values())
    strides: list[KnownDim] = []
    for axes in places.values():
        step: KnownDim = 0
        for axis in axes:
            lowering.require_equal(view.shape[axis], view.shape[axes[0]])
            step = step + view.strides[axis]
        strides.append(step)
    return Term(View(view.buffer, shape, tuple(strides), view.offset), unique)
