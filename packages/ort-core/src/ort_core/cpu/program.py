"""NativeProgram: the steps of one lowered group as machine code, planned for each signature, run in one call.

Everything that does not depend on sizes is decided when the program is built: kernels, slots of the arena, barriers. A
signature evaluates sizes and offsets into an argument table; a run copies nothing but the addresses of its inputs and
outputs into it.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from ort_core.cpu.codegen.code_cache import compiled, compiled_joined, compiled_late
from ort_core.cpu.codegen.emitter import Emitter, module_text
from ort_core.cpu.codegen.jit import CompiledModule, Target
from ort_core.cpu.codegen.late_text import LateText
from ort_core.cpu.in_place import in_place_outputs
from ort_core.cpu.lowering.lowering import Lowering, stored_type, tensor_type
from ort_core.cpu.lowering.steps import NotLowered, Pointer, Step
from ort_core.cpu.lowering.views import Buffer, Place
from ort_core.cpu.order import StepOrder
from ort_core.cpu.output_memory import OutputMemory
from ort_core.cpu.placement import Placement
from ort_core.cpu.sizes import SizeProgram, bindings, evaluate, is_bound
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.cpu.threads.pool_code import ALL, ALONE, AWAKE, STEP_WORDS
from ort_core.plugin.ir import DataType, KnownDim, Node, SymbolicDim, TensorType, Value
from ort_core.plugin.kernels import RunGuard, Unguarded

StepObserver = Callable[[int, int, Mapping[str, int]], None]
UNGUARDED = Unguarded()
ALIGNMENT = 64
MAX_PLANS = 64
MAX_ARENAS = 8  # plans that keep memory between runs: the newest; a server sees hundreds of sequence lengths
MAX_STATES = 8  # kept per plan; more runs at once make states that are dropped again
PARALLEL_WORK = 30_000  # estimated work (10 us) below which sharing it costs more than it saves
WAKING_WORK = 500_000  # estimated work (150 us) below which one thread is done before others have been woken


class DataError(Exception):
    """A kernel was given data out of bounds; the reference kernels give the precise error."""


LARGEST_SIZE = 1 << 58  # bytes or elements; beyond it products of sizes leave 64 bits


class SizesDiffer(Exception):
    """The inputs' sizes are not as the model declares them."""


@dataclass(frozen=True, slots=True)
class BoundState:
    """A run state taken out of a plan, for a caller who runs its steps without Python.

    ``steps``, ``count`` and ``wanted`` are what the pool is to run, ``error`` the address of the word that says that
    data was out of bounds. For each input and output of the program: places in the argument table, as the address of a
    word and what to add there to the address of the data. ``state`` owns all the memory.
    """

    state: _ProgramRunState
    steps: int
    count: int
    wanted: int
    error: int
    inputs: tuple[tuple[tuple[int, int], ...], ...]
    outputs: tuple[tuple[tuple[int, int], ...], ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]
    nbytes: int  # that a run takes, outputs included
    in_place: Mapping[int, int]  # outputs that may be the very memory of an input, and of which

    def write(self, places: Sequence[tuple[int, int]], address: int) -> None:
        """Say for good where the data of an input lies."""
        self.state.write(places, address)


