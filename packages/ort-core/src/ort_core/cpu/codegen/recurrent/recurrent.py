"""Recurrent layers: all steps of time in one kernel, the recurrent product of each step fused with its gates.

The input's share of every gate is computed before, for all steps at once. A step has phases; each multiplies a state
[rows, depth] with packed weights, a panel of hidden units at a time, and puts the sums through expressions: the gates
of a unit stand in the same panel, so that what they give is stored at once. Directions and parts of the batch are
tasks of their own: threads never wait for each other inside the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ort_core.cpu.codegen.llvm_ir.deferred_kernel import DeferredKernel, deferred_kernel
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.llvm_ir.scalar_printer import ScalarPrinter
from ort_core.cpu.codegen.llvm_ir.vectors import lane_mask, load_vector, store_vector, zero
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, share
from ort_core.cpu.codegen.quantized.integer_dot import WORD
from ort_core.cpu.codegen.recurrent.byte_tiles import (
    HEAD_BYTES,
    ROUND,
    byte_rows,
    byte_tile,
    round_function,
    words_of,
)
from ort_core.plugin.loops import Scalar, structure

MAX_GATES = 4
_CHAINS = 4  # least sums in flight: one row streams weights from the second-level cache, which is slower than 4 sums

# What expressions read, by index: the sums of the phase's gates, the input's shares of all gates, states, vectors.
SUM, SHARE, STATE, VECTOR = 0, 4, 8, 16
# States: each [batch, padded units]; HIDDEN is read by the products of a step while NEXT is written.
HIDDEN, NEXT, CELL, EXTRA, RESET, ROUNDED = range(6)
STATES = 5  # and ROUNDED, what a product of bytes reads in place of a state


@dataclass(frozen=True, slots=True)
class Phase:
    """One product and what follows it.

    ``gates`` of the recurrent weights are multiplied with state ``operand``; ``stores`` are (state, expression).
    """

    gates: tuple[int, ...]
    operand: int
    stores: tuple[tuple[int, Scalar], ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """What is generated for.

    ``gates`` is how many the input's share has, ``vectors`` how many vectors of constants (peepholes, inner biases)
    there are. ``given`` says which initial states there are, hidden and cell; ``wanted`` which results are asked for:
    every step's, the last hidden state, the last cell. ``has_bytes`` says that the recurrent weights have 8 bits: see
    ``byte_tiles``.
    """

    phases: tuple[Phase, ...]
    gates: int
    vectors: int
    has_cell: bool
    has_lengths: bool
    given: tuple[bool, bool]
    wanted: tuple[bool, bool, bool]
    has_bytes: bool = False

    @property
    def states(self) -> int:
        """How many states there is memory for."""
        return STATES + int(self.has_bytes)

    @property
    def structure(self) -> str:
        """What is generated for, as text: equal for equal cells."""
        phases = [(each.gates, each.operand, [state for state, _ in each.stores]) for each in self.phases]
        expressions = [expression for each in self.phases for _, expression in each.stores]
        facts = (self.gates, self.vectors, self.has_cell, self.has_lengths, self.given, self.wanted, self.has_bytes)
        return f"{phases} {facts} {structure(*expressions)}"


@dataclass(frozen=True, slots=True)
class RecurrentArguments:
    """The argument table; strides count elements. ``result`` etc. are pointers; unused ones may be anything.

    ``shares`` [time, batch] rows of ``directions * gates * padded`` floats; ``weights`` ``directions`` blocks of
    packed panels, one phase behind the other; ``vectors`` [directions, vectors, padded]; ``states`` is memory for the
    states of every direction, [state, direction, batch, padded].
    """

    shares: int = 0
    weights: int = 1
    vectors: int = 2
    states: int = 3
    lengths: int = 4
    first_hidden: int = 5
    first_cell: int = 6
    result: int = 7
    last_hidden: int = 8
    last_cell: int = 9
    error: int = 10
    steps: int = 11
    batch: int = 12
    hidden: int = 13
    directions: int = 14
    backwards: int = 15  # whether the only direction walks backwards; of two the second does
    share_step: int = 16
    share_row: int = 17
    result_step: int = 18
    result_direction: int = 19
    result_row: int = 20
    state_direction: int = 21  # of the states given and the last ones
    state_row: int = 22
    count: int = 23


ARGUMENTS = RecurrentArguments()


def padded_units(hidden: int, target: Target) -> int:
    """Return the number of hidden units in memory: whole vectors."""
    return -(-hidden // target.lanes) * target.lanes


def tile_rows(gates: int, target: Target) -> tuple[int, ...]:
    """Return the row counts of the product's tiles, greatest first: sums, weights and an operand fill the registers."""
    most = min(8, max(1, (target.vector_registers - gates - 2) // (gates * sum_sets(gates))))
    return tuple(sorted({rows for rows in (most, 4, 2, 1) if rows <= most}, reverse=True))


def sum_sets(gates: int) -> int:
    """Return in how many partial sums a product is computed.

    The same for tiles of every height: a row's bits must not depend on the tile that the number of threads puts it in.
    """
    return max(1, _CHAINS // gates)


def recurrent_kernel(cell: Cell, target: Target) -> DeferredKernel:
    """Return the kernel, one function that calls the tiles."""
    return deferred_kernel(
        "recurrent", cell.structure, lambda name: [*_tiles(cell, target), _Driver(cell, target, name).function()],
        is_vectorized=True,
    )  # fmt: skip


def _tiles(cell: Cell, target: Target) -> list[Emitter]:
    if not cell.has_bytes:
        return [_tile(rows, gates, target) for gates in _widths(cell) for rows in tile_rows(gates, target)]
    tiles = [
        byte_tile(_tile_name(rows, gates), rows, gates, target)
        for gates in _widths(cell)
        for rows in byte_rows(gates, target)
    ]
    return [round_function(target), *tiles]


def _widths(cell: Cell) -> list[int]:
    return sorted({len(phase.gates) for phase in cell.phases})


_TILE = [("ptr noalias readonly", "a"), ("i64", "a_row"), ("ptr noalias readonly", "b"), ("i64", "depth"),
         ("ptr noalias", "c")]  # fmt: skip


def _tile_name(rows: int, gates: int) -> str:
    return f"recurrent_tile_{rows}_{gates}"


def _tile(rows: int, gates: int, target: Target) -> Emitter:
    """Emit ``c[r, g, lane] = sum over k of a[r, k] * b[k, g, lane]`` with all sums in registers."""
    e = Emitter(_tile_name(rows, gates), _TILE, linkage="internal")
    type_ = vector_type(target.lanes, "float")
    sets = sum_sets(gates)
    sums = [[e.variable(type_, zero(type_), "sum") for _ in range(rows * gates)] for _ in range(sets)]
    strips = [e.element(e.parameter("a"), e.mul(e.parameter("a_row"), row)) for row in range(rows)]
    depth = e.parameter("depth")
    whole = e.sub(depth, e.urem(depth, sets))

    def step(k: IRValue, slots: Sequence[IRValue]) -> None:
        line = e.element(e.parameter("b"), e.mul(k, gates * target.lanes))
        panel = [load_vector(e, e.element(line, gate * target.lanes), target.lanes) for gate in range(gates)]
        for row, strip in enumerate(strips):
            value = e.splat(e.load("float", e.element(strip, k), 4), target.lanes)
            for gate, weight in enumerate(panel):
                slot = slots[row * gates + gate]
                e.store(e.fma(value, weight, e.load(type_, slot)), slot)

    with e.loop(0, whole, sets, unroll=False, hint="k") as k:
        for number, slots in enumerate(sums):
            step(e.add(k, number), slots)
    if sets > 1:
        with e.loop(whole, depth, unroll=False, hint="k") as k:
            step(k, sums[0])
    for index in range(rows * gates):
        total = e.load(type_, sums[0][index])
        for other in sums[1:]:
            total = e.binary("fadd", total, e.load(type_, other[index]))
        store_vector(e, total, e.element(e.parameter("c"), index * target.lanes))
    return e


class _Driver:
    """Emits the kernel: tasks, time, phases, panels, rows."""

    def __init__(self, cell: Cell, target: Target, name: str) -> None:
        self._cell, self._target, self._lanes = cell, target, target.lanes
        self._type = vector_type(target.lanes, "float")
        self._emitter = e = Emitter(name, KERNEL_PARAMETERS)
        args = e.parameter("args")
        pointers = ("shares", "weights", "vectors", "states", "lengths", "first_hidden", "first_cell", "result",
                    "last_hidden", "last_cell", "error")  # fmt: skip
        names = [each for each in RecurrentArguments.__slots__ if each != "count"]
        self._given = {
            each: e.argument(args, getattr(ARGUMENTS, each), "ptr" if each in pointers else "i64") for each in names
        }
        self._sums = e.variable(f"[{8 * MAX_GATES * self._lanes} x float]", hint="sums", align=64)

    def function(self) -> Emitter:
        """Return the kernel."""
        e, given = self._emitter, self._given
        units = e.add(given["hidden"], self._lanes - 1)
        self._padded = e.sub(units, e.urem(units, self._lanes))
        directions, threads = given["directions"], e.parameter("pieces")
        wanted = e.udiv(e.add(threads, e.sub(directions, 1)), directions)
        parts = e.maximum(e.minimum(wanted, given["batch"]), 1)
        first, last = share(e, e.mul(directions, parts))
        with e.loop(first, last, unroll=False, hint="task") as task:
            self._direction, part = e.udiv(task, parts), e.urem(task, parts)
            self._low = e.udiv(e.mul(given["batch"], part), parts)
            self._high = e.udiv(e.mul(given["batch"], e.add(part, 1)), parts)
            self._task()
        return e

    def _task(self) -> None:
        """Emit one direction of a part of the batch: initial states, all steps, last states."""
        e, given, cell = self._emitter, self._given, self._cell
        depths = [len(phase.gates) for phase in cell.phases]
        self._depth, self._column = given["hidden"], given["hidden"]  # of a column of weights: terms, and floats
        if cell.has_bytes:
            self._depth = words_of(e, given["hidden"])
            self._column = e.add(self._depth, HEAD_BYTES // WORD)
        block = e.mul(e.mul(self._padded, self._column), sum(depths))
        self._weights = e.element(given["weights"], e.mul(self._direction, block))
        self._constants = e.element(given["vectors"], e.mul(e.mul(self._direction, cell.vectors), self._padded))
        one = e.binary("and", e.compare("eq", given["directions"], 1), e.compare("ne", given["backwards"], 0))
        backwards = e.binary("or", one, e.compare("eq", self._direction, 1))
        if cell.has_lengths:
            self._check_lengths()
        self._current = [e.variable("ptr", self._state(HIDDEN)), e.variable("ptr", self._state(NEXT))]
        self._start(HIDDEN, given["first_hidden"], given=cell.given[0])
        if cell.has_cell:
            self._start(CELL, given["first_cell"], given=cell.given[1])
        with e.loop(0, given["steps"], unroll=False, hint="step") as step:
            time = e.select(backwards, e.sub(e.sub(given["steps"], 1), step), step)
            self._step(time)
            old, new = (e.load("ptr", slot) for slot in self._current)
            e.store(new, self._current[0])
            e.store(old, self._current[1])
        if cell.wanted[1]:
            self._end(HIDDEN, given["last_hidden"])
        if cell.wanted[2]:
            self._end(CELL, given["last_cell"])

    # states -----------------------------------------------------------------------------------------------------------

    def _state(self, which: int) -> IRValue:
        """Return the address of a state of this direction."""
        e, given = self._emitter, self._given
        number = e.add(e.mul(given["directions"], which), self._direction)
        return e.element(given["states"], e.mul(e.mul(number, given["batch"]), self._padded))

    def _place(self, which: int) -> IRValue:
        """Return the address of a state; the hidden ones change places with every step."""
        if which in (HIDDEN, NEXT):
            return self._emitter.load("ptr", self._current[which])
        return self._state(which)

    def _units(self, row: IRValue, body: str, *arguments: IRValue) -> None:
        """Emit a loop over the vectors of a row; the last one is masked where units do not fill it."""
        e, hidden = self._emitter, self._given["hidden"]
        with e.loop(0, hidden, self._lanes, unroll=False, hint="unit") as unit:
            mask = lane_mask(e, e.sub(hidden, unit), self._lanes)
            getattr(self, body)(row, unit, mask, *arguments)

    def _start(self, which: int, source: IRValue, *, given: bool) -> None:
        e = self._emitter
        state = self._place(which)
        with e.loop(self._low, self._high, unroll=False, hint="row") as row:
            self._units(row, "_start_units", state, source if given else integer(0))

    def _start_units(self, row: IRValue, unit: IRValue, mask: IRValue, state: IRValue, source: IRValue) -> None:
        e = self._emitter
        value = zero(self._type)
        if source.type == "ptr":
            value = load_vector(e, e.element(source, self._state_at(row, unit)), self._lanes, mask)
        store_vector(e, value, e.element(state, e.add(e.mul(row, self._padded), unit)))

    def _end(self, which: int, target: IRValue) -> None:
        e = self._emitter
        state = self._place(which)
        with e.loop(self._low, self._high, unroll=False, hint="row") as row:
            self._units(row, "_end_units", state, target)

    def _end_units(self, row: IRValue, unit: IRValue, mask: IRValue, state: IRValue, target: IRValue) -> None:
        e = self._emitter
        value = load_vector(e, e.element(state, e.add(e.mul(row, self._padded), unit)), self._lanes)
        if self._cell.has_lengths:  # an empty sequence has no last state: zeros, as onnxruntime gives
            is_empty = e.splat(e.compare("eq", self._length(row), 0), self._lanes)
            value = e.select(is_empty, zero(self._type), value)
        store_vector(e, value, e.element(target, self._state_at(row, unit)), mask)

    def _state_at(self, row: IRValue, unit: IRValue) -> IRValue:
        e, given = self._emitter, self._given
        start = e.mul(self._direction, given["state_direction"])
        return e.add(e.add(start, e.mul(row, given["state_row"])), unit)

    # lengths ----------------------------------------------------------------------------------------------------------

    def _length(self, row: IRValue) -> IRValue:
        e = self._emitter
        value = e.load("i32", e.element(self._given["lengths"], row, "i32"), 4)
        return e.assign("i64", f"sext {value.typed} to i64")

    def _check_lengths(self) -> None:
        e, given = self._emitter, self._given
        with e.loop(self._low, self._high, unroll=False, hint="row") as row:
            is_outside = e.compare("ugt", self._length(row), given["steps"])  # unsigned: a negative one is huge
            with e.when(is_outside):
                e.store(integer(1), given["error"], 8)

    # a step -----------------------------------------------------------------------------------------------------------

    def _step(self, time: IRValue) -> None:
        e = self._emitter
        panels = e.udiv(self._padded, self._lanes)
        start: IRValue = integer(0)
        for number, phase in enumerate(self._cell.phases):
            gates = len(phase.gates)
            panel_size = e.mul(self._column, gates * self._lanes)
            weights = e.element(self._weights, e.mul(e.mul(self._padded, self._column), start))
            operand = self._place(phase.operand)
            if self._cell.has_bytes:
                operand = self._rounded(operand)
            with e.loop(0, panels, unroll=False, hint="panel") as panel:
                unit = e.mul(panel, self._lanes)
                self._panel(number, phase, operand, e.element(weights, e.mul(panel, panel_size)), unit, time)
            start = e.add(start, gates)

    def _rounded(self, operand: IRValue) -> IRValue:
        """Emit the rounding of a state's rows, and return what products read in its place."""
        e, target = self._emitter, self._place(ROUNDED)
        with e.loop(self._low, self._high, unroll=False, hint="row") as row:
            at = e.mul(row, self._padded)
            e.call_void(ROUND, e.element(operand, at), self._given["hidden"], self._padded, e.element(target, at))
        return target

    def _panel(
        self, number: int, phase: Phase, operand: IRValue, weights: IRValue, unit: IRValue, time: IRValue
    ) -> None:
        """Emit one panel of units for all rows of the task, in tiles of falling heights."""
        e = self._emitter
        gates = len(phase.gates)
        at = e.variable("i64", self._low, "row")
        heights = byte_rows(gates, self._target) if self._cell.has_bytes else tile_rows(gates, self._target)
        for rows in heights:
            more = e.variable("i1", e.compare("sle", e.add(e.load("i64", at), rows), self._high))
            with e.repeat(more):
                row = e.load("i64", at)
                strip = e.element(operand, e.mul(row, self._padded))
                e.call_void(_tile_name(rows, gates), strip, self._padded, weights, self._depth, self._sums)
                with e.loop(0, integer(rows), unroll=False, hint="r") as r:
                    self._cell_units(number, phase, e.add(row, r), r, unit, time)
                e.store(e.add(row, rows), at)
                e.store(e.compare("sle", e.add(row, 2 * rows), self._high), more)

    def _cell_units(self, number: int, phase: Phase, row: IRValue, r: IRValue, unit: IRValue, time: IRValue) -> None:
        """Emit a vector of units of one row: sums and shares, through expressions, into states and results."""
        e, given, cell = self._emitter, self._given, self._cell
        gates = len(phase.gates)
        at = e.add(e.mul(row, self._padded), unit)
        share_row = e.add(e.mul(time, given["share_step"]), e.mul(row, given["share_row"]))
        share_row = e.add(share_row, e.mul(e.mul(self._direction, self._padded), cell.gates))
        active = e.compare("slt", time, self._length(row)) if cell.has_lengths else None
        loaded: dict[int, IRValue] = {}

        def read(index: int) -> IRValue:
            if index not in loaded:
                loaded[index] = load_vector(e, address(index), self._lanes)
            return loaded[index]

        def address(index: int) -> IRValue:
            if index >= VECTOR:
                return e.element(self._constants, e.add(e.mul(self._padded, index - VECTOR), unit))
            if index >= STATE:
                return e.element(self._place(index - STATE), at)
            if index >= SHARE:
                return e.element(given["shares"], e.add(e.add(share_row, e.mul(self._padded, index - SHARE)), unit))
            return e.element(self._sums, e.add(e.mul(r, gates * self._lanes), (index - SUM) * self._lanes))

        printer = ScalarPrinter(e, self._lanes, read)
        values = {state: printer.print(expression) for state, expression in phase.stores}
        for state, value in values.items():
            kept = value
            if active is not None and state in (NEXT, CELL):
                before = read(STATE + (HIDDEN if state == NEXT else CELL))
                kept = e.select(e.splat(active, self._lanes), value, before)
            store_vector(e, kept, e.element(self._place(state), at))
        if NEXT in values and cell.wanted[0]:
            self._result(values[NEXT], row, unit, time, active)

    def _result(self, value: IRValue, row: IRValue, unit: IRValue, time: IRValue, active: IRValue | None) -> None:
        e, given = self._emitter, self._given
        if active is not None:
            value = e.select(e.splat(active, self._lanes), value, zero(self._type))
        place = e.add(e.mul(time, given["result_step"]), e.mul(self._direction, given["result_direction"]))
        place = e.add(e.add(place, e.mul(row, given["result_row"])), unit)
        target = e.element(given["result"], place)
        left = e.sub(given["hidden"], unit)
        with e.either(e.compare("sge", left, self._lanes)) as branch:
            store_vector(e, value, target)
            with branch.otherwise():
                store_vector(e, value, target, lane_mask(e, left, self._lanes))
