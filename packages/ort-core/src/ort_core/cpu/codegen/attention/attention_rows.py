"""Rows of an attention: from scores to weights, with mask, cap and the running softmax; scaled copies; the division."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, float32, integer, vector_type
from ort_core.cpu.codegen.llvm_ir.part_access import load_masked
from ort_core.cpu.codegen.llvm_ir.scalar_printer import ScalarPrinter
from ort_core.cpu.codegen.llvm_ir.vectors import each_vector, lane_mask, load_vector, store_vector, zero
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, element, exp2_of_negative, tanh

LOG2_E = math.log2(math.e)
_LOWEST = float("-inf")
_UNROLL = 4  # independent maxima and sums


class ScoreMask(enum.Enum):
    """What a mask does to a score: nothing, is added to it, or says where it counts."""

    NONE = "none"
    ADDED = "added"
    ALLOWED = "allowed"

    @property
    def stored(self) -> str:
        """The LLVM type of its elements in memory."""
        return "i8" if self is ScoreMask.ALLOWED else "float"


@dataclass(frozen=True, slots=True)
class RowFacts:
    """A tile of scores while its code is emitted: ``height`` rows, of which the products read ``seen`` columns.

    ``peaks`` and ``totals`` hold m and l of each row, ``sums`` its unfinished result; row 0 of the tile is row
    ``local`` there. ``mask`` points to the element of row 0 and the block's first key. ``limit`` gives the number of
    keys that row ``i`` may see, ``lowest`` the first of them, where there is a window.
    """

    height: IRValue
    seen: IRValue
    scores: IRValue
    stride: int
    peaks: IRValue
    totals: IRValue
    sums: IRValue
    columns: IRValue
    local: IRValue
    is_first: IRValue
    kind: ScoreMask
    mask_is_dense: bool
    mask: IRValue
    mask_row: IRValue
    softcap: float
    is_in_log2: bool  # the scores: else in their natural unit
    limit: Callable[[IRValue], IRValue]
    lowest: Callable[[IRValue], IRValue | None]


class RowsEmitter:
    """Emits the streaming softmax of a tile's rows."""

    def __init__(self, emitter: Emitter, lanes: int, rows: RowFacts) -> None:
        self._emitter, self._lanes, self._rows = emitter, lanes, rows
        self._type = vector_type(lanes, "float")

    def emit(self) -> None:
        """Turn the scores of every row into weights."""
        e, rows = self._emitter, self._rows
        with e.loop(0, rows.height, unroll=False, hint="row") as row:
            scores = e.element(rows.scores, e.mul(row, rows.stride))
            limit = rows.limit(row)
            self._prepare(row, scores, limit)
            padded = self._padded(limit)
            at = e.add(rows.local, row)
            peak, factor = self._peak(scores, padded, e.element(rows.peaks, at))
            total = self._weights(scores, padded, peak)
            place = e.element(rows.totals, at)
            self._rescale(at, place, total, factor)
            with e.loop(padded, self._padded(rows.seen), self._lanes, unroll=False, hint="j") as j:
                store_vector(e, zero(self._type), e.element(scores, j))

    def _padded(self, count: IRValue) -> IRValue:
        e = self._emitter
        return e.mul(e.udiv(e.add(count, self._lanes - 1), self._lanes), self._lanes)

    def _prepare(self, row: IRValue, scores: IRValue, limit: IRValue) -> None:
        """Apply cap, mask and window, and put minus infinity behind the last score, up to a whole vector."""
        e, rows, lanes = self._emitter, self._rows, self._lanes
        whole = e.sub(limit, e.urem(limit, lanes))
        lowest = rows.lowest(row)
        mask = rows.mask
        if rows.kind is not ScoreMask.NONE:
            mask = e.element(mask, e.mul(row, rows.mask_row), rows.kind.stored)
        if rows.kind is not ScoreMask.NONE or rows.softcap or lowest is not None:
            with e.loop(0, whole, lanes, unroll=False, hint="j") as j:
                here = e.element(scores, j)
                store_vector(e, self.changed(load_vector(e, here, lanes), mask, j, lowest, None), here)
        with e.when(e.compare("slt", whole, limit)):
            inside = lane_mask(e, e.sub(limit, whole), lanes)
            here = e.element(scores, whole)
            value = self.changed(load_vector(e, here, lanes), mask, whole, lowest, inside)
            store_vector(e, e.select(inside, value, self._lowest()), here)

    def changed(
        self, value: IRValue, mask: IRValue, j: IRValue, lowest: IRValue | None, inside: IRValue | None
    ) -> IRValue:
        """Return the vector of a row's scores from ``j`` on, capped and masked; ``mask`` is that of the row."""
        e, rows, lanes = self._emitter, self._rows, self._lanes
        if rows.softcap:
            unit = LOG2_E if rows.is_in_log2 else 1.0
            value = self._print(tanh(element(0, DataType.FLOAT) * (1 / rows.softcap)) * (rows.softcap * unit), value)
        if rows.kind is ScoreMask.ADDED:
            value = e.binary("fadd", value, self._mask_vector(mask, j, "float", inside))
        elif rows.kind is ScoreMask.ALLOWED:
            allowed = self._mask_vector(mask, j, "i8", inside)
            bits = e.assign(vector_type(lanes, "i1"), f"icmp ne {allowed.typed}, zeroinitializer")
            value = e.select(bits, value, self._lowest())
        if lowest is not None:
            before = lane_mask(e, e.sub(lowest, j), lanes)
            value = e.select(before, self._lowest(), value)
        return value

    def _mask_vector(self, mask: IRValue, j: IRValue, type_: str, inside: IRValue | None) -> IRValue:
        """Return the mask's elements from ``j`` on; those outside are not read."""
        e, lanes = self._emitter, self._lanes
        vector = vector_type(lanes, type_)
        if not self._rows.mask_is_dense:
            return e.splat(e.load(type_, mask), lanes)
        place = e.element(mask, j, type_)
        if inside is None:
            return e.load(vector, place, 4 if type_ == "float" else 1)
        return load_masked(e, vector, place, 4 if type_ == "float" else 1, inside)

    def _lowest(self) -> IRValue:
        return self._emitter.splat(float32(_LOWEST), self._lanes)

    def _print(self, expression: Scalar, *inputs: IRValue) -> IRValue:
        return ScalarPrinter(self._emitter, self._lanes, lambda index: inputs[index]).print(expression)

    def _over(self, padded: IRValue, start: IRValue, combine: str, body: Callable[[IRValue], IRValue]) -> IRValue:
        """Return the reduction of ``body`` over a padded row, in independent accumulators."""
        e, lanes = self._emitter, self._lanes
        slots = [e.variable(self._type, start, "acc") for _ in range(_UNROLL)]
        step = lanes * _UNROLL
        wide = e.sub(padded, e.urem(padded, step))
        for stop, begin, each, used in ((wide, integer(0), step, slots), (padded, wide, lanes, slots[:1])):
            with e.loop(begin, stop, each, unroll=False, hint="j") as j:
                values = [body(e.add(j, part * lanes)) for part in range(len(used))]
                for slot, value in zip(used, values, strict=True):
                    e.store(self._joined(combine, e.load(self._type, slot), value), slot)
        total = e.load(self._type, slots[0])
        for slot in slots[1:]:
            total = self._joined(combine, total, e.load(self._type, slot))
        return total

    def _joined(self, combine: str, left: IRValue, right: IRValue) -> IRValue:
        e = self._emitter
        if combine == "add":
            return e.binary("fadd", left, right)
        greater = e.assign(vector_type(self._lanes, "i1"), f"fcmp ogt {left.typed}, {right.text}")
        return e.select(greater, left, right)

    def _peak(self, scores: IRValue, padded: IRValue, place: IRValue) -> tuple[IRValue, IRValue]:
        """Return what to subtract from the scores, and the factor of what was summed before; stores the new maximum.

        A NaN among the scores may be lost here; it comes back with its weight.
        """
        e, lanes = self._emitter, self._lanes
        vector = self._over(padded, self._lowest(), "max", lambda j: load_vector(e, e.element(scores, j), lanes))
        suffix = f"v{lanes}f32"
        here = e.call("float", f"llvm.vector.reduce.fmax.{suffix}", vector)
        old = e.variable("float", float32(_LOWEST))
        with e.when(e.compare("eq", self._rows.is_first, IRValue("i1", "false"))):
            e.store(e.load("float", place), old)
        before = e.load("float", old)
        greater = e.assign("i1", f"fcmp ogt {before.typed}, {here.text}")
        peak = e.select(greater, before, here)
        e.store(peak, place)
        none = e.assign("i1", f"fcmp oeq {peak.typed}, {float32(_LOWEST).text}")
        shift = e.select(none, float32(0.0), peak)
        fallen = e.assign("float", f"fsub {before.typed}, {shift.text}")
        return shift, self.factor(fallen)

    def factor(self, fallen: IRValue) -> IRValue:
        """Return what a number was worth that the maximum has left behind by ``fallen``, a negative float."""
        printer = ScalarPrinter(self._emitter, 1, lambda index: fallen)
        return printer.print(self._weight(element(0, DataType.FLOAT)))

    def _weight(self, score: Scalar) -> Scalar:
        """Return what a score weighs, as it lies below the greatest."""
        return exp2_of_negative(score if self._rows.is_in_log2 else score * LOG2_E)

    def _weights(self, scores: IRValue, padded: IRValue, peak: IRValue) -> IRValue:
        """Store ``2**(score - peak)`` in place of every score, and return the sum."""
        e, lanes = self._emitter, self._lanes
        shift = e.splat(peak, lanes)
        weight = self._weight(element(0, DataType.FLOAT) - element(1, DataType.FLOAT))

        def body(j: IRValue) -> IRValue:
            place = e.element(scores, j)
            value = self._print(weight, load_vector(e, place, lanes), shift)
            store_vector(e, value, place)
            return value

        vector = self._over(padded, zero(self._type), "add", body)
        return e.call("float", f"llvm.vector.reduce.fadd.v{lanes}f32", IRValue("float", "0.0"), vector, flags="reassoc")

    def _rescale(self, at: IRValue, place: IRValue, total: IRValue, factor: IRValue) -> None:
        """Bring the sums of earlier blocks to the new maximum, and add this block's total."""
        e, rows, lanes = self._emitter, self._rows, self._lanes
        with e.either(rows.is_first) as branch:
            e.store(total, place)
            with branch.otherwise():
                before = e.binary("fmul", e.load("float", place), factor)
                e.store(e.binary("fadd", before, total), place)
                sums = e.element(rows.sums, e.mul(at, rows.columns))
                vector = e.splat(factor, lanes)
                with e.loop(0, rows.columns, lanes, unroll=False, hint="j") as j:
                    here = e.element(sums, j)
                    store_vector(e, e.binary("fmul", load_vector(e, here, lanes), vector), here)

    @staticmethod
    def copy_scaled(
        emitter: Emitter, lanes: int, start: IRValue, row_stride: IRValue, to: IRValue, depth: IRValue,
        height: IRValue, scale: IRValue,
    ) -> None:  # fmt: skip
        """Copy ``height`` rows of queries, times the scale, to rows of ``depth`` floats."""
        e = emitter
        factor = e.splat(scale, lanes)
        with e.loop(0, height, unroll=False, hint="row") as row:
            source, target = e.element(start, e.mul(row, row_stride)), e.element(to, e.mul(row, depth))
            _multiply(e, lanes, source, target, depth, factor)

    @staticmethod
    def divide(
        emitter: Emitter, lanes: int, sums: IRValue, sums_row: IRValue, totals: IRValue, out: IRValue,
        out_row: IRValue, width: IRValue, height: IRValue, replaces: IRValue,
    ) -> None:  # fmt: skip
        """Store the sums divided by the rows' totals; a row without weights gives zeros where ``replaces`` is true."""
        e = emitter
        with e.loop(0, height, unroll=False, hint="row") as row:
            total = e.load("float", e.element(totals, row))
            empty = e.binary("and", e.assign("i1", f"fcmp oeq {total.typed}, 0.0"), replaces)
            divisor = e.select(empty, float32(1.0), total)
            factor = e.splat(e.assign("float", f"fdiv {float32(1.0).typed}, {divisor.text}"), lanes)
            source, target = e.element(sums, e.mul(row, sums_row)), e.element(out, e.mul(row, out_row))
            _multiply(e, lanes, source, target, width, factor)


def _multiply(e: Emitter, lanes: int, source: IRValue, target: IRValue, count: IRValue, factor: IRValue) -> None:
    def multiply(j: IRValue, mask: IRValue | None) -> None:
        value = load_vector(e, e.element(source, j), lanes, mask)
        store_vector(e, e.binary("fmul", value, factor), e.element(target, j), mask)

    each_vector(e, count, lanes, multiply)