class NativeProgram:
    """A lowered group, ready to run from any thread.

    Args:
        lowering: a finished lowering.
        pool: the threads.
    """

    def __init__(self, lowering: Lowering, pool: ThreadPool) -> None:
        self.inputs: tuple[Value, ...] = tuple(lowering.inputs)
        self.outputs: tuple[Value, ...] = tuple(lowering.outputs)
        self.steps: tuple[Step, ...] = tuple(lowering.steps)
        self._pool = pool
        self._modules, self._addresses = _compile(lowering, lowering.target)
        self._types = [stored_type(value) for value in self.inputs]
        self._out_types = [stored_type(value) for value in self.outputs]
        self._bindings = bindings(self._types)
        self._equal = tuple(lowering.equal)
        self._slots = _Slots(self.steps)
        self._order = StepOrder(self.steps, self._slots.find)
        self._sizes, self._layout = self._argument_layout()
        self._starts = 8 * np.array(self._layout.starts, np.int64)
        self._placement = Placement(self._layout.buffers, self._slots.of, len(self.inputs), len(self.outputs))
        self._declared = SizeProgram(
            [size for _, shape in self._types for size in shape] + [left - right for left, right in self._equal],
            [binding.atom for binding in self._bindings],
        )
        self.in_place = in_place_outputs(self.steps)
        self._plans: OrderedDict[tuple[tuple[int, ...], ...], ProgramPlan] = OrderedDict()
        self._lock = threading.Lock()
        self.memory = OutputMemory()

    def run(
        self, inputs: Sequence[np.ndarray], guard: RunGuard = UNGUARDED, observe: StepObserver | None = None
    ) -> list[np.ndarray]:
        """Run once on arrays of the declared element types and return the outputs.

        Args:
            inputs: one array per input, C-contiguous.
            guard: asked before memory is taken.
            observe: called behind every step with its number, its start in ns and the named sizes; the steps then
                run one by one.

        Raises:
            SizesDiffer: a size is not as declared.
            DataError: an index lies out of bounds.
            AllocationLimitExceeded: the program would take more memory than the guard allows.
        """
        signature = tuple([array.shape for array in inputs])
        plan = self._plans.get(signature)
        if plan is None:
            plan = self._plan(signature)
        guard.check_allocation(plan.nbytes, "a native program")
        return plan.run(inputs, observe)

    @property
    def pool(self) -> ThreadPool:
        """The threads that run this."""
        return self._pool

    @property
    def modules(self) -> tuple[CompiledModule, ...]:
        """The machine code."""
        return tuple(self._modules)

    @property
    def input_dtypes(self) -> tuple[np.dtype, ...]:
        """numpy's element types of the inputs."""
        return tuple(dtype.numpy for dtype, _ in self._types)

    def bind(self, signature: tuple[tuple[int, ...], ...]) -> BoundState | None:
        """Return a run state of its own for a caller who runs it natively; ``None`` for a signature never run."""
        plan = self._plans.get(signature)
        return None if plan is None else plan.bind()

    def _plan(self, signature: tuple[tuple[int, ...], ...]) -> ProgramPlan:
        try:
            plan = ProgramPlan(self, self._bind(signature))
        except OverflowError as error:
            raise SizesDiffer("a size needs more than 64 bits") from error
        with self._lock:
            self._plans[signature] = plan
            if len(self._plans) > MAX_PLANS:
                self._plans.popitem(last=False)
            for older in list(self._plans.values())[:-MAX_ARENAS]:
                older.release()
        return plan

    def _bind(self, signature: tuple[tuple[int, ...], ...]) -> dict[str, int]:
        for shape, (_, declared) in zip(signature, self._types, strict=True):
            if len(shape) != len(declared):
                raise SizesDiffer(f"rank {len(shape)} where {len(declared)} is declared")
        sizes: dict[str, int] = {}
        try:
            for binding in self._bindings:
                sizes[binding.atom] = binding.solve(signature[binding.index][binding.axis], sizes)
            found = [size for shape in signature for size in shape]
            if self._declared.evaluate(sizes) != found + [0] * len(self._equal):
                self._explain(signature, sizes)
        except ZeroDivisionError as error:
            raise SizesDiffer("a size divides by zero") from error
        return sizes

    def _explain(self, signature: tuple[tuple[int, ...], ...], sizes: Mapping[str, int]) -> NoReturn:
        for shape, (_, declared) in zip(signature, self._types, strict=True):
            for size, expected in zip(shape, declared, strict=True):
                if size != evaluate(expected, sizes):
                    raise SizesDiffer(f"size {size} where {expected} is declared")
        left, right = next(pair for pair in self._equal if evaluate(pair[0], sizes) != evaluate(pair[1], sizes))
        raise SizesDiffer(f"{left} is not {right}")

    def _argument_layout(self) -> tuple[SizeProgram, _Layout]:
        dims: list[KnownDim] = []
        layout = _Layout()
        for step in self.steps:
            layout.starts.append(len(dims))
            for argument in step.arguments:
                if isinstance(argument, Pointer):
                    layout.add(len(dims), argument.buffer)
                    dims.append(argument.offset * argument.buffer.itemsize)
                else:
                    dims.append(argument)
        layout.count = len(dims)
        layout.slots_at = len(dims)
        dims.extend(self._slots.nbytes)
        layout.outputs_at = len(dims)
        for _, shape in self._out_types:
            dims.extend(shape)
        layout.work_at = len(dims)
        dims.extend(step.work for step in self.steps)
        return SizeProgram(dims, [binding.atom for binding in self._bindings]), layout


