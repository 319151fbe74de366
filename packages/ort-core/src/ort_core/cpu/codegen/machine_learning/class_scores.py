"""Scores of classifiers: the label of each row, and the post transform over its columns, many rows at a time.

Rows lie side by side in the lanes of vectors, as classes are few and rows are many; the last rows go one by one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.llvm_ir.memoized import memoized
from ort_core.cpu.codegen.llvm_ir.scalar_printer import ScalarPrinter, constant
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, gather_elements, share
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, binary, element, exp, maximum, select, sigmoid, unary

F32 = DataType.FLOAT
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")


@dataclass(frozen=True, slots=True)
class ClassScores:
    """What is generated for.

    ``transform`` is one of ``TRANSFORMS``; ``""`` leaves the scores alone, only labels are given. ``label`` says how a
    row's label is found: ``largest`` score, ``above`` (whether a score exceeds ``threshold``), ``""`` for no labels.
    ``pair`` makes two columns of a single score s: ``complement`` 1 - s, ``mirror`` -s; ``""`` keeps the columns.

    The argument table: scores, results, labels, label table (pointers), rows, columns of the scores, the column that
    is compared with the threshold.
    """

    transform: str
    label: str = ""
    threshold: float = 0.0
    pair: str = ""


@memoized
def class_scores_kernel(spec: ClassScores, target: Target) -> tuple[str, Emitter]:
    """Return the kernel's name and its function."""
    emitter = _Printer(spec, "$name").function(target)
    emitter.rename(f"classes_{hashlib.sha256(emitter.finish().encode()).hexdigest()[:16]}")
    return emitter.name, emitter


