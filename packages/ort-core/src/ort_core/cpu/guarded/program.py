"""GuardedProgram: a native program whose runs are each made twice, on guarded memory.

Every slot of the arena, every thread's scratch memory, every input, output, constant and argument table lies against a
page that cannot be touched; inputs and constants cannot be written. All else is filled with a pattern before a run.
The second run has another pattern and another order of threads: where its outputs have other bits, a kernel read what
nobody had written. Kernels are called one at a time, by this thread, so that a touch names its step.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING

import numpy as np

from ort_core.cpu.guarded.mode import GuardedMode, GuardViolation
from ort_core.cpu.guarded.region import GuardedRegion, Part
from ort_core.cpu.guarded.schedule import calls
from ort_core.cpu.program.program import UNGUARDED, BoundState, DataError, NativeProgram, StepObserver
from ort_core.cpu.threads.pool_code import ALONE

if TYPE_CHECKING:
    from ort_core.cpu.program.program import ProgramPlan
    from ort_core.plugin.kernels import RunGuard

PATTERNS = (0xFF, 0x55)  # as floats of any size: not a number; 1.5e13 and the like. As integers -1; 0x5555…
_Kernel = Callable[[int, int, int, int], None]


class GuardedProgram(NativeProgram):
    """A program that runs guarded; it offers no direct calls, whose inputs and outputs are other people's memory.

    Its record must come from ``Slots`` that share nothing.
    """

    mode = GuardedMode.END
    _kernels: tuple[_Kernel, ...] = ()
    _constants: GuardedRegion | None = None

    def run(
        self, inputs: Sequence[np.ndarray], guard: RunGuard = UNGUARDED, observe: StepObserver | None = None, *,
        is_whole: bool = False,
    ) -> list[np.ndarray]:  # fmt: skip
        """Run twice on arrays of the declared element types and return the outputs of the first run.

        Raises:
            SizesDiffer, DataError, AllocationLimitExceeded: as ``NativeProgram.run``.
            GuardViolation: memory was read before anybody wrote it, or written beside a buffer.
        """
        signature = tuple([array.shape for array in inputs])
        plan = self._plans.get(signature) or self._plan(signature)
        guard.check_allocation(plan.nbytes, "a native program")
        found = [
            _GuardedRun(self, plan, inputs, pattern, backwards=number == 1).results(observe if number == 0 else None)
            for number, pattern in enumerate(PATTERNS)
        ]
        first, second = found
        if first is None or second is None:
            if first is not second:
                raise GuardViolation(f"{self._name}: whether an index is out of bounds depends on memory nobody wrote")
            raise DataError("an index lies out of bounds")
        self._compare(first, second)
        return first

    def bind(self, signature: tuple[tuple[int, ...], ...]) -> BoundState | None:
        """Return ``None``: every run is a guarded one."""
        return None

    @property
    def kernels_by_step(self) -> tuple[_Kernel, ...]:
        """A function for each step; its name, which ``faulthandler`` shows, says which step it is."""
        if not self._kernels:
            self._kernels = tuple(
                _named(f"step {number} of {len(self.kernels)}, kernel {name}{self._computes(number)}", int(address))
                for number, ((_, name), address) in enumerate(zip(self.kernels, self._addresses, strict=True))
            )
        return self._kernels

    @property
    def constants(self) -> GuardedRegion:
        """The constants, each guarded."""
        if self._constants is None:
            arrays = self.record.relocations.arrays
            region = GuardedRegion([Part(array.nbytes) for array in arrays], self.mode)
            for number, array in enumerate(arrays):
                region.fill(number, PATTERNS[0])
                region.bytes_of(number)[...] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                region.let_read_only(number)
            self._constants = region
        return self._constants

    @property
    def _name(self) -> str:
        names = ", ".join(self.record.outputs[:4])
        return f"the native program of {names}"

    def _computes(self, number: int) -> str:
        operators = [each for step in self.steps[number : number + 1] for each in step.operators]
        nodes = [each if isinstance(each, str) else each.op_type for each in operators]
        return f": {'+'.join(nodes)}" if nodes else ""

    def _compare(self, first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> None:
        for name, one, other in zip(self.record.outputs, first, second, strict=True):
            same = one.reshape(-1).view(np.uint8) == other.reshape(-1).view(np.uint8)
            if not same.all():
                where = int(np.argmin(same)) // one.itemsize
                raise GuardViolation(
                    f"{self._name}: {np.count_nonzero(~same)} bytes of output {name!r} {one.shape} depend on memory "
                    f"that nobody wrote, or on the order of threads; element {where} is {one.reshape(-1)[where]} with "
                    f"the pattern {PATTERNS[0]:#x} and {other.reshape(-1)[where]} with {PATTERNS[1]:#x}"
                )


class _GuardedRun:
    """One run of a plan: its memory, and argument tables for each thread."""

    def __init__(
        self, program: GuardedProgram, plan: ProgramPlan, inputs: Sequence[np.ndarray], pattern: int, *, backwards: bool
    ) -> None:
        self._program, self._plan, self._backwards = program, plan, backwards
        self._constants = program.constants  # kept: two first runs at once make them twice, and one pair stays
        record = program.record
        self._threads = 1 if plan._wanted == ALONE else program.pool.num_threads
        words = record.sizes.table(plan.sizes)
        self._table = words[: record.argument_count]
        self._slots = _Slots(
            words[record.argument_count : record.outputs_at].tolist(), record.per_thread, self._threads
        )
        self._starts = (record.starts // 8).tolist()
        self._ends = [*self._starts[1:], record.argument_count][: len(self._starts)]  # none of a program without steps
        self._outputs_of = [np.empty(s, d) for s, d in zip(plan._shapes, plan._dtypes, strict=True)]
        longest = max((end - start for start, end in zip(self._starts, self._ends, strict=True)), default=0)
        sizes = [*(array.nbytes for array in inputs), *(array.nbytes for array in self._outputs_of), 8, 8 * longest]
        self._first_slot, self._inputs = len(sizes), len(inputs)
        self._region = GuardedRegion([Part(size) for size in (*sizes, *self._slots.nbytes)], program.mode)
        self._error, self._arguments = self._first_slot - 2, self._first_slot - 1
        for number in range(len(sizes) + len(self._slots.nbytes)):
            self._region.fill(number, pattern)
        self._region.bytes_of(self._error)[...] = 0
        for number, array in enumerate(inputs):
            if not array.dtype.hasobject:  # of text the shape alone is read
                self._region.bytes_of(number)[...] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self._region.let_read_only(number)
        self._tables = [self._table_of(thread) for thread in range(self._threads)]

    def results(self, observe: StepObserver | None) -> list[np.ndarray] | None:
        """Run all steps; return the outputs, ``None`` where data was out of bounds."""
        kernels = self._program.kernels_by_step
        flags = self._plan.flags.tolist()
        for call in calls(flags, self._threads, backwards=self._backwards):
            begin = time.perf_counter_ns()
            kernels[call.step](self._written(call.step, call.thread), call.piece, call.pieces, call.thread)
            if observe is not None and call.piece == call.pieces - 1:
                observe(call.step, begin, self._plan.sizes)
        self._check_beside()
        if self._region.bytes_of(self._error).any():
            return None
        for number, array in enumerate(self._outputs_of):
            array.reshape(-1).view(np.uint8)[...] = self._region.bytes_of(self._inputs + number)
        return self._outputs_of

    def _table_of(self, thread: int) -> np.ndarray:
        """Return the argument table, in which scratch memory is where this thread finds its own."""
        relocations, table = self._program.record.relocations, self._table.copy()
        addresses = self._region.addresses
        constants = np.array(self._constants.addresses, np.int64)
        table[relocations.constants] += constants[relocations.constant_numbers]
        for number, positions in enumerate(relocations.inputs):
            table[positions] += addresses[number]
        for number, groups in enumerate(relocations.outputs):
            for positions in groups:
                table[positions] += addresses[self._inputs + number]
        table[relocations.errors] = addresses[self._error]
        bases = np.array(self._slots.bases(addresses[self._first_slot :], thread), np.int64)
        table[relocations.arena] += bases[relocations.arena_slots]
        return table

    def _written(self, step: int, thread: int) -> int:
        """Write a step's arguments against the page that ends (or begins) them; return their address."""
        start, end = self._starts[step], self._ends[step]
        words = self._region.bytes_of(self._arguments).view(np.int64)
        at = len(words) - (end - start) if self._program.mode is GuardedMode.END else 0
        words[at : at + end - start] = self._tables[thread][start:end]
        return self._region.addresses[self._arguments] + 8 * at

    def _check_beside(self) -> None:
        for number in range(self._inputs, self._first_slot + len(self._slots.nbytes)):
            found = self._region.changed_beside(number)
            if found is not None:
                raise GuardViolation(f"{self._program._name}: byte {found} of {self._described(number)} was written")

    def _described(self, number: int) -> str:
        if number >= self._first_slot:
            return self._slots.described(number - self._first_slot)
        if number >= self._error:
            return "the word for errors, of 8 bytes" if number == self._error else "an argument table"
        output = self._outputs_of[number - self._inputs]
        return f"output {self._program.record.outputs[number - self._inputs]!r}, of {output.nbytes} bytes"


