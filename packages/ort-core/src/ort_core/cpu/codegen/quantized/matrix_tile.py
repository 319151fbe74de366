"""A tile of an integer convolution in registers of tiles (AMX): up to 32 pixels by up to 32 channels in four of them.

A row of a tile of A is 64 bytes of a pixel's run, read where the image lies; a tile of B is 16 words of 16 channels of
a panel. Pixels are places that lie the same number of bytes apart in the input: those of one row of outputs, or those
of an image whose rows follow each other with few places between them that are no outputs (``matrix_tile_driver``).
Sums go to the stack, and from there, those of outputs alone, through the epilogue's expression.
"""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir import matrix_tiles
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.llvm_ir.matrix_tiles import LINE_NBYTES, ROWS
from ort_core.cpu.codegen.quantized.integer_convolution_plan import TILE_PAIR, IntegerConvolution
from ort_core.cpu.codegen.quantized.integer_dot import WORD
from ort_core.cpu.codegen.quantized.integer_tile import IntegerTile

_A, _B = 4, 6  # the first of two tiles each; sums are 0 to 3


def tile_shapes(spec: IntegerConvolution, rows: IRValue) -> list[tuple[IRValue | int, IRValue | int]]:
    """Return the rows and the bytes of a row of the eight tiles, where tiles of pixels have so many rows."""
    nbytes = min(spec.run[1], LINE_NBYTES)
    sums: tuple[IRValue | int, IRValue | int] = (rows, LINE_NBYTES)
    return [sums] * 4 + [(rows, nbytes)] * 2 + [(nbytes // WORD, LINE_NBYTES)] * 2


class MatrixTile(IntegerTile):
    """One or two (``rows``) tiles of places by the vectors of a panel; the thread's tiles are configured.

    ``step`` is the bytes from place to place, ``second`` those from the first to the second tile, whose sums begin
    ``shift`` rows behind those of the first. Of the sums, ``count`` places from ``skip`` on are new. The first of them
    is at ``column`` of a row of ``width`` outputs; the next row begins ``pitch`` places behind this one.
    """

    own_parameters = tuple(
        ("i64", name) for name in ("step", "second", "shift", "skip", "count", "column", "pitch", "width")
    )

    def emit(self) -> Emitter:
        """Return the function."""
        emitter = self.emitter
        columns = len(self.vectors) * self.lanes
        kept = emitter.variable(f"[{self.rows * ROWS * columns} x i32]", align=LINE_NBYTES)
        for number in self._numbers():
            matrix_tiles.clear(emitter, number)
        self._multiply_runs()
        for number in self._numbers():
            tile, vector = divmod(number, TILE_PAIR)
            row = emitter.mul(emitter.parameter("shift"), tile)
            place = emitter.element(kept, emitter.add(emitter.mul(row, columns), vector * self.lanes), "i32")
            matrix_tiles.store(emitter, number, place, columns * WORD)
        self._finish_places(kept, columns)
        return emitter

    def _numbers(self) -> list[int]:
        """Return the tiles of sums: by tiles of places, then by vectors of channels."""
        return [tile * TILE_PAIR + vector for tile in range(self.rows) for vector in range(len(self.vectors))]

    # products ---------------------------------------------------------------------------------------------------------

    def _multiply_runs(self) -> None:
        emitter, spec = self.emitter, self.spec
        weights = emitter.element(emitter.parameter("w"), spec.head_words * self.panel, "i32")
        run = spec.run[1]
        whole, rest = divmod(run, LINE_NBYTES)
        with self._runs() as (number, tap):
            weight = emitter.element(weights, emitter.mul(number, spec.run_words * self.panel), "i32")
            with emitter.loop(0, integer(whole), unroll=False, hint="k") as k:
                line = emitter.element(weight, emitter.mul(k, ROWS * self.panel), "i32")
                self._multiply_step(emitter.element(tap, emitter.mul(k, LINE_NBYTES), "i8"), line)
            if rest:
                line = emitter.element(weight, whole * ROWS * self.panel, "i32")
                self._multiply_step(emitter.element(tap, max(0, run - LINE_NBYTES), "i8"), line)

    def _multiply_step(self, a: IRValue, b: IRValue) -> None:
        """Append the products of a row's length of A with its words of B."""
        emitter = self.emitter
        instruction = matrix_tiles.byte_products(self.spec.is_signed, True)
        step, vectors = emitter.parameter("step"), range(len(self.vectors))
        for vector in vectors:
            place = emitter.element(b, vector * self.lanes, "i32")
            matrix_tiles.load(emitter, _B + vector, place, self.panel * WORD)
        for tile in range(self.rows):
            place = emitter.element(a, emitter.mul(emitter.parameter("second"), tile), "i8")
            matrix_tiles.load(emitter, _A + tile, place, step)
            for vector in vectors:
                matrix_tiles.multiply(emitter, instruction, tile * TILE_PAIR + vector, _A + tile, _B + vector)

    # the epilogue -----------------------------------------------------------------------------------------------------

    def _finish_places(self, kept: IRValue, columns: int) -> None:
        """Append the epilogue of the new sums that are outputs, row by row."""
        emitter, fixed = self.emitter, self._fixed_operands()
        begun = [self._begun(vector) for vector in range(len(self.vectors))]
        count, column, pitch, skip = (emitter.parameter(name) for name in ("count", "column", "pitch", "skip"))
        lines = emitter.add(emitter.udiv(emitter.add(column, emitter.sub(count, 1)), pitch), 1)
        with emitter.loop(0, lines, unroll=False, hint="line") as line:
            first = emitter.sub(emitter.mul(line, pitch), column)
            stop = emitter.minimum(count, emitter.add(first, emitter.parameter("width")))
            with emitter.loop(emitter.maximum(first, 0), stop, unroll=False, hint="place") as place:
                sums = emitter.element(kept, emitter.mul(emitter.add(place, skip), columns), "i32")
                values = []
                for vector, own in enumerate(begun):
                    value = emitter.load(self.type, emitter.element(sums, vector * self.lanes, "i32"), LINE_NBYTES)
                    values.append(value if own is None else self._sum(value, own))
                self._store_pixel(values, fixed, line, emitter.sub(place, first))

    def _begun(self, vector: int) -> IRValue | None:
        """Return what belongs to the sums of a vector of channels beside the products."""
        emitter, own = self.emitter, None
        if self.first is not None:
            own = self._of_channels(self.first, vector)
        if self.spec.head_words:
            head = emitter.element(emitter.parameter("w"), vector * self.lanes, "i32")
            excess = emitter.load(self.type, head, WORD)
            own = excess if own is None else self._sum(own, excess)
        return own

    def _sum(self, left: IRValue, right: IRValue) -> IRValue:
        return self.emitter.assign(self.type, f"add {left.typed}, {right.text}")
