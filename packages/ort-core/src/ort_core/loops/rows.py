"""Row formulas: what an operator computes along the last axis, softmax or a normalization, as expressions.

    e = exp(x - row_max(x))
    y = e / row_sum(e)

A reduction stands for one value of the row. ``scheduled`` puts formulas in the order in which a row is walked: pass
after pass, each of which reduces what only needs the values of earlier ones.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence

from ort_core.frozen import frozen
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.loops.meanings import Attributes, ElementMeaning
from ort_core.loops.scalar import ROW_REDUCTIONS, Scalar, element, integer_range, row_value

ROW_LENGTH = 0  # the row value that is the number of its elements
_COSTLY = 6  # operations above which an expression is stored and read again rather than computed twice


@frozen
class RowMeaning:
    """What an operator computes of rows: ``formula`` gives one expression for each output.

    An expression that reads no element outside of a reduction is one value of the row: the last axis of that output
    has size 1.
    """

    formula: Callable[[Sequence[Scalar], Attributes], tuple[Scalar, ...] | Rejection]


OpMeaning = ElementMeaning | RowMeaning


def row_sum(x: Scalar) -> Scalar:
    """The sum of ``x`` over the row; 0 for a row without elements."""
    return Scalar("row_sum", x.dtype, (x,))


def row_prod(x: Scalar) -> Scalar:
    """The product of ``x`` over the row; 1 for a row without elements."""
    return Scalar("row_prod", x.dtype, (x,))


def row_max(x: Scalar) -> Scalar:
    """The largest ``x`` of the row, NaN if one is; the least number of the type for a row without elements."""
    return Scalar("row_max", x.dtype, (x,))


def row_peak(x: Scalar) -> Scalar:
    """``row_max`` for those to whom a NaN in the row comes in other ways, too: it may be one or be left out.

    Of vectors this is an instruction for each; to pass NaN on takes four.
    """
    return Scalar("row_peak", x.dtype, (x,))


def row_min(x: Scalar) -> Scalar:
    """The smallest ``x`` of the row, NaN if one is; the largest number of the type for a row without elements."""
    return Scalar("row_min", x.dtype, (x,))


def row_length(dtype: DataType = DataType.FLOAT) -> Scalar:
    """The number of elements of the row, as float32 or another type."""
    return Scalar("row_length", dtype)


def row_mean(x: Scalar) -> Scalar:
    """The mean of ``x`` over the row; NaN for a row without elements. Of floats."""
    if not x.dtype.is_float:
        raise ValueError(f"row_mean of {x.dtype.text}; it is for floats: cast it")
    return row_sum(x) / row_length(x.dtype)


def neutral_value(kind: str, dtype: DataType) -> float | int:
    """Return what a reduction (``sum``, ``prod``, ``max`` or ``min``) of no elements is: what it starts with."""
    if kind in ("sum", "prod"):
        return int(kind == "prod")
    if dtype is DataType.BOOL:
        return int(kind == "min")
    least, most = (-math.inf, math.inf) if dtype.is_float else integer_range(dtype)
    return most if kind == "min" else least


def reads_rows(root: Scalar) -> bool:
    """Return whether an expression has a reduction over the row, or its length, in it."""
    return any(node.operation in ROW_REDUCTIONS or node.operation == "row_length" for node in _walk(root))


def is_of_row(root: Scalar) -> bool:
    """Return whether an expression has one value a row: it reads no element outside of a reduction."""
    return all(node.operation != "input" for node in _walk(root, stop=ROW_REDUCTIONS))


@frozen
class RowReduction:
    """Reduce ``expression`` over the row by ``kind``, which ends a name of ``ROW_REDUCTIONS``: row value ``index``."""

    kind: str
    expression: Scalar
    index: int


@frozen
class RowPass:
    """One walk over the row.

    ``stores`` (output, expression) are stored; walks behind this one may read them back. Expressions need row values
    of earlier passes; ``derived`` (row value, expression) are computed behind the reductions.
    """

    stores: tuple[tuple[int, Scalar], ...] = ()
    reductions: tuple[RowReduction, ...] = ()
    derived: tuple[tuple[int, Scalar], ...] = ()

    @property
    def roots(self) -> list[Scalar]:
        """All expressions, in order."""
        return [*self.walked, *(expression for _, expression in self.derived)]

    @property
    def walked(self) -> list[Scalar]:
        """The expressions that are computed for each element."""
        return [*(expression for _, expression in self.stores), *(each.expression for each in self.reductions)]


@frozen
class RowSchedule:
    """How formulas are computed: walk after walk.

    Outputs of walks count those with elements alone; what output 0 holds is read back as the input behind the last, and
    so on. ``scalars`` are the row values of the other outputs, those with one value a row.
    """

    passes: tuple[RowPass, ...]
    scalars: tuple[int, ...]


def scheduled(roots: Sequence[Scalar], num_inputs: int, *, reads_back: bool = True) -> RowSchedule:
    """Return the order in which formulas are computed, one for each output.

    Args:
        roots: the formulas.
        num_inputs: how many inputs they read.
        reads_back: whether what is needed again may be stored in an output and read back, where that is cheaper.
    """
    return _SchedulingState(roots, num_inputs, reads_back=reads_back).schedule()


def row_values(*roots: Scalar) -> list[Scalar]:
    """Return the nodes of expressions that read values of a row, each once for each expression."""
    return [node for root in roots for node in _walk(root) if node.operation == "row"]


class _SchedulingState:
    """Turns reductions and what follows from them alone into row values; each expression is rewritten once."""

    def __init__(self, roots: Sequence[Scalar], num_inputs: int, *, reads_back: bool) -> None:
        self._levels: dict[int, int] = {}
        self._of_row: dict[int, bool] = {}
        self._done: dict[tuple[int, int, bool], Scalar] = {}
        self._values: dict[int, int] = {}  # row values of expressions, by identity
        self._derived: dict[int, list[tuple[int, Scalar]]] = {}
        self._next = ROW_LENGTH + 1
        self._num_inputs = num_inputs
        self._roots = roots
        for root in roots:
            self._note(root)
        self._elements = [root for root in roots if not self._is_of_row(root)]
        reduced = {id(n): n for root in roots for n in _walk(root) if n.operation in ROW_REDUCTIONS}
        self._reduced = sorted(reduced.values(), key=self._level)
        self._last = max(map(self._level, roots), default=0)
        self._stored = self._stored_early() if reads_back else []

    def schedule(self) -> RowSchedule:
        reductions: dict[int, list[RowReduction]] = {}
        for node in self._reduced:
            expression = self._rewritten(node.arguments[0], self._level(node), True)
            reduction = RowReduction(node.operation.removeprefix("row_"), expression, self._new_index())
            self._values[id(node)] = reduction.index
            reductions.setdefault(self._level(node), []).append(reduction)
        scalars = tuple(self._row_value(root) for root in self._roots if self._is_of_row(root))
        behind, final = self._last + 1, {place: node for place, node in self._stored if node is self._elements[place]}
        elements = tuple(
            (place, self._rewritten(root, behind, True))
            for place, root in enumerate(self._elements) if place not in final
        )  # fmt: skip
        stores = {each: self._stores(each) for each in range(1, self._last + 1)}
        passes = tuple(
            RowPass(stores.get(each, ()), tuple(reductions.get(each, ())), tuple(self._derived.get(each, ())))
            for each in range(1, max(1, self._last) + 1)
        )
        return RowSchedule((*passes, RowPass(elements)) if elements else passes, scalars)

    def _stored_early(self) -> list[tuple[int, Scalar]]:
        """Return (output, expression): outputs that others read, or else what the only one is best made of."""
        read = [{id(n) for n in _walk(root)} for root in self._roots]
        found = [
            (place, root) for place, root in enumerate(self._elements)
            if root.operation != "input" and self._level(root) < self._last
            and any(id(root) in nodes for other, nodes in zip(self._roots, read, strict=True) if other is not root)
        ]  # fmt: skip
        if found or len(self._elements) != 1:
            return found
        costly = self._costly(self._elements[0])
        return [] if costly is None else [(0, costly)]

    def _costly(self, root: Scalar) -> Scalar | None:
        """Return the costliest expression that the last reductions and the only output with elements both read."""
        last = [node for node in self._reduced if self._level(node) == self._last]
        read = {id(n) for node in last for n in _walk(node.arguments[0], stop=ROW_REDUCTIONS)}
        stack, seen, shared = [root], {id(root)}, list[Scalar]()
        while stack:  # what stands below a shared expression costs less than that
            node = stack.pop()
            if id(node) in read and node.dtype is root.dtype and not self._is_of_row(node):
                shared.append(node)
            elif node.operation not in ROW_REDUCTIONS:
                new = {id(argument): argument for argument in node.arguments if id(argument) not in seen}
                seen.update(new)
                stack.extend(new.values())
        found = max(shared, key=self._cost, default=None)
        return found if found is not None and self._cost(found) > _COSTLY else None

    def _cost(self, node: Scalar) -> int:
        """Return how many operations it takes for each element."""
        return sum(not self._is_of_row(each) for each in _walk(node, stop=ROW_REDUCTIONS))

    def _stores(self, number: int) -> tuple[tuple[int, Scalar], ...]:
        here = [(place, node) for place, node in self._stored if self._level(node) + 1 == number]
        return tuple((place, self._rewritten(node, number, True)) for place, node in here)

    def _level(self, node: Scalar) -> int:
        """Return in which pass a value is known first: 0 for what needs no reduction."""
        return self._levels[id(node)]

    def _is_of_row(self, node: Scalar) -> bool:
        return self._of_row[id(node)]

    def _note(self, root: Scalar) -> None:
        """Note the level of each operation, and whether it is of a row; arguments first, without recursion."""
        stack = [root]
        while stack:
            node = stack[-1]
            missing = [argument for argument in node.arguments if id(argument) not in self._levels]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            is_reduction = node.operation in ROW_REDUCTIONS
            self._levels[id(node)] = max([self._level(each) for each in node.arguments], default=0) + is_reduction
            is_one = is_reduction or all(self._is_of_row(each) for each in node.arguments)
            self._of_row[id(node)] = is_one and node.operation != "input"

    def _rewritten(self, node: Scalar, number: int, may_derive: bool) -> Scalar:
        """Return an expression as pass ``number`` computes it; one behind the last is the walk of the elements."""
        visible = sum(self._level(each) + 1 < number for _, each in self._stored)
        key = (id(node), visible, may_derive)
        if key not in self._done:
            self._done[key] = self._made(node, number, may_derive)
        return self._done[key]

    def _made(self, node: Scalar, number: int, may_derive: bool) -> Scalar:
        for place, each in self._stored:
            if each is node and self._level(each) + 1 < number:
                return element(self._num_inputs + place, node.dtype)
        if node.operation == "row_length":
            return row_value(ROW_LENGTH, node.dtype)
        if node.operation in ROW_REDUCTIONS:
            return row_value(self._values[id(node)], node.dtype)
        if may_derive and node.dtype.is_float and self._level(node) and self._is_of_row(node):
            return row_value(self._row_value(node), node.dtype)
        if not node.arguments:
            return node
        arguments = tuple([self._rewritten(argument, number, may_derive) for argument in node.arguments])
        if all(map(operator.is_, arguments, node.arguments)):
            return node
        return Scalar(node.operation, node.dtype, arguments, node.index, node.value)

    def _row_value(self, node: Scalar) -> int:
        """Return the row value of an expression of the row, which is derived if it is not a reduction itself."""
        if id(node) not in self._values:
            index = self._values[id(node)] = self._new_index()
            derived = self._rewritten(node, 0, False)
            self._derived.setdefault(max(1, self._level(node)), []).append((index, derived))
        return self._values[id(node)]

    def _new_index(self) -> int:
        self._next += 1
        return self._next - 1


def _walk(root: Scalar, stop: frozenset[str] = frozenset()) -> list[Scalar]:
    """Return all nodes of an expression, each once; what is behind operations of ``stop`` is left out."""
    found: dict[int, Scalar] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) not in found:
            found[id(node)] = node
            if node.operation not in stop:
                stack.extend(node.arguments)
    return list(found.values())
