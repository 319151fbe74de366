"""A tile of an integer convolution in registers of tiles (AMX): up to 32 pixels by up to 32 channels in four of them.

A row of a tile of A is 64 bytes of a pixel's run, read where the image lies; a tile of B is 16 words of 16 channels of
a panel. Pixels are places that lie the same number of bytes apart in the input: those of one row of outputs, or those
of an image whose rows follow each other with few places between them that are no outputs (``matrix_tile_driver``).
Runs that fit no row of a tile are copied first, those of a window one behind the other. Sums go to the stack, and from
there, those of outputs alone, through the epilogue's expression.
"""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir import matrix_tiles
from ort_core.cpu.codegen.llvm_ir.addresses import copy_bytes
from ort_core.cpu.codegen.llvm_ir.byte_lanes import MOST_PACKED, packed_pair, unrounded
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.llvm_ir.matrix_tiles import LINE_NBYTES, ROWS
from ort_core.cpu.codegen.quantized.integer_convolution_plan import TILE_PAIR, IntegerConvolution, tile_words
from ort_core.cpu.codegen.quantized.integer_dot import WORD
from ort_core.cpu.codegen.quantized.integer_tile import IntegerTile

_A, _B = 4, 6  # the first of two tiles each; sums are 0 to 3


def tile_shapes(spec: IntegerConvolution, rows: IRValue) -> list[tuple[IRValue | int, IRValue | int]]:
    """Return the rows and the bytes of a row of the eight tiles, where tiles of pixels have so many rows."""
    nbytes = min(spec.tile_runs[1], LINE_NBYTES)
    sums: tuple[IRValue | int, IRValue | int] = (rows, LINE_NBYTES)
    return [sums] * 4 + [(rows, nbytes)] * 2 + [(nbytes // WORD, LINE_NBYTES)] * 2


class MatrixTile(IntegerTile):
    """One or two (``rows``) tiles of places by the vectors of a panel; the thread's tiles are configured.

    ``height`` is the rows of a tile, ``step`` the bytes from place to place, ``second`` those from the first to the
    second tile, whose sums begin ``shift`` rows behind those of the first. Of the sums, ``count`` places from ``skip``
    on are new. The first of them is at ``column`` of a row of ``width`` outputs; the next row begins ``pitch`` places
    behind this one.
    """

    own_parameters = tuple(
        ("i64", name) for name in ("height", "step", "second", "shift", "skip", "count", "column", "pitch", "width")
    )

    def emit(self) -> Emitter:
        """Return the function."""
        emitter = self.emitter
        columns = len(self.vectors) * self.lanes
        kept = emitter.variable(f"[{self.rows * ROWS * columns} x i32]", align=LINE_NBYTES)
        self._begin()
        self._multiply_runs()
        for number in self._numbers():
            tile, vector = divmod(number, TILE_PAIR)
            row = emitter.mul(emitter.parameter("shift"), tile)
            place = emitter.element(kept, emitter.add(emitter.mul(row, columns), vector * self.lanes), "i32")
            matrix_tiles.store(emitter, number, place, columns * WORD)
        self._finish_places(kept)
        return emitter

    def _numbers(self) -> list[int]:
        """Return the tiles of sums: by tiles of places, then by vectors of channels."""
        return [tile * TILE_PAIR + vector for tile in range(self.rows) for vector in range(len(self.vectors))]

    def _begin(self) -> None:
        """Append what sums begin with: 0, or a row of numbers that each row of a tile is read from."""
        emitter = self.emitter
        for vector in range(len(self.vectors)):
            numbers = [tile * TILE_PAIR + vector for tile in range(self.rows)]
            own = self._begun(vector)
            if own is None:
                for number in numbers:
                    matrix_tiles.clear(emitter, number)
                continue
            row = emitter.variable(self.type, own, align=LINE_NBYTES)
            for number in numbers:
                matrix_tiles.load(emitter, number, row, 0)

    def _begun(self, vector: int) -> IRValue | None:
        """Return what belongs to the sums of a vector of channels beside the products."""
        emitter, own = self.emitter, None
        if self.first is not None:
            own = self._of_channels(self.first, vector)
        if self.spec.head_words:
            head = emitter.element(emitter.parameter("w"), vector * self.lanes, "i32")
            excess = emitter.load(self.type, head, WORD)
            own = excess if own is None else emitter.assign(self.type, f"add {own.typed}, {excess.text}")
        return own

    # products ---------------------------------------------------------------------------------------------------------

    def _multiply_runs(self) -> None:
        emitter, spec = self.emitter, self.spec
        weights = emitter.element(emitter.parameter("w"), spec.head_words * self.panel, "i32")
        (_, run), step = spec.tile_runs, emitter.parameter("step")
        seconds = [emitter.mul(emitter.parameter("second"), tile) for tile in range(self.rows)]
        if spec.is_gathered:
            tiles = self._gathered(seconds)
            self._multiply_run(tiles, integer(tile_words(run) * WORD), weights)
            return
        with self._runs() as (number, tap):
            weight = emitter.element(weights, emitter.mul(number, tile_words(run) * self.panel), "i32")
            self._multiply_run([emitter.element(tap, second, "i8") for second in seconds], step, weight)

    def _gathered(self, seconds: list[IRValue]) -> list[IRValue]:
        """Append copies of the windows of each tile, and return where they are."""
        emitter, spec = self.emitter, self.spec
        width, run = tile_words(spec.tile_runs[1]) * WORD, spec.run[1]
        copies = emitter.variable(f"[{self.rows * ROWS * width} x i8]", align=LINE_NBYTES)
        tiles = [emitter.element(copies, tile * ROWS * width, "i8") for tile in range(self.rows)]
        x, x_row = emitter.parameter("x"), emitter.parameter("x_row")
        for tile, second in zip(tiles, seconds, strict=True):
            with emitter.loop(0, emitter.parameter("height"), unroll=False, hint="row") as row:
                to = emitter.element(tile, emitter.mul(row, width), "i8")
                place = emitter.element(x, emitter.add(second, emitter.mul(row, emitter.parameter("step"))), "i8")
                for number in range(spec.runs):
                    down, along = divmod(number, spec.run[0])
                    line = emitter.element(place, emitter.mul(x_row, down * spec.dilations[0]), "i8")
                    tap = emitter.element(line, emitter.mul(self.x_pixel, along * spec.dilations[1]), "i8")
                    copy_bytes(emitter, emitter.element(to, number * run, "i8"), tap, integer(run))
        return tiles

    def _multiply_run(self, tiles: list[IRValue], step: IRValue, weights: IRValue) -> None:
        """Append the products of a run, whose bytes each tile's places have ``step`` bytes apart."""
        emitter, run = self.emitter, self.spec.tile_runs[1]
        whole, rest = divmod(run, LINE_NBYTES)
        with emitter.loop(0, integer(whole), unroll=False, hint="k") as k:
            line = emitter.element(weights, emitter.mul(k, ROWS * self.panel), "i32")
            first = emitter.mul(k, LINE_NBYTES)
            self._multiply_step([emitter.element(tile, first, "i8") for tile in tiles], step, line)
        if rest:
            line = emitter.element(weights, whole * ROWS * self.panel, "i32")
            last = max(0, run - LINE_NBYTES)
            self._multiply_step([emitter.element(tile, last, "i8") for tile in tiles], step, line)

    def _multiply_step(self, tiles: list[IRValue], step: IRValue, b: IRValue) -> None:
        """Append the products of a row's length of A with its words of B."""
        emitter, vectors = self.emitter, range(len(self.vectors))
        instruction = matrix_tiles.byte_products(self.spec.is_signed, True)
        for vector in vectors:
            place = emitter.element(b, vector * self.lanes, "i32")
            matrix_tiles.load(emitter, _B + vector, place, self.panel * WORD)
        for tile, place in enumerate(tiles):
            matrix_tiles.load(emitter, _A + tile, place, step)
            for vector in vectors:
                matrix_tiles.multiply(emitter, instruction, tile * TILE_PAIR + vector, _A + tile, _B + vector)

    # the epilogue -----------------------------------------------------------------------------------------------------

    def _finish_places(self, kept: IRValue) -> None:
        """Append the epilogue of the new sums that are outputs, row by row."""
        emitter, fixed = self.emitter, self._fixed_operands()
        count, column, pitch, skip = (emitter.parameter(name) for name in ("count", "column", "pitch", "skip"))
        lines = emitter.add(emitter.udiv(emitter.add(column, emitter.sub(count, 1)), pitch), 1)
        with emitter.loop(0, lines, unroll=False, hint="line") as line:
            first = emitter.sub(emitter.mul(line, pitch), column)
            stop = emitter.minimum(count, emitter.add(first, emitter.parameter("width")))
            start = emitter.maximum(first, 0)
            if self.packs_bytes and len(self.vectors) == MOST_PACKED:
                pairs = emitter.binary("and", emitter.maximum(emitter.sub(stop, start), 0), integer(-2))
                single = emitter.add(start, pairs)
                with emitter.loop(start, single, 2, unroll=False, hint="place") as place:
                    sums = emitter.add(place, skip)
                    both = [self._kept_sums(kept, emitter.add(sums, number)) for number in range(2)]
                    self._store_pair(both, fixed, line, emitter.sub(place, first))
                start = single
            with emitter.loop(start, stop, unroll=False, hint="place") as place:
                values = self._kept_sums(kept, emitter.add(place, skip))
                self._store_pixel(values, fixed, line, emitter.sub(place, first))

    def _kept_sums(self, kept: IRValue, row: IRValue) -> list[IRValue]:
        """Load a row of sums."""
        emitter, count = self.emitter, len(self.vectors)
        sums = emitter.element(kept, emitter.mul(row, count), self.type)
        return [emitter.load(self.type, emitter.element(sums, i, self.type), LINE_NBYTES) for i in range(count)]

    def _store_pair(
        self, both: list[list[IRValue]], fixed: dict[tuple[int, int], IRValue], line: IRValue, pixel: IRValue
    ) -> None:
        """Append the epilogue of two neighbors, whose results are packed together."""
        emitter, stored = self.emitter, self.expression.dtype
        floats, is_rounded = unrounded(self.expression)
        pixels = [pixel, emitter.add(pixel, 1)]
        printed = [self._printed(floats, values, fixed, line, each) for values, each in zip(both, pixels, strict=True)]
        for value, each in zip(packed_pair(emitter, printed, stored, is_rounded), pixels, strict=True):
            emitter.store(value, self._place("y", stored, line, each, 0), 1)