class _Layout:
    """Positions in the argument table, by the base that addresses are counted from."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.count = 0
        self.slots_at = self.outputs_at = self.work_at = 0
        self.buffers: dict[Buffer, list[int]] = {}

    def add(self, position: int, buffer: Buffer) -> None:
        self.buffers.setdefault(buffer, []).append(position)


class ProgramPlan:
    """One signature: evaluated sizes, and run states to reuse."""

    def __init__(self, program: NativeProgram, sizes: Mapping[str, int]) -> None:
        table = program._sizes.table(sizes)
        values, layout, placement = table.tolist(), program._layout, program._placement
        if min(values[layout.slots_at :], default=0) < 0:
            raise SizesDiffer("a size is negative")
        self._program = program
        self.sizes = sizes
        self._template = table[: layout.count]
        self._template[placement.constants] += placement.constant_addresses
        slot_sizes = values[layout.slots_at : layout.outputs_at]
        self._offsets, self._arena_nbytes = _cumulative(
            slot_sizes, program._slots.per_thread, program._pool.num_threads
        )
        self._shapes = _split_shapes(values[layout.outputs_at : layout.work_at], program._out_types)
        self._dtypes = [dtype.numpy for dtype, _ in program._out_types]
        output_nbytes = sum(math.prod(s) * d.itemsize for s, d in zip(self._shapes, self._dtypes, strict=True))
        self.nbytes = self._arena_nbytes + output_nbytes
        work = values[layout.work_at :]
        self._wanted = _wanted_threads(sum(work))
        self._flags = program._order.flags(work)
        program.memory.keep(output_nbytes)
        self._inputs, self._outputs, self._errors = placement.inputs, placement.outputs, placement.errors
        self._arena = (placement.arena, np.array(self._offsets, np.int64)[placement.arena_slots])
        self._states: deque[_ProgramRunState] = deque()

    def run(self, inputs: Sequence[np.ndarray], observe: StepObserver | None) -> list[np.ndarray]:
        """Run once."""
        empty = self._program.memory.empty
        outputs = [empty(shape, dtype) for shape, dtype in zip(self._shapes, self._dtypes, strict=True)]
        try:
            state = self._states.popleft()
        except IndexError:
            state = _ProgramRunState(self)
        state.run(inputs, outputs, observe)
        if len(self._states) < MAX_STATES:
            self._states.append(state)
        return outputs

    def bind(self) -> BoundState:
        """Take a run state out of the pool, or make one."""
        try:
            state = self._states.popleft()
        except IndexError:
            state = _ProgramRunState(self)
        outputs = tuple(tuple(place for group in groups for place in state.places(group)) for groups in self._outputs)
        return BoundState(
            state, state.steps_address, len(self._program.steps), self._wanted, state.error_address,
            tuple(state.places(positions) for positions in self._inputs), outputs, tuple(self._shapes),
            tuple(self._dtypes), self.nbytes, self._program.in_place,
        )  # fmt: skip

    def release(self) -> None:
        """Give the memory of idle runs back; the next run takes some anew."""
        self._states.clear()


class _ProgramRunState:
    """The argument table, step table and arena of one run; reused by later runs of the same plan."""

    def __init__(self, plan: ProgramPlan) -> None:
        program = plan._program
        self._plan = plan
        self._memory = np.empty(plan._arena_nbytes + ALIGNMENT, np.uint8)
        base = -(-self._memory.ctypes.data // ALIGNMENT) * ALIGNMENT
        self._error = np.zeros(1, np.int64)
        self._table = plan._template.copy()
        positions, offsets = plan._arena
        self._table[positions] += base + offsets
        self._table[plan._errors] = self._error.ctypes.data
        start = self._table.ctypes.data
        steps = np.empty((len(program.steps), STEP_WORDS), np.int64)
        steps[:, 0] = program._addresses
        steps[:, 1] = start + program._starts
        steps[:, 2] = plan._flags
        self._steps = steps
        self._steps_address = steps.ctypes.data
        self._count = len(program.steps)

    @property
    def steps_address(self) -> int:
        """Where the step table lies."""
        return int(self._steps_address)

    @property
    def error_address(self) -> int:
        """Where kernels say that data was out of bounds."""
        return int(self._error.ctypes.data)

    def places(self, positions: np.ndarray) -> tuple[tuple[int, int], ...]:
        """Return the addresses of words of the argument table, and what they add to the address of their data."""
        start = self._table.ctypes.data
        return tuple((start + 8 * int(position), int(self._plan._template[position])) for position in positions)

    def write(self, places: Sequence[tuple[int, int]], address: int) -> None:
        """Write the address of data into words of the argument table."""
        start = self._table.ctypes.data
        for place, offset in places:
            self._table[(place - start) // 8] = address + offset

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], observe: StepObserver | None) -> None:
        plan, table, template = self._plan, self._table, self._plan._template
        for array, positions in zip(inputs, plan._inputs):
            table[positions] = template[positions] + array.__array_interface__["data"][0]
        for array, groups in zip(outputs, plan._outputs):
            address = array.__array_interface__["data"][0]
            for positions in groups:
                table[positions] = template[positions] + address
        pool = plan._program._pool
        if observe is None:
            pool.run(self._steps_address, self._count, plan._wanted)
        else:
            for number in range(self._count):
                start = time.perf_counter_ns()
                pool.run(self._steps_address + number * 8 * STEP_WORDS, 1, plan._wanted)
                observe(number, start, plan.sizes)
        if self._error[0]:
            self._error[0] = 0
            raise DataError("an index lies out of bounds")


class _Slots:
    """Arena slots: buffers whose lifetimes do not meet share one when their sizes are equal or fit as numbers."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.nbytes: list[KnownDim] = []
        self.per_thread: list[bool] = []
        self._slot: dict[Buffer, int] = {}
        last: dict[Buffer, int] = {}
        for number, step in enumerate(steps):
            for buffer in (*step.reads, *step.writes):
                last[buffer] = number
        free: list[int] = []
        for number, step in enumerate(steps):
            for buffer in step.writes:
                if buffer.place in (Place.ARENA, Place.SCRATCH) and buffer not in self._slot:
                    self._slot[buffer] = self._take(buffer, free)
            for buffer in {*step.reads, *step.writes}:
                if last[buffer] == number and buffer in self._slot:
                    free.append(self._slot[buffer])
            free.sort()

    def of(self, buffer: Buffer) -> int:
        """Return the slot of a buffer."""
        return self._slot[buffer]

    def find(self, buffer: Buffer) -> object:
        """Return what two buffers share when they share memory."""
        return self._slot.get(buffer, buffer)

    def _take(self, buffer: Buffer, free: list[int]) -> int:
        nbytes = buffer.count * buffer.itemsize
        per_thread = buffer.place is Place.SCRATCH
        fitting = [s for s in free if self.per_thread[s] == per_thread and _fits(nbytes, self.nbytes[s])]
        if per_thread:  # no barrier keeps threads in one step: each must have the same share in all steps
            fitting = [s for s in fitting if self.nbytes[s] == nbytes]
        if fitting:
            chosen = min(fitting, key=lambda s: self.nbytes[s] if isinstance(self.nbytes[s], int) else 0)  # type: ignore[arg-type,return-value]  # an int, asked for
            free.remove(chosen)
            return chosen
        self.nbytes.append(nbytes)
        self.per_thread.append(per_thread)
        return len(self.nbytes) - 1