class _Slots:
    """Slots of the arena as buffers: one for each, one for each thread where threads have their own."""

    def __init__(self, nbytes: Sequence[int], per_thread: Sequence[bool], threads: int) -> None:
        self._of = list(zip(nbytes, per_thread, strict=True))
        self.nbytes: list[int] = []
        self._first: list[int] = []
        for size, each in self._of:
            self._first.append(len(self.nbytes))
            self.nbytes.extend([size] * (threads if each else 1))

    def bases(self, addresses: Sequence[int], thread: int) -> list[int]:
        """Return what the argument table of a thread counts from: kernels add ``thread`` times the size themselves."""
        return [
            addresses[first + thread] - thread * size if each else addresses[first]
            for first, (size, each) in zip(self._first, self._of, strict=True)
        ]

    def described(self, number: int) -> str:
        """Return a buffer in words."""
        slot = max(index for index, first in enumerate(self._first) if first <= number)
        size, each = self._of[slot]
        return f"slot {slot}{f' of thread {number - self._first[slot]}' if each else ''}, of {size} bytes"


def _named(name: str, address: int) -> _Kernel:
    """Return a kernel as a function of that name."""
    word = ctypes.c_int64
    native = ctypes.CFUNCTYPE(None, ctypes.c_void_p, word, word, word)(address)

    def call(arguments: int, piece: int, pieces: int, thread: int) -> None:
        native(arguments, piece, pieces, thread)

    code = call.__code__.replace(co_name=name, co_qualname=name)
    return FunctionType(code, globals(), name, closure=call.__closure__)
