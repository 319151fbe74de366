"""Row formulas: what an operator computes along the last axis, softmax or a normalization, as expressions.

    e = exp(x - row_max(x))
    y = e / row_sum(e)

A reduction stands for one value of the row. ``scheduled`` puts formulas in the order in which a row is walked: pass
after pass, each of which reduces what only needs the values of earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ort_core.frozen import frozen
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.loops.meanings import Attributes, ElementMeaning
from ort_core.loops.scalar import ROW_REDUCTIONS, Scalar, cast, element, row_value

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


def row_max(x: Scalar) -> Scalar:
    """The largest ``x`` of the row, NaN if one is; minus infinity for a row without elements. Of floats."""
    return _extreme("row_max", x)


def row_min(x: Scalar) -> Scalar:
    """The smallest ``x`` of the row, NaN if one is; infinity for a row without elements. Of floats."""
    return _extreme("row_min", x)


def row_length() -> Scalar:
    """The number of elements of the row, as float32."""
    return Scalar("row_length", DataType.FLOAT)


def row_mean(x: Scalar) -> Scalar:
    """The mean of ``x`` over the row; NaN for a row without elements. Of floats."""
    return row_sum(_real("row_mean", x)) / cast(row_length(), x.dtype)


def _extreme(operation: str, x: Scalar) -> Scalar:
    return Scalar(operation, x.dtype, (_real(operation, x),))


def _real(operation: str, x: Scalar) -> Scalar:
    if not x.dtype.is_float:
        raise ValueError(f"{operation} of {x.dtype.text}; it is for floats: cast it")
    return x


def reads_rows(root: Scalar) -> bool:
    """Return whether an expression has a reduction over the row, or its length, in it."""
    return any(node.operation in ROW_REDUCTIONS or node.operation == "row_length" for node in _walk(root))


def is_of_row(root: Scalar) -> bool:
    """Return whether an expression has one value a row: it reads no element outside of a reduction."""
    return all(node.operation != "input" for node in _walk(root, stop=ROW_REDUCTIONS))


@frozen
class RowReduction:
    """Reduce ``expression`` over the row: ``kind`` is ``sum``, ``max`` or ``min``; it becomes row value ``index``."""

    kind: str
    expression: Scalar
    index: int


@frozen
class RowPass:
    """One walk over the row.

    Its reductions need row values of earlier passes; ``derived`` (row value, expression) are computed behind them.
    ``kept`` is stored in the place of the only output with elements, which is read back as the input behind the last.
    """

    reductions: tuple[RowReduction, ...]
    derived: tuple[tuple[int, Scalar], ...]
    kept: Scalar | None = None


@frozen
class RowSchedule:
    """How formulas are computed: ``passes``, then ``elements`` (output, expression) in a last walk.

    ``scalars`` are (output, row value): outputs with one value a row.
    """

    passes: tuple[RowPass, ...]
    elements: tuple[tuple[int, Scalar], ...]
    scalars: tuple[tuple[int, int], ...]


def scheduled(roots: Sequence[Scalar], num_inputs: int) -> RowSchedule:
    """Return the order in which formulas are computed, one for each output.

    Args:
        roots: the formulas; float32 where they are of a row.
        num_inputs: how many inputs they read.
    """
    return _SchedulingState(roots, num_inputs).schedule()


class _SchedulingState:
    """Turns reductions and what follows from them alone into row values; each expression is rewritten once."""

    def __init__(self, roots: Sequence[Scalar], num_inputs: int) -> None:
        self._roots = roots
        self._num_inputs = num_inputs
        self._levels: dict[int, int] = {}
        self._done: dict[tuple[int, bool], Scalar] = {}
        self._next = ROW_LENGTH + 1
        self._reductions: dict[int, list[RowReduction]] = {}
        self._derived: dict[int, list[tuple[int, Scalar]]] = {}

    def schedule(self) -> RowSchedule:
        with_elements = [root for root in self._roots if not is_of_row(root)]
        kept, level = self._kept(with_elements) if len(with_elements) == 1 else (None, 0)
        if kept is not None:
            read_back = element(self._num_inputs, kept.dtype)
            first = self._rewritten(kept, True)
        scalars = [(k, self._row_value(root)) for k, root in enumerate(self._roots) if is_of_row(root)]
        for node in [n for root in with_elements for n in _walk(root) if n.operation in ROW_REDUCTIONS]:
            self._rewritten(node, True)
        if kept is not None:  # behind all reductions: they read it as it is computed
            self._done = {k: v for k, v in self._done.items() if v.operation == "row"} | {(id(kept), True): read_back}
        elements = [(k, self._rewritten(r, True)) for k, r in enumerate(self._roots) if not is_of_row(r)]
        passes = tuple(
            RowPass(
                tuple(self._reductions.get(each, ())), tuple(self._derived.get(each, ())),
                first if kept is not None and each == level else None,
            )
            for each in range(1, max([1, *self._reductions, *self._derived]) + 1)
        )  # fmt: skip
        return RowSchedule(passes, tuple(elements), tuple(scalars))

    def _kept(self, roots: Sequence[Scalar]) -> tuple[Scalar | None, int]:
        """Return the costliest expression that the last reductions and the output both read, and its pass."""
        (root,) = roots
        last = max(self._level(node) for node in _walk(root))
        reduced = [n for n in _walk(root) if n.operation in ROW_REDUCTIONS and self._level(n) == last]
        read = {id(n) for r in reduced for n in _walk(r.arguments[0], stop=ROW_REDUCTIONS)}
        shared = [n for n in _walk(root, stop=ROW_REDUCTIONS) if id(n) in read and not is_of_row(n)]
        shared = [n for n in shared if n.dtype is root.dtype and _cost(n) > _COSTLY]
        return (max(shared, key=_cost), last) if shared else (None, 0)

    def _level(self, node: Scalar) -> int:
        """Return in which pass a value is known first: 0 for what needs no reduction."""
        if id(node) not in self._levels:
            below = max((self._level(argument) for argument in node.arguments), default=0)
            self._levels[id(node)] = below + (node.operation in ROW_REDUCTIONS)
        return self._levels[id(node)]

    def _rewritten(self, node: Scalar, may_derive: bool) -> Scalar:
        key = (id(node), may_derive)
        if key not in self._done:
            self._done[key] = self._made(node, may_derive)
        return self._done[key]

    def _made(self, node: Scalar, may_derive: bool) -> Scalar:
        if node.operation == "row_length":
            return row_value(ROW_LENGTH, node.dtype)
        if node.operation in ROW_REDUCTIONS:
            return row_value(self._reduction(node), node.dtype)
        if may_derive and node.dtype is DataType.FLOAT and self._level(node) and is_of_row(node):
            return row_value(self._row_value(node), node.dtype)
        if not node.arguments:
            return node
        arguments = tuple(self._rewritten(argument, may_derive) for argument in node.arguments)
        return Scalar(node.operation, node.dtype, arguments, node.index, node.value)

    def _reduction(self, node: Scalar) -> int:
        for known in (self._done.get((id(node), True)), self._done.get((id(node), False))):
            if known is not None:
                return known.index
        expression = self._rewritten(node.arguments[0], True)
        index = self._new_index()
        reduction = RowReduction(node.operation.removeprefix("row_"), expression, index)
        self._reductions.setdefault(self._level(node), []).append(reduction)
        return index

    def _row_value(self, node: Scalar) -> int:
        """Return the row value of an expression of the row, which is derived if it is no reduction itself."""
        known = self._done.get((id(node), True))
        if known is not None and known.operation == "row":
            return known.index
        rewritten = self._rewritten(node, False)
        if rewritten.operation == "row" and rewritten.index != ROW_LENGTH:
            return rewritten.index
        index = self._new_index()
        self._derived.setdefault(max(1, self._level(node)), []).append((index, rewritten))
        self._done[id(node), True] = row_value(index, node.dtype)
        return index

    def _new_index(self) -> int:
        self._next += 1
        return self._next - 1


def _cost(node: Scalar) -> int:
    """Return how many operations it takes for each element."""
    return sum(not is_of_row(each) for each in _walk(node, stop=ROW_REDUCTIONS))


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
