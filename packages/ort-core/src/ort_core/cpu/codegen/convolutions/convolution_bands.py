"""Convolutions one behind the other, band by band: what lies between them stays in the cache of the core that made it.

An inverted bottleneck widens its images sixfold, filters them and narrows them again; stored as a whole, the wide
images leave the second-level cache and cost more time to write and read than to compute. Here a thread takes rows of
the last result, a band at a time, and runs every stage for the rows that the band needs. Rows that the next band needs
too are kept: they are moved to the front of the stage's memory. Only where the shares of two threads meet are rows
computed twice. Each number is the same sum in the same order as in a kernel of its own.

The stages are the kernels of ``convolution`` and ``depthwise``, called with argument tables of their own. A kernel
whose units are rows (``narrow_kernel``) does row ``r`` of ``n`` where it is called as thread ``r`` of ``n``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ort_core.cpu.codegen.convolutions.convolution import convolution_kernel
from ort_core.cpu.codegen.convolutions.convolution_plan import ARGUMENTS, Convolution
from ort_core.cpu.codegen.convolutions.depthwise import narrow_kernel
from ort_core.cpu.codegen.images.channels_last import OperandKind, kernel_emitter
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.llvm_ir.vectors import copy_row
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import share
from ort_core.plugin import frozen

BATCH, SCRATCH, SCRATCH_STRIDE, FIRST_STAGE = range(4)  # positions in the argument table; stages follow each other


@frozen
class Stage:
    """A convolution over images of known size, as a step of its own would run it.

    Attributes:
        spec: the kernel. Where it makes up its border the input lies in memory without one.
        is_narrow: ``narrow_kernel`` runs it, else ``convolution_kernel``.
        x_size: height and width of the input in memory, a border that is stored included.
        y_size: height and width of the output.
    """

    spec: Convolution
    is_narrow: bool
    x_size: tuple[int, int]
    y_size: tuple[int, int]

    @property
    def words(self) -> int:
        """Entries of the stage's argument table."""
        operands = self.spec.epilogue.operands if self.spec.epilogue else ()
        return ARGUMENTS.epilogue + sum(operand.words for operand in operands)

    @property
    def top(self) -> int:
        """Rows above the image that the kernel makes up."""
        return self.spec.border[0] if self.spec.border else 0

    @property
    def is_flat(self) -> bool:
        """Whether output pixel ``i`` reads input pixel ``i`` alone: all of them can be one row to the kernel."""
        return self.spec.kernel == (1, 1) and self.spec.strides == (1, 1)

    @property
    def extent(self) -> int:
        """Rows that the window spans."""
        return (self.spec.kernel[0] - 1) * self.spec.dilations[0] + 1

    @property
    def row_count(self) -> int:
        """Numbers in a row of the output."""
        return self.y_size[1] * self.spec.out_channels

    @property
    def nbytes(self) -> int:
        """Bytes of the output of one image."""
        return 4 * self.y_size[0] * self.row_count

    @property
    def facts(self) -> str:
        """All that the kernel's text depends on, the target apart."""
        epilogue = self.spec.epilogue.structure if self.spec.epilogue else ""
        return f"{replace(self.spec, epilogue=None)!r} {epilogue} {self.is_narrow} {self.y_size}"

    def rows_read(self, rows: int) -> int:
        """Return how many rows of input so many rows of output read, the image's border left aside."""
        return (rows - 1) * self.spec.strides[0] + self.extent