def _fits(wanted: KnownDim, available: KnownDim) -> bool:
    if wanted == available:
        return True
    return isinstance(wanted, int) and isinstance(available, int) and wanted <= available <= 4 * wanted + 4096


def _wanted_threads(work: int) -> int:
    if work < PARALLEL_WORK:
        return ALONE
    return AWAKE if work < WAKING_WORK else ALL


def _compile(lowering: Lowering, target: Target) -> tuple[list[CompiledModule], np.ndarray]:
    functions = [k.code for k in lowering.kernels.values() if isinstance(k.code, Emitter)]
    modules = [compiled(module_text(functions), target)] if functions else []
    where = {function.name: modules[0].address(function.name) for function in functions}
    joined = [k.code for k in lowering.kernels.values() if isinstance(k.code, LateText) and k.code.is_joined]
    if joined:
        modules.append(compiled_joined(joined, target))
        where.update({late.name: modules[-1].address(late.name) for late in joined})
    for kernel in lowering.kernels.values():
        if kernel.name in where:
            continue
        assert not isinstance(kernel.code, Emitter)
        if isinstance(kernel.code, LateText):
            module = compiled_late(kernel.code, target)
        else:
            module = compiled(kernel.code, target)
        where[kernel.name] = module.address(kernel.name)
        modules.append(module)
    return modules, np.array([where[step.kernel] for step in lowering.steps], np.int64)


