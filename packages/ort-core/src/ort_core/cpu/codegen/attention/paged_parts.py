"""Parts of an attention over a long cache: what each gives, and how the results of all are added up.

A part of the keys gives, for each row of queries, the greatest score m, the sum of weights l and the weighted sum of
values O, as ``attention`` has them. Together, always from the first part to the last, whoever adds them up:

    m = max(m_p)    l = sum(l_p 2**(m_p - m))    O = sum(O_p 2**(m_p - m))
"""

from __future__ import annotations

from dataclasses import dataclass

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, float32
from ort_core.cpu.codegen.llvm_ir.scalar_printer import ScalarPrinter
from ort_core.cpu.codegen.llvm_ir.vectors import load_vector, store_vector
from ort_core.plugin.ir import DataType, KnownDim
from ort_core.plugin.loops import element, exp2_of_negative

_LINE = 16  # floats in a cache line: room for the greatest score and the sum behind a row
_LOWEST = float("-inf")


def part_stride(columns: KnownDim) -> KnownDim:
    """Return how many floats a row of a part takes, of so many columns."""
    return columns + _LINE


@dataclass(frozen=True, slots=True)
class MergedRows:
    """Rows of a tile in memory that all threads see, while code is emitted.

    Attributes:
        e: of the kernel.
        lanes: of a vector.
        partials: the memory.
        columns: of the sums: whole vectors.
        first: the number of the tile's first row in the first part.
        per_part: how many rows are between two parts.
        height: rows of the tile.
    """

    e: Emitter
    lanes: int
    partials: IRValue
    columns: IRValue
    first: IRValue
    per_part: IRValue
    height: IRValue

    def keep(self, part: IRValue, sums: IRValue, peaks: IRValue, totals: IRValue) -> None:
        """Store what a part gives."""
        e = self.e
        with e.loop(0, self.height, unroll=False, hint="row") as row:
            to, source = self._row(part, row), e.element(sums, e.mul(row, self.columns))
            with e.loop(0, self.columns, self.lanes, unroll=False, hint="j") as j:
                store_vector(e, load_vector(e, e.element(source, j), self.lanes), e.element(to, j))
            for place, each in enumerate((peaks, totals)):
                e.store(e.load("float", e.element(each, row)), e.element(to, e.add(self.columns, place)))

    def merge(self, parts: IRValue, sums: IRValue, peaks: IRValue, totals: IRValue) -> None:
        """Put sums, greatest scores and totals of all parts where a part's own were."""
        e = self.e
        with e.loop(0, self.height, unroll=False, hint="row") as row:
            peak, total = e.element(peaks, row), e.element(totals, row)
            e.store(float32(_LOWEST), peak)
            with e.loop(0, parts, unroll=False, hint="part") as part:
                found = e.load("float", e.element(self._row(part, row), self.columns))
                before = e.load("float", peak)
                is_greater = e.assign("i1", f"fcmp ogt {found.typed}, {before.text}")
                e.store(e.select(is_greater, found, before), peak)
            greatest = e.load("float", peak)
            none = e.assign("i1", f"fcmp oeq {greatest.typed}, {float32(_LOWEST).text}")
            shift = e.select(none, float32(0.0), greatest)
            target = e.element(sums, e.mul(row, self.columns))
            e.store(float32(0.0), total)
            with e.loop(0, parts, unroll=False, hint="part") as part:
                self._add(part, row, shift, total, target)

    def _add(self, part: IRValue, row: IRValue, shift: IRValue, total: IRValue, target: IRValue) -> None:
        """Add a part, times what its greatest score weighs."""
        e = self.e
        source = self._row(part, row)
        peak, own = (e.load("float", e.element(source, e.add(self.columns, place))) for place in range(2))
        fallen = e.assign("float", f"fsub {peak.typed}, {shift.text}")
        weight = ScalarPrinter(e, 1, lambda _: fallen).print(exp2_of_negative(element(0, DataType.FLOAT)))
        e.store(e.binary("fadd", e.load("float", total), e.binary("fmul", own, weight)), total)
        factor, is_first = e.splat(weight, self.lanes), e.compare("eq", part, 0)
        with e.loop(0, self.columns, self.lanes, unroll=False, hint="j") as j:
            here = e.element(target, j)
            share = e.binary("fmul", load_vector(e, e.element(source, j), self.lanes), factor)
            with e.either(is_first) as branch:
                store_vector(e, share, here)
                with branch.otherwise():
                    store_vector(e, e.binary("fadd", load_vector(e, here, self.lanes), share), here)

    def _row(self, part: IRValue, row: IRValue) -> IRValue:
        e = self.e
        number = e.add(e.add(self.first, e.mul(part, self.per_part)), row)
        return e.element(self.partials, e.mul(number, e.add(self.columns, _LINE)))
