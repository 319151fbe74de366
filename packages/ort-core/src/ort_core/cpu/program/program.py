"""NativeProgram: the steps of one lowered group as machine code, planned for each signature, run in one call.

Everything that does not depend on sizes is in its record: slots of the arena, positions of addresses, barriers. A
signature evaluates sizes and offsets into an argument table; a run copies nothing but the addresses of its inputs and
outputs into it.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn, Protocol

import numpy as np

from ort_core.cpu.program.output_memory import OutputMemory
from ort_core.cpu.program.sizes import ALIGNMENT, Types, arena_offsets, evaluate
from ort_core.cpu.threads.pool_code import ALL, ALONE, AWAKE, STEP_WORDS
from ort_core.plugin import environment_value, frozen
from ort_core.plugin.forks import new_lock
from ort_core.plugin.kernels import RunGuard, Unguarded, bound_outputs, may_stop

if TYPE_CHECKING:
    import numpy.typing as npt

    from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
    from ort_core.cpu.lowering.steps import Step
    from ort_core.cpu.program.program_record import ProgramRecord
    from ort_core.cpu.threads.pool import ThreadPool
    from ort_core.plugin.ir import Node, Value

StepObserver = Callable[[int, int, Mapping[str, int]], None]
UNGUARDED = Unguarded()
MAX_PLANS = 64
MAX_ARENAS = 8  # plans that keep memory between runs: the last used; a server sees hundreds of sequence lengths
KEPT_NBYTES = 1 << 20  # that more plans may keep together, one run of each counted: of a small program all do
MAX_STATES = 8  # kept per plan; more runs at once make states that are dropped again
PARALLEL_WORK = 30_000  # estimated work (10 us) below which sharing it costs more than it saves
TURN_WORK = 3_000_000  # estimated work (1 ms) between two questions whether to stop
WAKING_WORK = 500_000  # estimated work (150 us) below which one thread is done before others have been woken


class DataError(Exception):
    """A kernel was given data out of bounds; the reference kernels give the precise error."""


class SizesDiffer(Exception):
    """The inputs' sizes are not as the model declares them, or not as compiled code takes them to be.

    ``nodes`` are those whose code takes sizes to be equal that are not, as far as that is what differs.
    """

    def __init__(self, text: str, nodes: tuple[Node, ...] = ()) -> None:
        super().__init__(text)
        self.nodes = nodes


class StateMemory(Protocol):
    """The memory of a run state."""

    def write(self, places: Sequence[tuple[int, int]], address: int) -> None:
        """Write the address of data into words, with what each of them adds to it."""


@frozen
class BoundState:
    """A run state taken out of a plan, for a caller who runs its steps without Python.

    ``steps``, ``count`` and ``wanted`` are what the pool is to run, ``error`` the address of the word that says that
    data was out of bounds. For each input and output of the program: places in the argument table, as the address of a
    word and what to add there to the address of the data. ``holds_lock``: whether a run is over sooner than the
    interpreter lock changes hands. ``state`` owns all the memory.
    """

    state: StateMemory
    steps: int
    count: int
    wanted: int
    error: int
    inputs: tuple[tuple[tuple[int, int], ...], ...]
    outputs: tuple[tuple[tuple[int, int], ...], ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]
    nbytes: int  # that a run takes, outputs included, scratch of fixed sizes not
    in_place: Mapping[int, int]  # outputs that may be the very memory of an input, and of which
    memory: OutputMemory
    holds_lock: bool
    work: int = 0  # estimated, of a run; 0: nobody asks

    def write(self, places: Sequence[tuple[int, int]], address: int) -> None:
        """Say for good where the data of an input lies."""
        self.state.write(places, address)

    def take_error(self) -> bool:
        """Return whether data was out of bounds since this was asked last."""
        word = ctypes.c_int64.from_address(self.error)
        is_bad, word.value = bool(word.value), 0
        return is_bad


class NativeProgram:
    """A lowered group, ready to run from any thread.

    Args:
        record: what signatures are planned from.
        pool: the threads.
        modules: the machine code.
        kernels: for each step the number of its module and the name of its function.
        inputs: the values of the model that it reads; none of a program that was recalled.
        outputs: those that it computes.
        steps: what the steps compute, for reports; none of a program that was recalled.
        requirers: for each pair of sizes that must be equal the nodes that need it; none of a program that was
            recalled.
    """

    def __init__(
        self, record: ProgramRecord, pool: ThreadPool, modules: Sequence[CompiledModule],
        kernels: Sequence[tuple[int, str]], inputs: tuple[Value, ...] = (), outputs: tuple[Value, ...] = (),
        steps: tuple[Step, ...] = (), requirers: tuple[tuple[Node, ...], ...] = (),
    ) -> None:  # fmt: skip
        self.record = record
        self.requirers = requirers
        self.inputs, self.outputs, self.steps = inputs, outputs, steps
        self.kernels = tuple(kernels)
        self._pool = pool
        self._modules = tuple(modules)
        found = {kernel: modules[kernel[0]].address(kernel[1]) for kernel in set(kernels)}
        self._addresses = np.array([found[kernel] for kernel in kernels], np.int64)
        self._plans: OrderedDict[tuple[tuple[int, ...], ...], ProgramPlan] = OrderedDict()
        self._keeping: OrderedDict[ProgramPlan, None] = OrderedDict()  # with memory between runs, the last used last
        self._kept_nbytes = 0
        self._last: ProgramPlan | None = None
        self._lock = new_lock()
        self.memory = OutputMemory()

    def run(
        self, inputs: Sequence[np.ndarray], guard: RunGuard = UNGUARDED, observe: StepObserver | None = None, *,
        is_whole: bool = False,
    ) -> list[np.ndarray]:  # fmt: skip
        """Run once on arrays of the declared element types and return the outputs.

        Args:
            inputs: one array per input, C-contiguous.
            guard: asked before memory is taken, and, where it may stop the run, before each turn of its steps.
            observe: called behind every step with its number, its start in ns and the named sizes; the steps then
                run one by one.
            is_whole: whether nobody reads the inputs behind it: caches that the caller bound as input and output grow
                where they lie then.

        Raises:
            SizesDiffer: a size is not as declared.
            DataError: an index lies out of bounds.
            AllocationLimitExceeded: the program would take more memory than the guard allows.
            RunTerminated: the guard stopped the run; likewise RunTimeout.
        """
        signature = tuple([array.shape for array in inputs])
        plan = self._plans.get(signature)
        if plan is None:
            plan = self._plan(signature)
        guard.check_allocation(plan.nbytes, "a native program")
        check = guard.check if may_stop(guard) else None
        if guard.in_place and self.record.in_place:
            bound = bound_outputs(guard) if is_whole else {}
            return plan.run(*self._grown_caches(inputs, guard.in_place, bound), observe, check)
        return plan.run(inputs, {}, observe, check)

    def _grown_caches(
        self, inputs: Sequence[np.ndarray], in_place: frozenset[int], bound: Mapping[str, int]
    ) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
        """Return the inputs and some outputs, with one array as both for each cache that the caller bound as both.

        That is the caller's where ``bound`` says that this very output is to be there, else a copy. What lies behind
        the rows of a cache stays in it.
        """
        arrays, given = list(inputs), {}
        for output, index in self.record.in_place.items():
            address = inputs[index].ctypes.data
            if address not in in_place:
                continue
            is_own = bound.get(self.record.outputs[output]) == address and inputs[index].flags.writeable
            given[output] = arrays[index] = inputs[index] if is_own else inputs[index].copy()
        return arrays, given

    def __str__(self) -> str:
        from ort_core.cpu.program.program_text import program_text  # for people, by no run

        return program_text(self)

    @property
    def pool(self) -> ThreadPool:
        """The threads that run this."""
        return self._pool

    @property
    def entry_points(self) -> tuple[int, int]:
        """What runs the steps of a run state: ``ort_pool_run`` and the pool."""
        return self._pool.entry_points

    @property
    def modules(self) -> tuple[CompiledModule, ...]:
        """The machine code."""
        return self._modules

    @property
    def addresses(self) -> npt.NDArray[np.int64]:
        """Where the kernel of each step lies."""
        return self._addresses

    @property
    def input_dtypes(self) -> tuple[np.dtype, ...]:
        """numpy's element types of the inputs."""
        return tuple(dtype.numpy for dtype, _ in self.record.input_types)

    def bind(self, signature: tuple[tuple[int, ...], ...]) -> BoundState | None:
        """Return a run state of its own for a caller who runs it natively; ``None`` for a signature never run."""
        plan = self._plans.get(signature)
        return None if plan is None else plan.bind()

    def find_plan(self, signature: tuple[tuple[int, ...], ...]) -> ProgramPlan | None:
        """Return the plan of a signature that was run and is not forgotten."""
        return self._plans.get(signature)

    def bound(self, signature: tuple[tuple[int, ...], ...]) -> BoundState:
        """Return a run state of its own for a caller who runs it natively, for any signature.

        Raises:
            SizesDiffer: a size is not as declared.
        """
        return (self._plans.get(signature) or self._plan(signature)).bind()

    def _plan(self, signature: tuple[tuple[int, ...], ...]) -> ProgramPlan:
        try:
            plan = ProgramPlan(self, self._bind(signature))
        except OverflowError as error:
            raise SizesDiffer("a size needs more than 64 bits") from error
        with self._lock:
            self._plans[signature] = plan
            if len(self._plans) > MAX_PLANS:
                oldest = self._plans.popitem(last=False)[1]
                if oldest in self._keeping:
                    del self._keeping[oldest]
                    self._kept_nbytes -= oldest.kept_nbytes
        return plan

    def note_use(self, plan: ProgramPlan) -> None:
        """Let a plan that was run keep its memory, and those whose runs are the longest ago give their own back."""
        if plan is self._last:
            return
        with self._lock:
            self._last = plan
            if plan not in self._keeping:
                self._keeping[plan] = None
                self._kept_nbytes += plan.kept_nbytes
            self._keeping.move_to_end(plan)
            while len(self._keeping) > MAX_ARENAS and self._kept_nbytes > KEPT_NBYTES:
                oldest, _ = self._keeping.popitem(last=False)
                self._kept_nbytes -= oldest.kept_nbytes
                oldest.release()

    def _bind(self, signature: tuple[tuple[int, ...], ...]) -> dict[str, int]:
        record = self.record
        for shape, (_, declared) in zip(signature, record.input_types, strict=True):
            if len(shape) != len(declared):
                raise SizesDiffer(f"rank {len(shape)} where {len(declared)} is declared")
        sizes: dict[str, int] = {}
        try:
            for binding in record.bindings:
                sizes[binding.atom] = binding.solve(signature[binding.index][binding.axis], sizes)
            found = [size for shape in signature for size in shape]
            if record.declared.evaluate(sizes) != found + [0] * len(record.equal):
                self._explain(signature, sizes)
        except ZeroDivisionError as error:
            raise SizesDiffer("a size divides by zero") from error
        return sizes

    def _explain(self, signature: tuple[tuple[int, ...], ...], sizes: Mapping[str, int]) -> NoReturn:
        for shape, (_, declared) in zip(signature, self.record.input_types, strict=True):
            for size, expected in zip(shape, declared, strict=True):
                if size != evaluate(expected, sizes):
                    raise SizesDiffer(f"size {size} where {expected} is declared")
        pairs = [(evaluate(left, sizes), evaluate(right, sizes)) for left, right in self.record.equal]
        broken = [number for number, (left, right) in enumerate(pairs) if left != right]
        needing = [self.requirers[number] for number in broken] if self.requirers else []
        left, right = self.record.equal[broken[0]]
        found, other = pairs[broken[0]]
        raise SizesDiffer(
            f"{left} is not {right} ({found} and {other})", tuple(dict.fromkeys(itertools.chain(*needing)))
        )


