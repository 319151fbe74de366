"""From scores to weights of bfloat16, for rows of tiles: what a chunk of keys adds to a streaming softmax.

Weights are relative to a number near the greatest score so far, not to that itself:

    w = 2**(s - m)    l = l + sum(w)    m' = max(s), where sum(w) is too large to be exact with the others; else m

Floats have the same precision at any size, so nothing is lost while m is too small by some binary digits. So the
maximum of a chunk is looked for in the first one alone; whether m has to be raised shows in the sums, and then the
weights of the chunk are computed again.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ort_core.cpu.codegen.attention.attention_rows import LOG2_E, RowFacts, RowsEmitter, ScoreMask
from ort_core.cpu.codegen.attention.tile_products import PANEL, STRIP, TILE_ROWS
from ort_core.cpu.codegen.llvm_ir.bfloat16_lanes import rounded_row
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, float32, integer
from ort_core.cpu.codegen.llvm_ir.matrix_tiles import ROWS
from ort_core.cpu.codegen.llvm_ir.rounded_powers import rounded_power
from ort_core.cpu.codegen.llvm_ir.vectors import joined_lanes, lane_mask, load_vector, store_vector, zero

CHUNK_PANELS = 2
CHUNK = CHUNK_PANELS * PANEL  # keys: their scores, weights and values stay in the first-level cache
SCORES = TILE_ROWS * PANEL  # of a panel
_LANES = ROWS
_SLACK = 8.0  # how far above m scores may be when it is looked at
_LARGE = 2.0**16  # weights of a lane: more than those that slack allows, less by far than what overflows
_LOWEST = float("-inf")
_VECTOR, _FLAGS = "<16 x float>", "<16 x i1>"


@dataclass(frozen=True, slots=True)
class RowState:
    """What is known of the rows of a tile: for each m, a bound on scores and 16 parts of l; its sums so far.

    ``others`` is where the totals of every second chunk are written, so that a chunk can be done again.
    """

    shifts: IRValue
    bounds: IRValue
    totals: IRValue
    others: IRValue
    sums: IRValue
    columns: IRValue

    def clear(self, e: Emitter, height: IRValue) -> None:
        """Begin rows that have seen nothing."""
        with e.loop(0, height, unroll=False, hint="row") as row:
            e.store(float32(0.0), e.element(self.shifts, row), 4)
            e.store(float32(_LOWEST), e.element(self.bounds, row), 4)
            store_vector(e, zero(_VECTOR), e.element(self.totals, e.mul(row, _LANES)))
            sums = e.element(self.sums, e.mul(row, self.columns))
            with e.loop(0, self.columns, _LANES, unroll=False, hint="j") as j:
                store_vector(e, zero(_VECTOR), e.element(sums, j))

    def total(self, e: Emitter, row: IRValue) -> IRValue:
        """Return l of a row."""
        vector = load_vector(e, e.element(self.totals, e.mul(row, _LANES)), _LANES)
        return e.call("float", "llvm.vector.reduce.fadd.v16f32", IRValue("float", "0.0"), vector, flags="reassoc")


class TileWeights:
    """Emits the steps of a tile's softmax; scores lie as ``[panel, 32 rows, 32 keys]``."""

    def __init__(self, e: Emitter, rows: RowFacts, state: RowState, scores: IRValue, weights: IRValue) -> None:
        self._e, self._rows, self._state = e, rows, state
        self._scores, self._weights = scores, weights
        self._changes = rows.kind is not ScoreMask.NONE or bool(rows.softcap)

    def mask(self, first: IRValue, panels: IRValue) -> None:
        """Apply cap, mask and window to the scores of a chunk of keys from ``first`` on; hide what is behind limits."""
        e, rows = self._e, self._rows
        hides = e.compare("slt", rows.limit(integer(0)), e.add(first, e.mul(panels, PANEL)))
        is_needed = IRValue("i1", "true") if self._changes or rows.lowest(integer(0)) is not None else hides
        with (
            e.when(is_needed),
            e.loop(0, rows.height, unroll=False, hint="row") as row,
            e.loop(0, panels, unroll=False, hint="panel") as panel,
        ):
            here = e.element(self._scores, e.add(e.mul(panel, SCORES), e.mul(row, PANEL)))
            at = e.add(first, e.mul(panel, PANEL))
            for start in range(0, PANEL, _LANES):
                self._masked(row, e.add(at, start), e.element(here, start))

    def totals(self, odd: IRValue) -> IRValue:
        """Return which totals are the present ones."""
        e, state = self._e, self._state
        return e.select(e.compare("ne", odd, 0), state.others, state.totals)

    def store(self, panels: IRValue, odd: IRValue) -> None:
        """Store the weights of a chunk as words of A, and totals with them; ``odd`` says which totals are read."""
        e = self._e
        before, behind = self.totals(odd), self.totals(e.binary("xor", odd, integer(1)))
        going = e.variable("i1", IRValue("i1", "true"), "going")
        with e.repeat(going):
            above = e.variable(_FLAGS, IRValue(_FLAGS, "zeroinitializer"), "above")
            with e.either(e.compare("eq", panels, CHUNK_PANELS)) as branch:
                self._store_rows(CHUNK_PANELS, before, behind, above)
                with branch.otherwise():
                    self._store_rows(1, before, behind, above)
            is_above = _any(e, e.load(_FLAGS, above))
            e.store(is_above, going)
            with e.when(is_above):
                self.raise_shifts(panels, before)

    def _store_rows(self, panels: int, before: IRValue, behind: IRValue, above: IRValue) -> None:
        e = self._e
        limit = e.splat(float32(_LARGE), _LANES)
        with e.loop(0, self._rows.height, unroll=False, hint="row") as row:
            shift = e.splat(e.load("float", e.element(self._state.shifts, row), 4), _LANES)
            sums = []
            for panel in range(panels):
                source = e.element(self._scores, e.add(e.mul(row, PANEL), panel * SCORES))
                pair = [self._weight(load_vector(e, e.element(source, i * _LANES), _LANES), shift) for i in range(2)]
                place = e.element(self._weights, e.add(e.mul(row, ROWS), panel * STRIP))
                e.store(rounded_row(e, *pair), place, 4)
                sums.append(e.binary("fadd", *pair))
            total = functools.reduce(functools.partial(e.binary, "fadd"), sums)
            found = e.assign(_FLAGS, f"fcmp ogt {total.typed}, {limit.text}")
            e.store(e.binary("or", e.load(_FLAGS, above), found), above)
            at = e.mul(row, _LANES)
            so_far = load_vector(e, e.element(before, at), _LANES)
            store_vector(e, e.binary("fadd", so_far, total), e.element(behind, at))

    def _weight(self, score: IRValue, shift: IRValue) -> IRValue:
        e = self._e
        below = e.binary("fsub", score, shift)
        if not self._rows.is_in_log2:
            below = e.binary("fmul", below, e.splat(float32(LOG2_E), _LANES))
        return rounded_power(e, below)

    def settle(self, odd: IRValue) -> None:
        """Bring the totals to where they are looked for."""
        e = self._e
        count = e.select(e.compare("ne", odd, 0), self._rows.height, integer(0))
        with e.loop(0, count, unroll=False, hint="row") as row:
            at = e.mul(row, _LANES)
            store_vector(
                e, load_vector(e, e.element(self._state.others, at), _LANES), e.element(self._state.totals, at)
            )

    def _masked(self, row: IRValue, at: IRValue, here: IRValue) -> None:
        """Change the vector of scores from column ``at`` on."""
        e, rows = self._e, self._rows
        limit, lowest = rows.limit(row), rows.lowest(row)
        mask = rows.mask
        if rows.kind is not ScoreMask.NONE:
            mask = e.element(mask, e.mul(row, rows.mask_row), rows.kind.stored)
        change = RowsEmitter(e, _LANES, rows).changed
        found = load_vector(e, here, _LANES)
        with e.either(e.compare("sle", e.add(at, _LANES), limit)) as branch:
            store_vector(e, change(found, mask, at, lowest, None), here)
            with branch.otherwise():
                inside = lane_mask(e, e.sub(limit, at), _LANES)
                value = change(found, mask, at, lowest, inside)
                store_vector(e, e.select(inside, value, self._lowest()), here)

    def raise_shifts(self, panels: IRValue, totals: IRValue) -> IRValue:
        """Raise m of the rows with scores far above it; return whether any row has seen nothing yet."""
        e = self._e
        unseen = e.variable("i1", IRValue("i1", "false"), "unseen")
        with e.loop(0, self._rows.height, _LANES, unroll=False, hint="first") as first:
            inside = lane_mask(e, e.sub(self._rows.height, first), _LANES)
            bounds, shifts = (e.element(each, first) for each in (self._state.bounds, self._state.shifts))
            bound, shift = (load_vector(e, each, _LANES, inside) for each in (bounds, shifts))
            found = self._greatest(first, panels)
            above = e.binary("and", e.assign(_FLAGS, f"fcmp ogt {found.typed}, {bound.text}"), inside)
            nothing = e.assign(_FLAGS, f"fcmp oeq {bound.typed}, {self._lowest().text}")
            raised = e.binary("fadd", found, e.splat(float32(_SLACK), _LANES))
            store_vector(e, e.select(above, raised, bound), bounds, inside)
            store_vector(e, e.select(above, found, shift), shifts, inside)
            sees_none = e.select(above, IRValue(_FLAGS, "zeroinitializer"), e.binary("and", nothing, inside))
            e.store(e.binary("or", e.load("i1", unseen), _any(e, sees_none)), unseen)
            rescaled = e.select(nothing, IRValue(_FLAGS, "zeroinitializer"), above)
            with e.when(_any(e, rescaled)):
                fallen = e.select(rescaled, e.binary("fsub", shift, found), zero(_VECTOR))
                self._rescale_rows(first, fallen, totals)
        return e.load("i1", unseen)

    def _greatest(self, first: IRValue, panels: IRValue) -> IRValue:
        """Return the greatest scores of 16 rows in the chunk; NaN may be lost."""
        e = self._e
        best = [e.variable(_VECTOR, self._lowest(), "best") for _ in range(_LANES)]
        scores = e.element(self._scores, e.mul(first, PANEL))
        with e.loop(0, panels, unroll=False, hint="panel") as panel:
            here = e.element(scores, e.mul(panel, SCORES))
            for row, slot in enumerate(best):
                for start in range(0, PANEL, _LANES):
                    score = load_vector(e, e.element(here, row * PANEL + start), _LANES)
                    e.store(self._greater(score, e.load(_VECTOR, slot)), slot)
        return joined_lanes(e, [e.load(_VECTOR, slot) for slot in best], self._greater)

    def _greater(self, left: IRValue, right: IRValue) -> IRValue:
        """Return the greater numbers of two vectors; the right one where either is NaN."""
        e = self._e
        return e.select(e.assign(_FLAGS, f"fcmp ogt {left.typed}, {right.text}"), left, right)

    def _lowest(self) -> IRValue:
        return self._e.splat(float32(_LOWEST), _LANES)

    def _rescale_rows(self, first: IRValue, fallen: IRValue, totals: IRValue) -> None:
        """Bring 16 rows from ``first`` on to another m, which is higher by what is not zero of ``fallen``."""
        e = self._e
        by_row = e.variable(_VECTOR, fallen, "fallen")
        with e.loop(0, integer(_LANES), unroll=False, hint="row") as row:
            each = e.load("float", e.element(by_row, row), 4)
            with e.when(e.assign("i1", f"fcmp une {each.typed}, 0.0")):
                self._rescale(e.add(first, row), each, totals)

    def _rescale(self, row: IRValue, fallen: IRValue, totals: IRValue) -> None:
        """Bring the sums of a row to another m. Before its first one they are zeros, or no numbers."""
        e, state = self._e, self._state
        factor = RowsEmitter(e, _LANES, self._rows).factor(fallen)
        vector = e.splat(factor, _LANES)
        total = e.element(totals, e.mul(row, _LANES))
        store_vector(e, e.binary("fmul", load_vector(e, total, _LANES), vector), total)
        sums = e.element(state.sums, e.mul(row, state.columns))
        with e.loop(0, state.columns, _LANES, unroll=False, hint="j") as j:
            here = e.element(sums, j)
            store_vector(e, e.binary("fmul", load_vector(e, here, _LANES), vector), here)


def _any(e: Emitter, flags: IRValue) -> IRValue:
    """Return whether any of 16 flags is set."""
    bits = e.assign("i16", f"bitcast {flags.typed} to i16")
    return e.compare("ne", bits, 0)
