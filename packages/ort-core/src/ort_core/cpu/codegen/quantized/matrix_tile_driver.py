"""Walks over the outputs of an integer convolution in places of which any 16 neighbors are rows of a tile.

The inputs of neighboring outputs lie a pixel's step apart. Where the input's rows are whole numbers of such steps, as
those of images with their border are, this holds across rows, too: an image is then one sequence of places, in which a
few at the end of each row are no outputs. Else each row of outputs is a sequence. The last tile of a sequence ends
with it, and computes again what it shares with the one before.
"""

from __future__ import annotations

from dataclasses import dataclass

from ort_core.cpu.codegen.images.channels_last import ceil_divide, divide, kernel_emitter, share_of
from ort_core.cpu.codegen.llvm_ir import matrix_tiles
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.llvm_ir.matrix_tiles import ROWS
from ort_core.cpu.codegen.quantized.integer_convolution_plan import ARGUMENTS, TILE_PAIR
from ort_core.cpu.codegen.quantized.integer_driver import IntegerDriver
from ort_core.cpu.codegen.quantized.matrix_tile import tile_shapes

_WASTE = 4  # an image is a sequence if at most one place in so many, and one more, is no output


@dataclass(frozen=True, slots=True)
class _Sequences:
    """How outputs are places: ``count`` sequences, ``per_image`` of each image, and the places from row to row.

    ``rows`` are those of a tile of places.
    """

    count: IRValue
    per_image: IRValue
    length: IRValue
    pitch: IRValue
    rows: IRValue


class MatrixTileDriver(IntegerDriver):
    """The kernel of a convolution in registers of tiles."""

    def _driver(self) -> Emitter:
        emitter = kernel_emitter(self.name)
        args = emitter.parameter("args")
        x_pixel = emitter.argument(args, ARGUMENTS.x_pixel)
        step = emitter.mul(x_pixel if self.spec.x_pixel is None else integer(self.spec.x_pixel), self.spec.strides[1])
        sequences = self._sequences(emitter, step)
        segments = ceil_divide(emitter, sequences.length, self._segment)
        places = emitter.mul(sequences.count, segments)
        columns = self.cut.count * self.spec.panel_groups
        with (
            matrix_tiles.configured(emitter, tile_shapes(self.spec, sequences.rows)),
            share_of(emitter, emitter.mul(places, columns)) as unit,
        ):
            place, column = self._place_and_column(emitter, unit, places, columns)
            sequence, segment = divide(emitter, place, segments)
            first = emitter.mul(segment, self._segment)
            end = emitter.minimum(emitter.add(first, self._segment), sequences.length)
            group, panel = divide(emitter, column, self.cut.count)
            where = (sequence, group, panel, first, end)
            self._each_panel(emitter, panel, lambda is_last: self._places(emitter, sequences, step, where, is_last))
        return emitter

    def _sequences(self, emitter: Emitter, step: IRValue) -> _Sequences:
        spec, args = self.spec, emitter.parameter("args")
        batch, height, width = (emitter.argument(args, i) for i in (ARGUMENTS.batch, ARGUMENTS.height, ARGUMENTS.width))
        line = emitter.mul(emitter.argument(args, ARGUMENTS.x_row), spec.strides[0])
        pitch, rest = divide(emitter, line, emitter.maximum(step, 1))
        least = emitter.mul(width, step)
        most = emitter.add(least, emitter.mul(emitter.udiv(emitter.add(width, 2 * _WASTE), _WASTE), step))
        joined = emitter.compare("sgt", step, 0)
        for condition in (
            emitter.compare("eq", rest, 0), emitter.compare("sge", line, least), emitter.compare("sle", line, most),
        ):  # fmt: skip
            joined = emitter.binary("and", joined, condition)
        one = integer(1)
        rows_of_sequence = emitter.select(joined, height, one)
        per_image = emitter.select(joined, one, height)
        pitch = emitter.select(joined, pitch, emitter.maximum(width, 1))
        before = emitter.mul(emitter.maximum(emitter.sub(rows_of_sequence, 1), 0), pitch)
        length = emitter.select(emitter.compare("sgt", width, 0), emitter.add(before, width), integer(0))
        length = emitter.select(emitter.compare("sgt", height, 0), length, integer(0))
        rows = emitter.minimum(emitter.maximum(length, 1), ROWS)
        return _Sequences(emitter.mul(batch, per_image), per_image, length, pitch, rows)

    def _places(
        self, emitter: Emitter, sequences: _Sequences, step: IRValue,
        where: tuple[IRValue, IRValue, IRValue, IRValue, IRValue], is_last: bool,
    ) -> None:  # fmt: skip
        """Append the tiles of a segment of a sequence for one panel."""
        spec, args = self.spec, emitter.parameter("args")
        sequence, group, panel, first, end = where
        image, row = divide(emitter, sequence, sequences.per_image)
        x_row = emitter.argument(args, ARGUMENTS.x_row)
        start = emitter.mul(image, emitter.argument(args, ARGUMENTS.x_image))
        start = emitter.add(start, emitter.mul(emitter.mul(row, spec.strides[0]), x_row))
        start = emitter.add(start, emitter.mul(group, spec.group_inputs))
        channel = emitter.add(emitter.mul(group, spec.group_outputs), emitter.mul(panel, self.cut.channels))
        x = emitter.element(emitter.argument(args, ARGUMENTS.x, "ptr"), start, "i8")
        number = emitter.add(emitter.mul(group, self.cut.count), panel)
        weights = emitter.argument(args, ARGUMENTS.weights, "ptr")
        weights = emitter.element(weights, emitter.mul(number, spec.panel_words * self.cut.channels), "i32")
        with emitter.loop(first, end, TILE_PAIR * ROWS, unroll=False, hint="at") as at:
            left = emitter.sub(end, at)
            last = emitter.sub(sequences.length, sequences.rows)
            down, column = divide(emitter, at, sequences.pitch)
            targets = self._targets(emitter, image, emitter.add(row, down), channel)

            def tile(tiles: int, begin: IRValue, shift: IRValue, count: IRValue) -> None:
                operands = [emitter.element(x, emitter.mul(begin, step), "i8"), x_row, x_pixel, weights]
                base, _, steps = targets[0]
                operands += [base, *steps, step, emitter.mul(shift, step), shift, emitter.sub(at, begin), count]
                operands += [column, sequences.pitch, emitter.argument(args, ARGUMENTS.width)]
                for base, _, steps in targets[1:]:
                    operands += [base, *steps]
                emitter.call_void(self._tile(tiles, ROWS, is_last).name, *operands)

            x_pixel = emitter.argument(args, ARGUMENTS.x_pixel)
            with emitter.either(emitter.compare("sgt", left, ROWS)) as branch:
                second = emitter.minimum(emitter.add(at, ROWS), last)
                tile(TILE_PAIR, at, emitter.sub(second, at), emitter.minimum(left, TILE_PAIR * ROWS))
                with branch.otherwise():
                    tile(1, emitter.minimum(at, last), integer(0), left)