class ProgramPlan:
    """One signature: evaluated sizes, and run states to reuse.

    ``work`` and ``flags`` are those of each step; ``is_alone`` says that one thread runs them all.
    """

    def __init__(self, program: NativeProgram, sizes: Mapping[str, int]) -> None:
        record = program.record
        table, relocations, count = record.sizes.table(sizes), record.relocations, record.argument_count
        values = table[count:].tolist()
        if min(values, default=0) < 0:
            raise SizesDiffer("a size is negative")
        self._program = program
        self.sizes = sizes
        self._template = table[:count]
        self._template[relocations.constants] += relocations.constant_addresses
        slot_sizes = values[: record.outputs_at - count]
        threads, work_at = program._pool.num_threads, record.work_at - count
        self._offsets, self._arena_nbytes = arena_offsets(slot_sizes, record.per_thread, threads)
        self._shapes = _split_shapes(values[record.outputs_at - count : work_at], record.output_types)
        self._dtypes = [dtype.numpy for dtype, _ in record.output_types]
        output_nbytes = sum(math.prod(s) * d.itemsize for s, d in zip(self._shapes, self._dtypes, strict=True))
        counted = [0 if fixed else size for size, fixed in zip(slot_sizes, record.fixed, strict=True)]
        self.nbytes = arena_offsets(counted, record.per_thread, threads)[1] + output_nbytes
        pieces_at = work_at + len(program.kernels)
        self.work = values[work_at:pieces_at]
        are_cut = bool(environment_value("ORT_STEP_PIECES"))
        self._wanted = ALL if are_cut else _wanted_threads(sum(self.work))
        self.is_alone = self._wanted == ALONE or (threads == 1 and not are_cut)  # then nobody meets anybody
        self.flags = (
            np.zeros(len(program.kernels), np.int64)
            if self.is_alone
            else record.order.flags(table[record.work_at : count + pieces_at], threads, values[pieces_at:])
        )
        self._fewest_given = len(self._shapes) + 1
        self._inputs, self._outputs, self._errors = relocations.inputs, relocations.outputs, relocations.errors
        self._given, self._given_numbers = relocations.given, relocations.given_numbers
        self._given_offsets = self._template[relocations.given]
        self._arena = (relocations.arena, np.array(self._offsets, np.int64)[relocations.arena_slots])
        self._states: deque[_ProgramRunState] = deque()
        self.kept_nbytes = self._arena_nbytes + self._template.nbytes + self.flags.nbytes * STEP_WORDS

    @functools.cached_property
    def turns(self) -> list[tuple[int, int]]:
        """The first step and the number of steps of each turn of a run that may be stopped."""
        starts, done = [0], 0
        for number, work in enumerate(self.work):
            if done >= TURN_WORK:
                starts.append(number)
                done = 0
            done += work
        return [(start, stop - start) for start, stop in itertools.pairwise([*starts, len(self.work)])]

    def run(
        self, inputs: Sequence[np.ndarray], given: Mapping[int, np.ndarray], observe: StepObserver | None,
        check: Callable[[], None] | None,
    ) -> list[np.ndarray]:  # fmt: skip
        """Run once; ``given`` is memory for outputs by number, taken where it fits; ``check`` may stop the run."""
        outputs = self._outputs_of_run(given)
        try:
            state = self._states.popleft()
        except IndexError:
            state = _ProgramRunState(self)
        state.run(inputs, outputs, observe, check)
        if len(self._states) < MAX_STATES:
            self._states.append(state)
            self._program.note_use(self)
        return outputs

    def _outputs_of_run(self, given: Mapping[int, np.ndarray]) -> list[np.ndarray]:
        """Return the memory of the outputs: what is given, where it fits, and the rest as it is kept for later runs."""
        memory = self._program.memory
        if not given:
            if self._fewest_given:
                self._fewest_given = 0
                memory.keep(zip(self._shapes, self._dtypes, strict=True))
            return [memory.empty(shape, dtype) for shape, dtype in zip(self._shapes, self._dtypes, strict=True)]
        wanted = list(enumerate(zip(self._shapes, self._dtypes, strict=True)))
        taken = {number: given[number] for number, (shape, dtype) in wanted if _fits(given.get(number), shape, dtype)}
        if len(taken) < self._fewest_given:  # caches that grow where they lie are no memory that a run takes
            self._fewest_given = len(taken)
            memory.keep(each for number, each in wanted if number not in taken)
        return [taken[number] if number in taken else memory.empty(*each) for number, each in wanted]

    def bind(self) -> BoundState:
        """Take a run state out of the pool, or make one."""
        if self._fewest_given > len(self._shapes):  # nobody ran it before, who would have shown which outputs are given
            self._program.memory.keep(zip(self._shapes, self._dtypes, strict=True))
        try:
            state = self._states.popleft()
        except IndexError:
            state = _ProgramRunState(self)
        outputs = tuple(tuple(place for group in groups for place in state.places(group)) for groups in self._outputs)
        return BoundState(
            state, state.steps_address, len(self._program.kernels), self._wanted, state.error_address,
            tuple(state.places(positions) for positions in self._inputs), outputs, tuple(self._shapes),
            tuple(self._dtypes), self.nbytes, self._program.record.in_place, self._program.memory,
            self._wanted == ALONE, sum(self.work),
        )  # fmt: skip

    def release(self) -> None:
        """Give the memory of idle runs back; the next run takes some anew."""
        self._states.clear()