class _Printer:
    def __init__(self, spec: ClassScores, name: str) -> None:
        self._spec = spec
        self._emitter = Emitter(name, KERNEL_PARAMETERS)

    def function(self, target: Target) -> Emitter:
        """Return the kernel."""
        e = self._emitter
        args = e.parameter("args")
        self._scores, self._results, self._labels, self._table = (e.argument(args, i, "ptr") for i in range(4))
        rows, self._columns, self._column = (e.argument(args, i) for i in range(4, 7))
        first, last = share(e, rows)
        whole = e.sub(last, e.urem(e.sub(last, first), target.lanes))
        for width, low, high in ((target.lanes, first, whole), (1, whole, last)):
            with e.loop(low, high, width, unroll=False, hint="row") as row:
                self._rows(row, width)
        return e

    def _rows(self, row: IRValue, width: int) -> None:
        self._row, self._width = row, width
        self._type = vector_type(width, "float")
        if self._spec.label:
            self._label()
        if self._spec.transform in ("SOFTMAX", "SOFTMAX_ZERO"):
            self._softmax()
        elif self._spec.transform:
            with self._each_column() as column:
                value = element(0, F32)
                value = sigmoid(value) if self._spec.transform == "LOGISTIC" else value
                self._store(column, self._print(value, self._score(column)))

    # columns ----------------------------------------------------------------------------------------------------------

    @contextmanager
    def _each_column(self) -> Iterator[IRValue]:
        columns = integer(2) if self._spec.pair else self._columns
        with self._emitter.loop(0, columns, unroll=False, hint="column") as column:
            yield column

    def _score(self, column: IRValue) -> IRValue:
        """Return a column of the (possibly paired) scores of the rows."""
        if not self._spec.pair:
            return self._load(self._scores, column, self._columns)
        e = self._emitter
        value = self._load(self._scores, integer(0), self._columns)
        s = element(0, F32)
        other = self._print(-s if self._spec.pair == "mirror" else 1.0 - s, value)
        is_first = e.splat(e.compare("eq", column, 0), self._width)
        return e.select(is_first, other, value)

    def _load(self, base: IRValue, column: IRValue, columns: IRValue) -> IRValue:
        start = self._emitter.add(self._emitter.mul(self._row, columns), column)
        return gather_elements(self._emitter, self._emitter.element(base, start), integer(0), columns, F32, self._width)

    def _store(self, column: IRValue, value: IRValue) -> None:
        e = self._emitter
        columns = integer(2) if self._spec.pair else self._columns
        for lane in range(self._width):
            place = e.add(e.mul(e.add(self._row, lane), columns), column)
            e.store(self._lane(value, lane), e.element(self._results, place), 4)

    def _lane(self, value: IRValue, lane: int) -> IRValue:
        if self._width == 1:
            return value
        kind = value.type[1:-1].partition(" x ")[2]
        return self._emitter.assign(kind, f"extractelement {value.typed}, i32 {lane}")

    def _print(self, expression: Scalar, *inputs: IRValue) -> IRValue:
        return ScalarPrinter(self._emitter, self._width, lambda index: inputs[index]).print(expression)

    # softmax ----------------------------------------------------------------------------------------------------------

    def _softmax(self) -> None:
        """Emit ``exp(x - max) / sum``; with SOFTMAX_ZERO a score within 1e-7 of 0 stays (almost) 0."""
        e = self._emitter
        peak = e.variable(self._type, constant(float("-inf"), F32, self._width))
        total = e.variable(self._type, constant(0.0, F32, self._width))
        with self._each_column() as column:
            larger = self._print(maximum(element(0, F32), element(1, F32)), self._top(peak), self._score(column))
            e.store(larger, peak)
        with self._each_column() as column:
            power = self._print(self._power(), self._score(column), self._top(peak))
            self._store(column, power)
            e.store(e.binary("fadd", self._top(total), power), total)
        with self._each_column() as column:
            columns = integer(2) if self._spec.pair else self._columns
            power = self._load(self._results, column, columns)
            self._store(column, self._print(self._share(), power, self._top(total)))

    def _top(self, variable: IRValue) -> IRValue:
        return self._emitter.load(self._type, variable)

    def _power(self) -> Scalar:
        x, peak = element(0, F32), element(1, F32)
        power = exp(x - peak)
        if self._spec.transform == "SOFTMAX":
            return power
        return select(binary("gt", unary("abs", x), 1e-7), power, x * exp(-peak))

    def _share(self) -> Scalar:
        power, total = element(0, F32), element(1, F32)
        if self._spec.transform == "SOFTMAX":
            return power / total
        return select(binary("ne", total, 0.0), power / total, 0.5)

    # labels -----------------------------------------------------------------------------------------------------------

    def _label(self) -> None:
        e = self._emitter
        places = self._largest() if self._spec.label == "largest" else self._above()
        for lane in range(self._width):
            label = e.load("i64", e.element(self._table, self._lane(places, lane), "i64"), 8)
            e.store(label, e.element(self._labels, e.add(self._row, lane), "i64"), 8)

    def _above(self) -> IRValue:
        e = self._emitter
        score = self._load(self._scores, self._column, self._columns)
        exceeds = self._print(binary("gt", element(0, F32), self._spec.threshold), score)
        type_ = vector_type(self._width, "i64")
        return e.assign(type_, f"zext {exceeds.typed} to {type_}")

    def _largest(self) -> IRValue:
        """Return the column of each row's first largest score, of its first NaN if there is one."""
        e = self._emitter
        start = self._load(self._scores, integer(0), self._columns)
        best = e.variable(self._type, start)
        place = e.variable(vector_type(self._width, "i64"), e.splat(integer(0), self._width))
        score, known = element(0, F32), element(1, F32)
        flag = DataType.BOOL
        is_larger = select(unary("is_nan", score), True, binary("gt", score, known), flag)
        is_new = select(unary("is_nan", known), False, is_larger, flag)
        with e.loop(1, self._columns, unroll=False, hint="column") as column:
            value = self._load(self._scores, column, self._columns)
            wins = self._print(is_new, value, self._top(best))
            e.store(e.select(wins, value, self._top(best)), best)
            old = e.load(vector_type(self._width, "i64"), place)
            e.store(e.select(wins, e.splat(column, self._width), old), place)
        return e.load(vector_type(self._width, "i64"), place)
