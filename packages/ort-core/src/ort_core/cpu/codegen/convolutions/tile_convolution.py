"""Dense convolution of bfloat16 pairs by registers of tiles (AMX), channels-last; no im2col.

A tile of A is up to 16 neighboring pixels of an output row and 16 words of their channels, read where the image lies:
neighboring pixels lie a constant number of bytes apart. A tile of B is 16 words of a panel of 16 output channels. A
call takes a strip, the tiles of A of some rows of pixels, and a few panels: four tiles of sums. With dilation 1 the
taps of a window row and their channels are one run of words. Its last words are multiplied by tiles that are just so
small: nothing behind them is read.

Tiles of a row are equally long. Where they do not cover it exactly, the last one begins earlier and computes some
pixels again, and only the others are stored: an epilogue may run in place. Short rows are taken as one, with what lies
between them in the input, where that makes fewer tiles: sums of windows that reach over the end of a row are not
stored. The input holds the border, as for ``convolution``, and the argument table is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_core.cpu.codegen.convolutions.convolution_plan import (
    ARGUMENTS,
    Convolution,
    PairConvolution,
    TwiceStoredConvolution,
    panels,
)
from ort_core.cpu.codegen.images.channels_last import (
    Lanes,
    OperandKind,
    Terms,
    ceil_divide,
    divide,
    kernel_emitter,
    position,
    share_of,
)
from ort_core.cpu.codegen.llvm_ir import matrix_tiles
from ort_core.cpu.codegen.llvm_ir.bfloat16_lanes import rounded_lanes, rounded_row
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.llvm_ir.matrix_tiles import FLOAT_PAIRS, LINE_NBYTES, ROWS
from ort_core.cpu.codegen.llvm_ir.vectors import prefetch
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import share
from ort_core.plugin import frozen

SUMS = 4  # tiles of them
_A, _B = 4, 6  # the first of two tiles each
CACHED_INPUT_NBYTES = 1 << 20  # this much input is run through all panels before the next, if weights are many
NEAR_WEIGHTS_NBYTES = 1 << 15  # weights up to this stay in the first-level cache and need no prefetch
FEW_WEIGHTS_NBYTES = 1 << 18  # up to this all weights are run through for each strip
MOST_STRIPS = 64  # of a unit of work
BALANCED_UNITS = 4  # for each piece, below which a unit has fewer panels
_X, _SEGMENTS = 0, 1  # entries of a strip's table for each tile of A
_FIRST, _COUNT, _Y, _OPERANDS = 0, 1, 2, 3  # and for each of its segments
MOST_SEGMENTS = 3  # rows that a tile of short ones is part of
LEAST_PITCH = 8  # pixels from one of these to the next: a tile is part of no more


@frozen
class TileForm:
    """What a call computes: ``strip`` tiles of pixels with ``panels`` tiles of output channels."""

    strip: int
    panels: int


def tile_form(spec: Convolution, target: Target) -> TileForm:
    """Return the form of calls: squares, which read least, but one panel at a time of weights that lie far away."""
    weights_nbytes = spec.depth * spec.out_channels * 4
    is_far = weights_nbytes > target.second_level_nbytes // 2
    return TileForm(SUMS, 1) if is_far or spec.group_outputs <= ROWS else TileForm(2, 2)


def tile_convolution_kernel(name: str, spec: Convolution, target: Target) -> list[Emitter]:
    """Return the functions of a convolution; the last one is the kernel."""
    if not isinstance(spec, PairConvolution) or spec.border is not None or spec.planes is not None or spec.is_scaled:
        raise ValueError(f"tiles compute no convolution such as {spec}")
    return _Generator(name, spec, target).functions()


class _Generator:
    def __init__(self, name: str, spec: Convolution, target: Target) -> None:
        self.name, self.spec = name, spec
        self.form = tile_form(spec, target)
        vectors = panels(spec, target)
        self.vectors = vectors.vectors * vectors.full + vectors.last
        self.count = -(-len(self.vectors) // self.form.panels)  # calls for the channels of a group
        self.stored_channels = vectors.stored_channels
        self.weights_nbytes = spec.depth * spec.out_channels * 4
        self.is_far = self.weights_nbytes > target.second_level_nbytes // 2
        self.operands = spec.epilogue.operands if spec.epilogue else ()
        self.entries = spec.epilogue.entries(ARGUMENTS.epilogue) if spec.epilogue else ()
        self.is_copied = isinstance(spec, TwiceStoredConvolution)
        self.copy_entry = ARGUMENTS.epilogue + sum(kind.words for kind in self.operands)
        self.unrounded = spec.epilogue.unrounded if spec.epilogue else None
        self.tensors = [i for i, kind in enumerate(self.operands) if kind is OperandKind.TENSOR]
        self.joins_rows = spec.strides == (1, 1) and spec.kernel != (1, 1)
        self.segments = MOST_SEGMENTS if self.joins_rows else 1
        self.segment = _OPERANDS + len(self.tensors) + self.is_copied
        self.line = _SEGMENTS + self.segments * self.segment
        self.tiles: dict[str, Emitter] = {}

    def functions(self) -> list[Emitter]:
        driver = self._driver()
        return [*self.tiles.values(), driver]

    # the driver: units of work, and the calls of a unit --------------------------------------------------------------

    def _driver(self) -> Emitter:
        e = kernel_emitter(self.name)
        form = self.form
        rows, across, tiles, lines = self._tiles_of(e)
        strips, columns = ceil_divide(e, tiles, form.strip), self.count * self.spec.groups
        block, chunk = self._unit_sizes(e, strips, columns)
        chunks = e.udiv(e.sub(e.add(chunk, columns), 1), chunk)
        blocks = e.udiv(e.sub(e.add(strips, block), 1), block)
        units, size = e.mul(blocks, chunks), form.strip * self.line
        first_strip = e.udiv(share(e, units)[0], chunks)  # of this piece, where blocks are single strips
        tables = e.variable(f"[{self.block * size} x i64]", hint="tables")
        with matrix_tiles.configured(e, self._shapes(rows)), share_of(e, units) as unit:
            block_index, chunk_index = divide(e, unit, chunks)
            first, column = e.mul(block_index, block), e.mul(chunk_index, chunk)
            count = e.minimum(block, e.sub(strips, first))
            with e.loop(0, count, unroll=False, hint="strip") as strip:
                table = e.element(tables, e.mul(strip, size), "i64")
                self._fill_table(e, table, e.mul(e.add(first, strip), form.strip), tiles, (rows, across, *lines))
            last_column = e.minimum(e.add(column, chunk), columns)
            asks = e.binary("or", e.compare("sgt", block, 1), e.compare("eq", first, first_strip))
            with (
                e.loop(column, last_column, unroll=False, hint="column") as each,
                e.loop(0, count, unroll=False, hint="strip") as strip,
            ):
                table = e.element(tables, e.mul(strip, size), "i64")
                left = e.sub(tiles, e.mul(e.add(first, strip), form.strip))
                self._call(e, table, each, left, (strip, count, asks))
        return e

    def _tiles_of(self, e: Emitter) -> tuple[IRValue, IRValue, IRValue, tuple[IRValue, IRValue, IRValue]]:
        """Return the rows of a tile, the tiles of a line, how many there are, and what a line is.

        That are how many lines an image has, their pixels, and how far the rows of the result lie apart in it: lines
        are rows, or all rows of an image.
        """
        args, spec = e.parameter("args"), self.spec
        batch, height, width = (e.argument(args, i) for i in (ARGUMENTS.batch, ARGUMENTS.height, ARGUMENTS.width))
        lines, pixels, pitch = height, width, e.maximum(width, 1)
        if self.joins_rows:
            apart = e.udiv(e.argument(args, ARGUMENTS.x_row), spec.input_pitch)
            joined = e.add(e.mul(e.sub(height, 1), apart), width)
            apart_tiles, joined_tiles = e.mul(height, ceil_divide(e, width, ROWS)), ceil_divide(e, joined, ROWS)
            is_shorter = e.compare("slt", joined_tiles, apart_tiles)
            is_joined = e.binary("and", is_shorter, e.compare("sge", apart, LEAST_PITCH))
            choices = ((integer(1), lines), (joined, pixels), (apart, pitch))
            lines, pixels, pitch = (e.select(is_joined, *each) for each in choices)
        across = e.maximum(ceil_divide(e, pixels, ROWS), 1)
        rows = e.maximum(e.udiv(e.sub(e.add(pixels, across), 1), across), 1)
        tiles = e.select(e.compare("sgt", width, 0), e.mul(e.mul(batch, lines), across), integer(0))
        return rows, across, tiles, (lines, pixels, pitch)

    def _shapes(self, rows: IRValue) -> list[tuple[IRValue | int, IRValue | int]]:
        """Return the rows and bytes a row of each tile: sums, A and B; the second of these two may be that of tails."""
        whole, tail = self._parts()
        depths = [ROWS if whole else tail, tail if tail else ROWS]
        a: list[tuple[IRValue | int, IRValue | int]] = [(rows, 4 * depth) for depth in depths]
        return [*[(rows, LINE_NBYTES)] * SUMS, *a, *((depth, LINE_NBYTES) for depth in depths)]

    def _parts(self) -> tuple[int, int]:
        """Return the words of a run that whole tiles take, and those that are left."""
        run = self.spec.run[1]
        return run - run % ROWS, run % ROWS

    def _unit_sizes(self, e: Emitter, strips: IRValue, columns: int) -> tuple[IRValue, IRValue]:
        """Return how many strips a unit of work has, at most ``block``, and how many panels."""
        blocks = e.maximum(ceil_divide(e, strips, self.block), 1)
        block = e.maximum(e.udiv(e.sub(e.add(strips, blocks), 1), blocks), 1)
        if not self.is_far:
            is_long = e.compare("sgt", strips, MOST_STRIPS)
            block, blocks = e.select(is_long, integer(1), block), e.select(is_long, strips, blocks)
        wanted = e.mul(e.parameter("pieces"), BALANCED_UNITS)
        chunk = e.udiv(e.mul(blocks, columns), wanted)
        return block, e.minimum(e.maximum(chunk, 1), columns)

    @property
    def block(self) -> int:
        """How many strips a panel is run through before the next.

        Few weights are run through for each strip, whose results then lie in a row; so are those that the second-level
        cache keeps, where strips are many. Others come from far away: one panel after the other, each while the one
        before it is multiplied.
        """
        if self.weights_nbytes <= FEW_WEIGHTS_NBYTES:
            return 1
        spec = self.spec
        strip_nbytes = self.form.strip * ROWS * spec.strides[0] * spec.strides[1] * spec.in_channels * 4
        return min(max(1, CACHED_INPUT_NBYTES // strip_nbytes), MOST_STRIPS)

    def _fill_table(
        self, e: Emitter, table: IRValue, tile: IRValue, tiles: IRValue, lines: tuple[IRValue, ...]
    ) -> None:
        """Append what writes where each tile of a strip begins, and where its new pixels are stored.

        ``lines`` are the rows of a tile, the tiles of a line, the lines of an image, their pixels and their pitch.
        """
        spec, args = self.spec, e.parameter("args")
        rows, across, count, pixels, pitch = lines
        x_row, x_image = (e.argument(args, i) for i in (ARGUMENTS.x_row, ARGUMENTS.x_image))
        with e.loop(0, integer(self.form.strip), unroll=False, hint="tile") as index:
            wanted = e.add(tile, index)
            number = e.minimum(wanted, e.sub(tiles, 1))
            line, part = divide(e, number, across)
            image, row = divide(e, line, count)
            first = e.mul(part, rows)
            pixel = e.minimum(first, e.sub(pixels, rows))
            end = e.add(pixel, rows)
            entry = e.element(table, e.mul(index, self.line), "i64")
            place: Terms = [
                (image, x_image), (e.mul(row, spec.strides[0]), x_row), (pixel, spec.strides[1] * spec.input_pitch)
            ]  # fmt: skip
            _put(e, entry, _X, position(e, e.argument(args, ARGUMENTS.x, "ptr"), place))
            at = e.variable("i64", e.select(e.compare("slt", wanted, tiles), first, end), "at")
            with e.loop(0, integer(self.segments), unroll=False, hint="segment") as segment:
                here = e.element(entry, e.add(e.mul(segment, self.segment), _SEGMENTS), "i64")
                self._fill_segment(e, here, at, (image, row), pixel, end, pitch)

    def _fill_segment(
        self, e: Emitter, entry: IRValue, at: IRValue, place: tuple[IRValue, IRValue], pixel: IRValue, end: IRValue,
        pitch: IRValue,
    ) -> None:  # fmt: skip
        """Append what writes where the pixels of one row from ``at`` on are stored, and sets ``at`` behind them."""
        spec, (image, row) = self.spec, place
        first = e.load("i64", at)
        below, column = divide(e, first, pitch)
        start = e.sub(first, column)
        stop = e.minimum(end, e.add(start, e.argument(e.parameter("args"), ARGUMENTS.width)))
        _put(e, entry, _FIRST, e.sub(first, pixel))
        _put(e, entry, _COUNT, e.maximum(e.sub(stop, first), 0))
        there = e.add(row, below)
        _put(e, entry, _Y, self._place(e, ARGUMENTS.y, image, there, (column, spec.output_pitch), spec.stored))
        for number, operand in enumerate(self.tensors):
            pixels = (column, self._operand_pitch(operand))
            _put(e, entry, _OPERANDS + number, self._place(e, self.entries[operand], image, there, pixels))
        if self.is_copied:
            copied = self._place(e, self.copy_entry, image, there, (column, spec.out_channels), "i16")
            _put(e, entry, self.segment - 1, copied)
        e.store(e.add(start, pitch), at)

    def _place(
        self, e: Emitter, entry: int, image: IRValue, row: IRValue, pixel: tuple[IRValue, int], type_: str = "float"
    ) -> IRValue:
        """Return where a pixel of the result, or of an epilogue's operand, lies."""
        args = e.parameter("args")
        row_entry = ARGUMENTS.y_row if entry == ARGUMENTS.y else entry + 1
        strides = (e.argument(args, row_entry), e.argument(args, row_entry + 1))
        return position(e, e.argument(args, entry, "ptr"), [(row, strides[0]), (image, strides[1]), pixel], type_)

    def _operand_pitch(self, operand: int) -> int:
        assert self.spec.epilogue is not None
        return self.spec.epilogue.pitch(operand, self.spec.out_channels)

    def _call(
        self, e: Emitter, table: IRValue, column: IRValue, left: IRValue,
        order: tuple[IRValue, IRValue, IRValue],
    ) -> None:  # fmt: skip
        """Append the call for a strip and some panels; ``left`` are the tiles of this strip and behind it."""
        spec, width = self.spec, self.form.panels * ROWS
        group, panel = divide(e, column, self.count) if spec.groups > 1 else (integer(0), column)
        channel = e.add(e.mul(group, spec.group_outputs), e.mul(panel, width))
        first = e.add(e.mul(group, self.stored_channels), e.mul(panel, width))
        weights = e.element(e.argument(e.parameter("args"), ARGUMENTS.weights, "ptr"), e.mul(first, spec.depth))
        given = [
            table,
            e.parameter("args"),
            e.mul(group, spec.group_inputs),
            channel,
            weights,
            *self._ahead(e, weights, order),
        ]
        last = self.vectors[(self.count - 1) * self.form.panels :]
        half = self.form.strip // 2

        def call(vectors: Sequence[Lanes]) -> None:
            with e.either(e.compare("sgt", left, half)) as branch:
                e.call_void(self._tile(self.form.strip, vectors).name, *given)
                with branch.otherwise():
                    e.call_void(self._tile(half, vectors).name, *given)

        if self.count == 1 or last == self.vectors[: self.form.panels]:
            call(last)
            return
        with e.either(e.compare("eq", panel, self.count - 1)) as branch:
            call(last)
            with branch.otherwise():
                call(self.vectors[: self.form.panels])

    def _ahead(self, e: Emitter, weights: IRValue, order: tuple[IRValue, IRValue, IRValue]) -> list[IRValue]:
        """Return what a call asks for of the next panels: from where on, and how many lines with each tile of words.

        ``order`` is the number of its strip in the unit, how many that has, and whether it asks for anything: strips
        that each run through all weights do not, but for the first.
        """
        strip, count, asks = order
        lines, steps = self.spec.depth * self.form.panels, self._steps()
        behind = e.element(weights, lines * ROWS)
        calls = e.mul(count, steps)
        each = e.select(asks, e.udiv(e.sub(e.add(calls, lines), 1), calls), integer(0))
        return [e.element(behind, e.mul(e.mul(strip, steps * ROWS), each)), each]

    def _steps(self) -> int:
        """Return how many tiles of words a call multiplies with each tile of pixels."""
        whole, tail = self._parts()
        return self.spec.window_rows * self.spec.run[0] * (whole // ROWS + bool(tail))

    # a call ---------------------------------------------------------------------------------------------------------

    def _tile(self, strip: int, vectors: Sequence[Lanes]) -> Emitter:
        name = f"{self.name}.{strip}x{'x'.join(str(lanes.count) for lanes in vectors)}"
        if name not in self.tiles:
            self.tiles[name] = self._tile_function(name, strip, vectors)
        return self.tiles[name]

    def _tile_function(self, name: str, strip: int, vectors: Sequence[Lanes]) -> Emitter:
        parameters = [("ptr noalias readonly", "table"), ("ptr", "args"), ("i64", "inputs")]
        parameters += [("i64", "channel"), ("ptr noalias readonly", "w"), ("ptr", "ahead"), ("i64", "lines")]
        e = Emitter(name, parameters, linkage="internal")
        numbers = [(i, j) for i in range(strip) for j in range(len(vectors))]
        for i, j in numbers:
            matrix_tiles.clear(e, i * len(vectors) + j)
        self._accumulate(e, strip, len(vectors))
        sums = e.variable(f"[{strip * ROWS * len(vectors) * ROWS} x float]", hint="sums", align=LINE_NBYTES)
        for i, j in numbers:
            place = e.element(sums, (i * ROWS * len(vectors) + j) * ROWS)
            matrix_tiles.store(e, i * len(vectors) + j, place, len(vectors) * LINE_NBYTES)
        self._finish(e, strip, vectors, sums)
        return e

    def _accumulate(self, e: Emitter, strip: int, columns: int) -> None:
        spec, table = self.spec, e.parameter("table")
        taps, run = spec.run
        whole, tail = self._parts()
        bases = [
            e.element(e.argument(table, i * self.line + _X, "ptr"), e.parameter("inputs")) for i in range(strip)
        ]  # fmt: skip
        x_row = e.argument(e.parameter("args"), ARGUMENTS.x_row)
        ahead = e.variable("ptr", e.parameter("ahead"), "ahead")
        multiply = _Products(e, strip, columns, spec, has_both=bool(whole and tail))
        with (
            e.loop(0, integer(spec.kernel[0]), unroll=False, hint="ky") as ky,
            e.loop(0, integer(taps), unroll=False, hint="kx") as kx,
        ):
            terms: Terms = [
                (e.mul(ky, spec.dilations[0]), x_row), (kx, spec.dilations[1] * spec.input_pitch)
            ]  # fmt: skip
            lines = [position(e, base, terms) for base in bases]
            run_number = e.add(e.mul(ky, taps), kx)
            weights = e.element(e.parameter("w"), e.mul(run_number, run * ROWS))
            if whole:
                with e.loop(0, integer(whole), ROWS, unroll=False, hint="k") as k:
                    self._prefetch(e, ahead)
                    multiply.step(lines, weights, k, is_tail=False)
            if tail:
                self._prefetch(e, ahead)
                multiply.step(lines, weights, integer(whole), is_tail=bool(whole))

    def _prefetch(self, e: Emitter, ahead: IRValue) -> None:
        """Ask for some lines of the next panels, and go on behind them."""
        if self.weights_nbytes <= NEAR_WEIGHTS_NBYTES:
            return
        place, lines = e.load("ptr", ahead), e.parameter("lines")
        with e.loop(0, lines, unroll=False, hint="line") as line:
            prefetch(e, e.element(place, e.mul(line, ROWS)), write=False, level=2)
        e.store(e.element(place, e.mul(lines, ROWS)), ahead)

    def _finish(self, e: Emitter, strip: int, vectors: Sequence[Lanes], sums: IRValue) -> None:
        """Append the loops over the new pixels of each tile, row by row: the epilogue, and the store."""
        args, table, channel = e.parameter("args"), e.parameter("table"), e.parameter("channel")
        per_channel = {}
        for operand, kind in enumerate(self.operands):
            if kind is OperandKind.CHANNEL:
                base = e.element(e.argument(args, self.entries[operand], "ptr"), channel)
                for j, lanes in enumerate(vectors):
                    per_channel[operand, j] = lanes.read(e, e.element(base, j * ROWS))
        with (
            e.loop(0, integer(strip), unroll=False, hint="tile") as tile,
            e.loop(0, integer(self.segments), unroll=False, hint="segment") as segment,
        ):
            number = e.add(e.add(e.mul(tile, self.line), e.mul(segment, self.segment)), _SEGMENTS)
            entry = e.element(table, number, "i64")
            first = e.add(e.mul(tile, ROWS), e.argument(entry, _FIRST))
            lines = e.element(sums, e.mul(first, len(vectors) * ROWS))
            self._finish_segment(e, entry, vectors, lines, per_channel)

    def _finish_segment(
        self, e: Emitter, entry: IRValue, vectors: Sequence[Lanes], lines: IRValue,
        per_channel: Mapping[tuple[int, int], IRValue],
    ) -> None:  # fmt: skip
        spec, channel, epilogue = self.spec, e.parameter("channel"), self.unrounded or self.spec.epilogue
        y = e.element(e.argument(entry, _Y, "ptr"), channel, spec.stored)
        tensors = {
            operand: e.element(e.argument(entry, _OPERANDS + i, "ptr"), channel)
            for i, operand in enumerate(self.tensors)
        }
        copy = e.element(e.argument(entry, self.segment - 1, "ptr"), channel, "i16") if self.is_copied else None
        with e.loop(0, e.argument(entry, _COUNT), unroll=False, hint="row") as row:
            line = e.element(lines, e.mul(row, len(vectors) * ROWS))
            pixel = e.element(y, e.mul(row, spec.output_pitch), spec.stored)
            values = []
            for j, lanes in enumerate(vectors):

                def read(operand: int, lanes: Lanes = lanes, j: int = j, row: IRValue = row) -> IRValue:
                    if (operand, j) in per_channel:
                        return per_channel[operand, j]
                    place: Terms = [(row, self._operand_pitch(operand)), (j, ROWS)]
                    return lanes.read(e, position(e, tensors[operand], place))

                value = e.load(lanes.type, e.element(line, j * ROWS), LINE_NBYTES)
                values.append(epilogue.apply(e, value, lanes.width, read) if epilogue else value)
            if self.unrounded:
                _write_rounded(e, vectors, values, pixel)
            else:
                for j, (lanes, value) in enumerate(zip(vectors, values, strict=True)):
                    lanes.write(e, value, e.element(pixel, j * ROWS, spec.stored))
            if copy is not None:
                _write_rounded(e, vectors, values, e.element(copy, e.mul(row, spec.out_channels), "i16"))


class _Products:
    """Appends the loads of tiles of A and B, and their products."""

    def __init__(self, e: Emitter, strip: int, columns: int, spec: Convolution, *, has_both: bool) -> None:
        self.e, self.strip, self.columns, self.spec, self.has_both = e, strip, columns, spec, has_both

    def step(self, lines: Sequence[IRValue], weights: IRValue, k: IRValue, *, is_tail: bool) -> None:
        """Append the products of a tile of words of each line; a tile of A that is still loaded is not loaded again.

        Where there are tails, two tiles each are theirs, and only one of A and of B is left.
        """
        e, spec = self.e, self.spec
        a, b = ([_A + is_tail], [_B + is_tail]) if self.has_both else ([_A, _A + 1], [_B, _B + 1])
        held: dict[int, int] = {}
        for j in range(self.columns):
            place = e.element(weights, e.add(e.mul(k, ROWS), j * spec.depth * ROWS))
            matrix_tiles.load(e, b[j % len(b)], place, LINE_NBYTES)
            for i in range(self.strip) if j % 2 == 0 else reversed(range(self.strip)):
                tile = a[i % len(a)]
                if held.get(tile) != i:
                    matrix_tiles.load(e, tile, e.element(lines[i], k), spec.strides[1] * spec.input_pitch * 4)
                    held[tile] = i
                matrix_tiles.multiply(e, FLOAT_PAIRS, i * self.columns + j, tile, b[j % len(b)])


def _write_rounded(e: Emitter, vectors: Sequence[Lanes], values: Sequence[IRValue], pixel: IRValue) -> None:
    """Append the stores of a pixel's channels as bfloat16; one instruction rounds two whole vectors."""
    if len(values) == 2 and not any(lanes.is_part for lanes in vectors):
        e.store(rounded_row(e, *values), pixel, 2)
        return
    for j, (lanes, value) in enumerate(zip(vectors, values, strict=True)):
        lanes.write(e, rounded_lanes(e, value, ROWS), e.element(pixel, j * ROWS, "i16"))


def _put(e: Emitter, entry: IRValue, number: int, value: IRValue) -> None:
    """Write a number or an address to a table."""
    word = e.assign("i64", f"ptrtoint {value.typed} to i64") if value.type == "ptr" else value
    e.store(word, e.element(entry, number, "i64"))