class _ProgramRunState:
    """The argument table, step table and arena of one run; reused by later runs of the same plan."""

    def __init__(self, plan: ProgramPlan) -> None:
        program, words = plan._program, len(plan._template)
        self._plan = plan
        self._memory = np.empty(plan._arena_nbytes + ALIGNMENT, np.uint8)
        base = -(-self._memory.ctypes.data // ALIGNMENT) * ALIGNMENT
        self._count = len(program.kernels)
        own = np.empty(words + self._count * STEP_WORDS + 1, np.int64)  # the table, the steps, the word for errors
        start = own.ctypes.data
        self._table, self._error = own[:words], own[-1:]
        self._steps_address, self._error_address = start + 8 * words, start + 8 * (len(own) - 1)
        self._table[:] = plan._template
        positions, offsets = plan._arena
        self._table[positions] += base + offsets
        self._table[plan._errors] = self._error_address
        self._error[0] = 0
        steps = own[words:-1].reshape(-1, STEP_WORDS)
        steps[:, 0] = program._addresses
        steps[:, 1] = start + program.record.starts
        steps[:, 2] = plan.flags
        steps[:, 3] = 0

    @property
    def steps_address(self) -> int:
        """Where the step table lies."""
        return self._steps_address

    @property
    def error_address(self) -> int:
        """Where kernels say that data was out of bounds."""
        return self._error_address

    def take_error(self) -> bool:
        """Return whether data was out of bounds since this was asked last."""
        is_bad, self._error[0] = bool(self._error[0]), 0
        return is_bad

    def places(self, positions: np.ndarray) -> tuple[tuple[int, int], ...]:
        """Return the addresses of words of the argument table, and what they add to the address of their data."""
        start = self._table.ctypes.data
        return tuple((start + 8 * int(position), int(self._plan._template[position])) for position in positions)

    def write(self, places: Sequence[tuple[int, int]], address: int) -> None:
        """Write the address of data into words of the argument table."""
        start = self._table.ctypes.data
        for place, offset in places:
            self._table[(place - start) // 8] = address + offset

    def run(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], observe: StepObserver | None,
        check: Callable[[], None] | None,
    ) -> None:  # fmt: skip
        plan = self._plan
        addresses = [array.__array_interface__["data"][0] for array in itertools.chain(inputs, outputs)]
        self._table[plan._given] = np.array(addresses, np.int64)[plan._given_numbers] + plan._given_offsets
        pool = plan._program._pool
        if observe is not None:
            for number in range(self._count):
                if check is not None:
                    check()
                start = time.perf_counter_ns()
                pool.run(self._steps_address + number * 8 * STEP_WORDS, 1, plan._wanted)
                observe(number, start, plan.sizes)
        elif check is not None:
            for number, count in plan.turns:
                check()
                pool.run(self._steps_address + number * 8 * STEP_WORDS, count, plan._wanted)
        else:
            pool.run(self._steps_address, self._count, plan._wanted)
        if self.take_error():
            raise DataError("an index lies out of bounds")


def _fits(array: np.ndarray | None, shape: tuple[int, ...], dtype: np.dtype) -> bool:
    return array is not None and (array.shape, array.dtype) == (shape, dtype)


def _wanted_threads(work: int) -> int:
    if work < PARALLEL_WORK:
        return ALONE
    return AWAKE if work < WAKING_WORK else ALL


def _split_shapes(values: Sequence[int], types: Types) -> list[tuple[int, ...]]:
    shapes, at = [], 0
    for _, shape in types:
        shapes.append(tuple(values[at : at + len(shape)]))
        at += len(shape)
    return shapes
