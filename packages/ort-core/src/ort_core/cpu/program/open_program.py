"""OpenProgram: a program's run state for any shapes of its inputs, whose sizes native code evaluates in place.

A plan holds for one signature. Lengths that grow by one in each run, or that callers choose, have a signature each, and
no run of theirs should wait for Python to plan it. So here is all that a plan knows as words: how sizes follow from
the inputs' shapes (``size_words``), which words of an argument table they are, where memory lies in the arena. A table
holds one signature at a time; all tables share one arena, so one run at a time uses them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.cpu.program.size_words import Operation, SizeWords, SizeWordsState
from ort_core.cpu.program.sizes import ALIGNMENT
from ort_core.cpu.program.sources import NumberSource
from ort_core.cpu.threads.pool_code import STEP_WORDS
from ort_core.plugin import Rejection, environment_value, frozen

if TYPE_CHECKING:
    import numpy.typing as npt

    from ort_core.cpu.program.output_memory import OutputMemory
    from ort_core.cpu.program.program import NativeProgram
    from ort_core.cpu.program.program_record import ProgramRecord
    from ort_core.cpu.program.sources import Source

    Words = npt.NDArray[np.int64]

MOST_ROWS = 20_000  # of sizes: native code takes some 2 ns for each, Python's plan 100 times as long


@frozen
class OpenTable:
    """An argument table with its steps: ``words`` holds both, then the word for errors."""

    words: Words
    count: int
    steps: int

    @property
    def start(self) -> int:
        """Where the table lies."""
        return int(self.words.ctypes.data)

    @property
    def steps_address(self) -> int:
        """Where the steps lie."""
        return self.start + 8 * self.count

    @property
    def error_address(self) -> int:
        """Where kernels say that data was out of bounds."""
        return self.start + 8 * (len(self.words) - 1)

    @property
    def step_words(self) -> Words:
        """The steps."""
        return self.words[self.count : -1].reshape(-1, STEP_WORDS)


@frozen
class OpenProgram:
    """What native code plans any signature from; "register" is where ``sizes`` leaves a value.

    Attributes:
        program: what is planned.
        sizes: how the inputs' shapes become sizes.
        template: the argument table, as far as it is the same for all signatures and all tables.
        based: words of the table that are a size, or one behind an address: position, register and address, or 0.
        arena: those that lie in the arena: position, register and slot.
        slots: of the arena: register, how many there are of it, and whether limits of runs count it.
        given: for each input of the program, then for each output, its words: position and register.
        shapes: for each output the registers of its sizes.
        work: the registers of the steps' work.
    """

    program: NativeProgram
    sizes: SizeWords
    template: Words
    based: Words
    arena: Words
    slots: Words
    given: tuple[Words, ...]
    shapes: tuple[Words, ...]
    work: Words

    @property
    def memory(self) -> OutputMemory:
        """Where large outputs come from."""
        return self.program.memory

    @property
    def dtypes(self) -> list[np.dtype]:
        """The element types of the outputs."""
        return [dtype.numpy for dtype, _ in self.program.record.output_types]

    @property
    def table_nbytes(self) -> int:
        """The bytes of a table and its steps."""
        return 8 * (len(self.template) + len(self.work) * STEP_WORDS)

    def table(self, sources: Sequence[Source]) -> OpenTable:
        """Return a new table, of no signature yet.

        Args:
            sources: where each input of the program comes from.
        """
        record, kernels = self.program.record, len(self.program.kernels)
        count = len(self.template)
        made = OpenTable(np.zeros(count + kernels * STEP_WORDS + 1, np.int64), count, kernels)
        made.words[:count] = self.template
        made.words[record.relocations.errors] = made.error_address
        for source, words in zip(sources, self.given, strict=False):
            if isinstance(source, np.ndarray):
                made.words[words[:, 0]] += source.ctypes.data
        steps = made.step_words
        steps[:, 0], steps[:, 1] = self.program.addresses, made.start + record.starts
        return made


def open_program(program: NativeProgram, sources: Sequence[Source]) -> OpenProgram | Rejection:
    """Return what native code plans signatures from, or why Python must.

    Args:
        program: what is planned.
        sources: where each input comes from.
    """
    if environment_value("ORT_STEP_PIECES"):
        return Rejection("steps are cut into a fixed number of pieces")

    def axis_size(index: int, axis: int) -> tuple[Operation, int, int] | int:
        source = sources[index]
        if isinstance(source, NumberSource):
            return (Operation.NUMBER, source.number, 0) if axis == 0 else 0
        return (Operation.SIZE, source, axis) if isinstance(source, int) else int(source.shape[axis])

    record, state = program.record, SizeWordsState(axis_size)
    try:
        _require_numbers(record, sources, state)
        state.bind(record.bindings)
        _require(record, state)
        values = state.evaluated(record.sizes)
    except (OverflowError, RecursionError) as error:
        return Rejection(f"its sizes have no words: {error}")
    for register in dict.fromkeys(values[record.argument_count :]):
        state.must_not_be_negative(register)
    sizes = state.finished()
    if len(sizes.rows) > MOST_ROWS:
        return Rejection(f"{len(sizes.rows)} sizes are many")
    return _laid_out(program, sources, sizes, state.places(values))


def _require_numbers(record: ProgramRecord, sources: Sequence[Source], state: SizeWordsState) -> None:
    """Compare the shapes of inputs that are numbers before they are read."""
    read = {source.number for source in sources if isinstance(source, NumberSource)}
    for index, source in enumerate(sources):
        if isinstance(source, int) and source in read:
            for axis in range(len(record.input_types[index][1])):
                state.must_equal(state.axis(index, axis), state.constant(1))
    for number in sorted(read):
        state.must_not_be_negative(state.operated(Operation.NUMBER, number, 0))


def _require(record: ProgramRecord, state: SizeWordsState) -> None:
    """Compare declared sizes with those that there are, and what must be equal."""
    declared = state.evaluated(record.declared)
    found = [
        state.axis(index, axis) for index, (_, shape) in enumerate(record.input_types) for axis in range(len(shape))
    ]
    for left, right in zip(declared, found + [state.constant(0)] * len(record.equal), strict=True):
        state.must_equal(left, right)


def _laid_out(program: NativeProgram, sources: Sequence[Source], sizes: SizeWords, values: Words) -> OpenProgram:
    record = program.record
    relocations, count = record.relocations, record.argument_count
    are_fixed = values >= len(sizes.rows)
    fixed = np.where(are_fixed, sizes.registers[values], 0)
    template = fixed[:count].copy()
    template[relocations.constants] += relocations.constant_addresses
    addresses, is_written = np.zeros(count, np.int64), ~are_fixed[:count]
    for positions in (relocations.given, relocations.errors, relocations.arena):
        is_written[positions] = False
    addresses[relocations.constants] = relocations.constant_addresses
    for positions, source in zip(relocations.inputs, sources, strict=True):
        if isinstance(source, np.ndarray):
            addresses[positions], is_written[positions] = source.ctypes.data, ~are_fixed[positions]
    (written,) = np.nonzero(is_written)
    based = _columns(written, values[written], addresses[written])
    arena = _columns(relocations.arena, values[relocations.arena], relocations.arena_slots)
    threads = program.pool.num_threads
    slots = _columns(
        values[count : record.outputs_at],
        np.where(np.array(record.per_thread, np.bool_), threads, 1),
        ~np.array(record.fixed, np.bool_),
    )
    grouped = [*relocations.inputs, *(np.concatenate([_NONE, *groups]) for groups in relocations.outputs)]
    given = tuple(_columns(positions, values[positions]) for positions in grouped)
    ends = record.outputs_at + np.cumsum([0, *(len(shape) for _, shape in record.output_types)])
    shapes = tuple(values[start:end] for start, end in itertools.pairwise(ends))
    work = values[record.work_at : record.work_at + len(program.kernels)]
    return OpenProgram(program, sizes, template, based, arena, slots, given, shapes, work)


_NONE = np.empty(0, np.int64)


def _columns(*columns: np.ndarray) -> Words:
    return np.ascontiguousarray(np.stack([np.asarray(each, np.int64) for each in columns], axis=1))


class ArenaState:
    """The memory that the tables of one program share; grown and given back as runs need it."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def take(self, nbytes: int) -> int | None:
        """Return where memory of that many bytes begins, in place of what there was; ``None`` where there is no room.

        Raises:
            MemoryError: never; an interrupt may pass.
        """
        self._memory = np.empty(0, np.uint8)
        try:
            self._memory = np.empty(nbytes + ALIGNMENT, np.uint8)
        except MemoryError:
            return None
        return -(-int(self._memory.ctypes.data) // ALIGNMENT) * ALIGNMENT