@frozen
class Bands:
    """Stages, and how many rows of the last result a band has."""

    stages: tuple[Stage, ...]
    rows: int

    @property
    def heights(self) -> tuple[int, ...]:
        """Rows that the memory of each stage but the last holds."""
        rows, heights = self.rows, []
        for before, stage in zip(self.stages[-2::-1], self.stages[:0:-1], strict=True):
            rows = min(stage.rows_read(rows), before.y_size[0])
            heights.append(rows)
        return tuple(heights[::-1])

    @property
    def starts(self) -> tuple[int, ...]:
        """Where the memory of each stage but the last starts, in floats, and how long all is."""
        at, starts = 0, [0]
        for stage, height in zip(self.stages, self.heights, strict=False):
            at += -(-height * stage.row_count // 16) * 16
            starts.append(at)
        return tuple(starts)

    @property
    def facts(self) -> str:
        """All that the kernel's text depends on, the target apart."""
        return f"{self.rows} {' | '.join(stage.facts for stage in self.stages)}"


def bands_kernel(name: str, bands: Bands, target: Target) -> list[Emitter]:
    """Return the functions of stages run in bands; ``name`` is the kernel.

    Its argument table: the batch, the address of ``4 * bands.starts[-1]`` bytes of scratch for each thread, their
    distance in bytes, then the table of each stage as if the values between them lay in memory.
    """
    functions = []
    for number, stage in enumerate(bands.stages):
        make = narrow_kernel if stage.is_narrow else convolution_kernel
        functions.extend(make(_stage_name(name, number), stage.spec, target))
    return [*functions, _Driver(name, bands, target).emit()]


def _stage_name(name: str, number: int) -> str:
    return f"{name}.stage{number}"


@frozen
class _Memory:
    """Rows of a stage's result near the core: ``first`` is the row at the start of it, ``stop`` the next to compute."""

    start: IRValue
    first: IRValue
    stop: IRValue


class _Driver:
    """Emits the walk of a thread through its rows."""

    def __init__(self, name: str, bands: Bands, target: Target) -> None:
        self.name, self.bands, self.lanes = name, bands, target.lanes
        self.emitter = kernel_emitter(name)
        self.tables: list[IRValue] = []
        self.givens: list[IRValue] = []
        self.memories: list[_Memory] = []

    def emit(self) -> Emitter:
        """Return the kernel."""
        e = self.emitter
        args = e.parameter("args")
        self._copy_tables(args)
        scratch = e.argument(args, SCRATCH, "ptr")
        scratch = e.element(scratch, e.mul(e.parameter("thread"), e.argument(args, SCRATCH_STRIDE)), "i8")
        for start in self.bands.starts[:-1]:
            first, stop = (e.variable("i64", integer(0), hint) for hint in ("first", "stop"))
            self.memories.append(_Memory(e.element(scratch, start), first, stop))
        height = self.bands.stages[-1].y_size[0]
        rows = e.mul(e.argument(args, BATCH), height)
        begin, end = share(e, rows)
        with e.when(e.compare("slt", begin, end)):
            first_image, last_image = e.udiv(begin, height), e.udiv(e.sub(end, 1), height)
            with e.loop(first_image, e.add(last_image, 1), unroll=False, hint="image") as image:
                before = e.mul(image, height)
                low = e.maximum(e.sub(begin, before), 0)
                high = e.minimum(e.sub(end, before), height)
                for memory in self.memories:
                    e.store(integer(0), memory.first)
                    e.store(integer(0), memory.stop)
                with e.loop(low, high, self.bands.rows, unroll=False, hint="band") as row:
                    self._band(image, row, e.minimum(e.add(row, self.bands.rows), high))
        return e

    def _copy_tables(self, args: IRValue) -> None:
        """Append this thread's own tables: bands change addresses and sizes in them."""
        e, at = self.emitter, FIRST_STAGE
        for stage in self.bands.stages:
            given = e.element(args, at, "i64")
            table = e.variable(f"[{stage.words} x i64]")
            with e.loop(0, integer(stage.words), unroll=False) as i:
                e.store(e.load("i64", e.element(given, i, "i64")), e.element(table, i, "i64"))
            self._write(table, ARGUMENTS.batch, integer(1))
            self.givens.append(given)
            self.tables.append(table)
            at += stage.words

    def _band(self, image: IRValue, low: IRValue, high: IRValue) -> None:
        """Append all stages for rows ``low`` to ``high`` of the last result."""
        needs = self._needs(low, high)
        for number, (first, stop) in enumerate(needs[:-1]):
            start = self._make_room(number, first)
            with self.emitter.when(self.emitter.compare("slt", start, stop)):
                self._stage(number, image, start, stop)
                self.emitter.store(stop, self.memories[number].stop)
        self._stage(len(needs) - 1, image, low, high)

    def _needs(self, low: IRValue, high: IRValue) -> list[tuple[IRValue, IRValue]]:
        """Return the rows of each stage's result that the band reads."""
        e = self.emitter
        needs = [(low, high)]
        for before, stage in zip(self.bands.stages[-2::-1], self.bands.stages[:0:-1], strict=True):
            stride = stage.spec.strides[0]
            low = e.maximum(e.sub(e.mul(low, stride), stage.top), 0)
            reach = e.add(e.mul(e.sub(high, 1), stride), stage.extent - stage.top)
            high = e.minimum(reach, before.y_size[0])
            needs.append((low, high))
        return needs[::-1]

    def _make_room(self, number: int, first: IRValue) -> IRValue:
        """Append the move of the rows from ``first`` on to the front; returns the first row not computed yet."""
        e, memory = self.emitter, self.memories[number]
        stop, row_count = e.load("i64", memory.stop), self.bands.stages[number].row_count
        kept = e.sub(stop, first)
        moved = e.sub(first, e.load("i64", memory.first))
        both = e.binary("and", e.compare("sgt", kept, 0), e.compare("sgt", moved, 0))
        with e.when(both):
            source = e.element(memory.start, e.mul(moved, row_count))
            copy_row(e, self.lanes, source, memory.start, e.mul(kept, row_count))
        e.store(first, memory.first)
        return e.maximum(stop, first)

    def _stage(self, number: int, image: IRValue, low: IRValue, high: IRValue) -> None:
        """Append the call that computes rows ``low`` to ``high`` of a stage's result."""
        e, stage = self.emitter, self.bands.stages[number]
        first = integer(0) if stage.is_narrow else low  # a narrow kernel counts from the image's first row itself
        self._move_sources(number, image, first)
        self._write(self.tables[number], ARGUMENTS.y, self._target(number, image, first))
        rows, width = e.sub(high, low), integer(stage.y_size[1])
        if stage.is_narrow:
            self._write_size(number, integer(stage.y_size[0]), width)
            with e.loop(low, high, unroll=False, hint="row") as row:
                self._call(number, row, integer(stage.y_size[0]))
            return
        if stage.is_flat:
            self._write_size(number, integer(1), e.mul(rows, width))
        else:
            self._write_size(number, rows, width)
        self._call(number, integer(0), integer(1))

    def _write_size(self, number: int, height: IRValue, width: IRValue) -> None:
        self._write(self.tables[number], ARGUMENTS.height, height)
        self._write(self.tables[number], ARGUMENTS.width, width)

    def _move_sources(self, number: int, image: IRValue, row: IRValue) -> None:
        """Append the addresses of what the stage reads for its output row ``row``."""
        e, stage = self.emitter, self.bands.stages[number]
        given, table = self.givens[number], self.tables[number]
        x_row = e.argument(given, ARGUMENTS.x_row)
        x_first = e.mul(row, stage.spec.strides[0])
        if number:
            memory = self.memories[number - 1]
            row_nbytes = 4 * self.bands.stages[number - 1].row_count
            start = e.assign("i64", f"ptrtoint ptr {memory.start.text} to i64")
            x = e.add(start, e.mul(e.sub(x_first, e.load("i64", memory.first)), row_nbytes))
        else:
            image_start = self._moved(given, ARGUMENTS.x, image, e.argument(given, ARGUMENTS.x_image))
            x = e.add(image_start, e.mul(e.mul(x_first, x_row), 4))
        self._write(table, ARGUMENTS.x, x)
        if stage.spec.is_scaled:
            stride = e.argument(given, ARGUMENTS.scale_image)
            self._write(table, ARGUMENTS.scale, self._moved(given, ARGUMENTS.scale, image, stride))
        epilogue = stage.spec.epilogue
        if epilogue is None:
            return
        for kind, entry in zip(epilogue.operands, epilogue.entries(ARGUMENTS.epilogue), strict=True):
            if kind is OperandKind.TENSOR:
                image_start = self._moved(given, entry, image, e.argument(given, entry + 2))
                offset = e.mul(e.mul(row, e.argument(given, entry + 1)), 4)
                self._write(table, entry, e.add(image_start, offset))

    def _target(self, number: int, image: IRValue, row: IRValue) -> IRValue:
        """Return the address of a stage's output row ``row``."""
        e, given, stage = self.emitter, self.givens[number], self.bands.stages[number]
        if number < len(self.memories):
            memory = self.memories[number]
            start = e.assign("i64", f"ptrtoint ptr {memory.start.text} to i64")
            return e.add(start, e.mul(e.sub(row, e.load("i64", memory.first)), 4 * stage.row_count))
        image_start = self._moved(given, ARGUMENTS.y, image, e.argument(given, ARGUMENTS.y_image))
        return e.add(image_start, e.mul(e.mul(row, e.argument(given, ARGUMENTS.y_row)), 4))

    def _moved(self, table: IRValue, entry: int, index: IRValue, stride: IRValue) -> IRValue:
        """Return the address at ``entry`` moved by ``index`` times ``stride`` floats."""
        e = self.emitter
        return e.add(e.argument(table, entry), e.mul(e.mul(index, stride), 4))

    def _write(self, table: IRValue, entry: int, value: IRValue) -> None:
        self.emitter.store(value, self.emitter.element(table, entry, "i64"))

    def _call(self, number: int, piece: IRValue, pieces: IRValue) -> None:
        thread = self.emitter.parameter("thread")
        self.emitter.call_void(_stage_name(self.name, number), self.tables[number], piece, pieces, thread)


def fitting_rows(stages: Sequence[Stage], nbytes: int) -> int:
    """Return the rows of a band whose memory stays within ``nbytes``; at least 1."""
    rows = 1
    height = stages[-1].y_size[0]
    while rows < height and 4 * Bands(tuple(stages), rows + 1).starts[-1] <= nbytes:
        rows += 1
    return rows