def check_bound(lowering: Lowering, others: Sequence[Value] = ()) -> None:
    """Raise ``NotLowered`` when a size in the program cannot be read off its inputs.

    Of ``others``, values that will be there too, those whose sizes are needed become inputs.
    """
    _check_magnitudes(lowering)
    sizes = list(_sizes_of(lowering))
    known = {binding.atom for binding in bindings([tensor_type(value) for value in lowering.inputs])}
    if not all(is_bound(size, known) for size, _ in sizes):
        _take_sizes(
            lowering, others, {name for size, _ in sizes if not isinstance(size, int) for name in size.symbols()}
        )
        known = {binding.atom for binding in bindings([tensor_type(value) for value in lowering.inputs])}
        sizes = list(_sizes_of(lowering))
    for size, node in sizes:
        if not is_bound(size, known):
            raise NotLowered(f"the size {size} is not a size of an input", node)


def _check_magnitudes(lowering: Lowering) -> None:
    """Raise ``NotLowered`` at the first step with a fixed size that no memory has: tables hold 64-bit words."""
    for step in lowering.steps:
        counts = [buffer.count * buffer.itemsize for buffer in (*step.reads, *step.writes)]
        offsets = [argument.offset if isinstance(argument, Pointer) else argument for argument in step.arguments]
        for size in (*counts, *offsets, step.work):
            if isinstance(size, int) and abs(size) >= LARGEST_SIZE:
                raise NotLowered(f"a size of {size} elements or bytes", step.node)


def _sizes_of(lowering: Lowering) -> Iterator[tuple[KnownDim, Node | None]]:
    """Give every size of a program, with the node that it belongs to."""
    for step in lowering.steps:
        for argument in step.arguments:
            yield argument.offset if isinstance(argument, Pointer) else argument, step.node
    for value in (*lowering.inputs, *lowering.outputs):
        for size in tensor_type(value)[1]:
            yield size, value.producer
    for left, right in lowering.equal:
        yield left, None
        yield right, None


def _take_sizes(lowering: Lowering, others: Sequence[Value], wanted: set[str]) -> None:
    """Make inputs of the values that have a wanted size among theirs."""
    found = {size.name for v in lowering.inputs for size in tensor_type(v)[1] if isinstance(size, SymbolicDim)}
    for value in others:
        if not isinstance(value.type, TensorType) or value.type.shape is None or None in value.type.shape:
            continue
        names = {size.name for size in value.type.shape if isinstance(size, SymbolicDim)} & wanted
        if value not in lowering.inputs and not names <= found and lowering.constant_of(value) is None:
            lowering.inputs.append(value)
            found |= names


def _cumulative(nbytes: Sequence[int], per_thread: Sequence[bool], threads: int) -> tuple[list[int], int]:
    offsets, at = [], 0
    for size, each in zip(nbytes, per_thread):
        offsets.append(at)
        total = size * threads if each else size
        at += -(-total // ALIGNMENT) * ALIGNMENT
    return offsets, at


def _split_shapes(
    values: Sequence[int], types: Sequence[tuple[DataType, tuple[KnownDim, ...]]]
) -> list[tuple[int, ...]]:
    shapes, at = [], 0
    for _, shape in types:
        shapes.append(tuple(values[at : at + len(shape)]))
        at += len(shape)
    return shapes
