"""A native program as text and facts: its border, its steps, and where their buffers lie.

With sizes everything is a number; without, or where a size is known by no one, it is the formula.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ort_core.cpu.guarded.mode import GuardedMode, guarded_mode
from ort_core.cpu.lowering.steps import Step, operators_text
from ort_core.cpu.lowering.value_types import stored_type
from ort_core.cpu.lowering.views import Buffer, Place
from ort_core.cpu.program.sizes import arena_offsets, evaluate
from ort_core.cpu.program.slots import Slots
from ort_core.cpu.threads.pool_code import BARRIER, OWNER_AT, PIECES_AT, SERIAL
from ort_core.plugin import MemoryFacts, StepFacts
from ort_core.plugin.ir import DataType, KnownDim, Node, TensorType

if TYPE_CHECKING:
    from ort_core.cpu.program.program import NativeProgram

Amount = int | str
NATIVE = "native"


def facts_of_program(program: NativeProgram, part: int, sizes: Mapping[str, int]) -> Iterator[StepFacts]:
    """Yield the steps of a native program; nothing of one that was recalled, which has none any more."""
    memory = _Memory(program, sizes)
    flags = _flags(program, sizes)
    nodes = [[each for each in step.operators if isinstance(each, Node)] for step in program.steps]
    last = {own[-1]: number for number, own in enumerate(nodes) if own}
    for number, (step, own) in enumerate(zip(program.steps, nodes, strict=True)):
        is_part = bool(own) and last[own[-1]] != number
        result = result_text(own, sizes, None if is_part else _written_type(step)) or _given_text(program, step, sizes)
        yield StepFacts(
            f"{part}.{number}",
            NATIVE,
            operators_text(step.operators),
            f"part of {result}" if result and is_part else result,
            step.kernel,
            tuple(memory.facts(buffer) for buffer in dict.fromkeys(step.reads)),
            tuple(memory.facts(buffer) for buffer in dict.fromkeys(step.writes)),
            "" if flags is None else _threads(flags[number], program.pool.num_threads),
            flags is not None and bool(flags[number] & BARRIER),
            amount(step.work, sizes),
            amount(step.flops, sizes),
            None if step.nbytes is None else amount(step.nbytes, sizes),
        )


def amount(size: KnownDim, sizes: Mapping[str, int]) -> Amount:
    """Return a size as a number where it can be told, else as its formula."""
    try:
        return evaluate(size, sizes)
    except (KeyError, ZeroDivisionError):
        return str(size)


def program_text(program: NativeProgram, sizes: Mapping[str, int] | None = None, part: int = 0) -> str:
    """Return a program for people: its border, its arena, and its steps."""
    record, known = program.record, sizes or {}
    borders = [
        f"{name} " + "; ".join(
            f"{label} {dtype.text}[{', '.join(str(amount(size, known)) for size in shape)}]"
            for label, (dtype, shape) in zip(labels, types, strict=True)
        )
        for name, labels, types in (
            ("inputs ", record.inputs, record.input_types), ("outputs", record.outputs, record.output_types),
        )
    ]  # fmt: skip
    count = len(program.kernels)
    head = f"program of {count} steps, {len(record.per_thread)} slots of memory"
    steps = [line for facts in facts_of_program(program, part, known) for line in facts.lines()]
    return "\n".join([head, *(f"  {line}" for line in (*borders, *steps))])


class _Memory:
    """Where the buffers of a program lie."""

    def __init__(self, program: NativeProgram, sizes: Mapping[str, int]) -> None:
        self._record, self._sizes = program.record, sizes
        self._slots = Slots(program.steps, shares=guarded_mode() is GuardedMode.OFF)
        nbytes = [amount(size, sizes) for size in self._slots.nbytes]
        numbers = [each for each in nbytes if isinstance(each, int)]
        is_known = len(numbers) == len(nbytes)
        self._offsets = (
            arena_offsets(numbers, self._slots.per_thread, program.pool.num_threads)[0] if is_known else None
        )

    def facts(self, buffer: Buffer) -> MemoryFacts:
        """Return what people want to know of a buffer."""
        count = amount(buffer.count, self._sizes)
        nbytes = amount(buffer.count * buffer.itemsize, self._sizes)
        dtype = buffer.dtype.text
        if buffer.place is Place.INPUT:
            return MemoryFacts(f"input {self._record.inputs[buffer.index]}", dtype, (count,), None, nbytes)
        if buffer.place is Place.OUTPUT:
            return MemoryFacts(f"output {self._record.outputs[buffer.index]}", dtype, (count,), None, nbytes)
        if buffer.place is Place.CONSTANT:
            shape = (count,) if buffer.array is None else buffer.array.shape
            return MemoryFacts("constant", dtype, shape, None, nbytes)
        if buffer.place is Place.ERROR:
            return MemoryFacts("error word", dtype, (count,), None, nbytes)
        slot = self._slots.of(buffer)
        offset = None if self._offsets is None else self._offsets[slot]
        return MemoryFacts(f"{buffer.place.value} {slot}", dtype, (count,), offset, nbytes)


def _given_text(program: NativeProgram, step: Step, sizes: Mapping[str, int]) -> str:
    """Return the first result of a program that a step without a node of its own leaves, with its type."""
    index = next((each.index for each in step.writes if each.place is Place.OUTPUT), None)
    if index is None:
        return ""
    dtype, shape = program.record.output_types[index]
    return f"{program.record.outputs[index]} {dtype.text}[{', '.join(str(amount(size, sizes)) for size in shape)}]"


def _flags(program: NativeProgram, sizes: Mapping[str, int]) -> list[int] | None:
    work = [amount(step.work, sizes) for step in program.steps]
    numbers = [each for each in work if isinstance(each, int)]
    if len(numbers) < len(work) or not work:
        return None
    bounds = [amount(step.most_pieces, sizes) for step in program.steps if step.most_pieces is not None]
    most_pieces = [each for each in bounds if isinstance(each, int)]
    if len(most_pieces) < len(bounds):
        return None
    return [int(each) for each in program.record.order.flags(numbers, program.pool.num_threads, most_pieces)]


def _threads(flags: int, count: int) -> str:
    if flags & SERIAL or count == 1:
        return f"1 (thread {flags >> OWNER_AT})" if flags >> OWNER_AT else "1"
    pieces = flags >> PIECES_AT
    return f"all {count}" + (f" by {pieces} pieces each" if pieces else "")


def _written_type(step: Step) -> DataType | None:
    """Return the element type of what a step leaves, where it leaves one thing."""
    left = [each for each in step.writes if each.place in (Place.ARENA, Place.OUTPUT)]
    return left[0].dtype if len(left) == 1 else None


def result_text(nodes: Sequence[Node], sizes: Mapping[str, int], written: DataType | None = None) -> str:
    """Return the first value that the last of some nodes computes, with its type, and how it is ``written``."""
    value = next(iter(nodes[-1].present_outputs()), None) if nodes else None
    if value is None:
        return ""
    if not isinstance(value.type, TensorType) or value.type.shape is None or None in value.type.shape:
        return f"{value.name} {value.type or '?'}"
    dtype, shape = stored_type(value)
    lies = f" as {written.text}" if written is not None and written is not dtype else ""
    return f"{value.name} {dtype.text}[{', '.join(str(amount(size, sizes)) for size in shape)}]{lies}"
