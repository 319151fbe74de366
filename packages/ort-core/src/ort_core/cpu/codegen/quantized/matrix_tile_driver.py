"""Walks over the outputs of an integer convolution in places of which any 16 neighbors are rows of a tile.

The inputs of neighboring outputs lie a pixel's step apart. Where the input's rows are whole numbers of such steps, as
those of images with their border are, this holds across rows, too: an image is then one sequence of places, in which a
few at the end of each row are no outputs. Else each row of outputs is a sequence, or two rows that fit a tile each are.
The last tile of a sequence ends with it, and computes again what it shares with the one before.
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
    """How outputs are places.

    Attributes:
        count: of all sequences.
        per_image: sequences of each image.
        apart: rows of outputs from one sequence to the next.
        length: places of a sequence.
        pitch: places from row to row of outputs.
        rows: of a tile of places.
        are_pairs: whether a sequence is two rows of outputs, or the last one of an image, a tile each.
    """

    count: IRValue
    per_image: IRValue
    apart: IRValue
    length: IRValue
    pitch: IRValue
    rows: IRValue
    are_pairs: IRValue


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
        one, short = integer(1), emitter.compare("sle", width, ROWS)
        are_pairs = emitter.binary("and", short, emitter.compare("sgt", height, 1))
        are_pairs = emitter.select(joined, IRValue("i1", "false"), are_pairs)
        pairs = emitter.select(are_pairs, integer(TILE_PAIR), one)
        rows = emitter.select(joined, height, pairs)
        per_image = emitter.select(joined, one, emitter.udiv(emitter.add(height, emitter.sub(pairs, 1)), pairs))
        pitch = emitter.select(joined, pitch, emitter.select(are_pairs, integer(ROWS), emitter.maximum(width, 1)))
        length = emitter.add(emitter.mul(emitter.sub(rows, 1), pitch), width)
        is_none = emitter.binary("or", emitter.compare("eq", width, 0), emitter.compare("eq", height, 0))
        length = emitter.select(is_none, integer(0), length)
        tile = emitter.minimum(emitter.maximum(emitter.select(are_pairs, width, length), 1), ROWS)
        return _Sequences(emitter.mul(batch, per_image), per_image, pairs, length, pitch, tile, are_pairs)

    def _places(
        self, emitter: Emitter, sequences: _Sequences, step: IRValue,
        where: tuple[IRValue, IRValue, IRValue, IRValue, IRValue], is_last: bool,
    ) -> None:  # fmt: skip
        """Append the tiles of a segment of a sequence for one panel."""
        spec, args = self.spec, emitter.parameter("args")
        sequence, group, panel, first, end = where
        image, row = divide(emitter, sequence, sequences.per_image)
        row = emitter.mul(row, sequences.apart)
        is_single = emitter.compare("sge", emitter.add(row, 1), emitter.argument(args, ARGUMENTS.height))
        is_single = emitter.binary("and", sequences.are_pairs, is_single)
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
            last = emitter.sub(sequences.length, sequences.rows)
            down, column = divide(emitter, at, sequences.pitch)
            targets = self._targets(emitter, image, emitter.add(row, down), channel)

            def tile(tiles: int, begin: IRValue, second: IRValue, shift: IRValue, count: IRValue) -> None:
                operands = [emitter.element(x, emitter.mul(begin, step), "i8"), x_row, x_pixel, weights]
                base, _, steps = targets[0]
                skip = emitter.sub(at, begin)
                operands += [base, *steps, sequences.rows, step, second, shift, skip, count, column, sequences.pitch]
                operands.append(emitter.argument(args, ARGUMENTS.width))
                for base, _, steps in targets[1:]:
                    operands += [base, *steps]
                emitter.call_void(self._tile(tiles, ROWS, is_last).name, *operands)

            x_pixel, left = emitter.argument(args, ARGUMENTS.x_pixel), emitter.sub(end, at)
            left = emitter.select(is_single, emitter.minimum(left, ROWS), left)
            with emitter.either(emitter.compare("sgt", left, ROWS)) as branch:
                shift = emitter.select(
                    sequences.are_pairs, integer(ROWS), emitter.sub(emitter.minimum(emitter.add(at, ROWS), last), at)
                )
                next_row = emitter.mul(x_row, spec.strides[0])
                second = emitter.select(sequences.are_pairs, next_row, emitter.mul(shift, step))
                tile(TILE_PAIR, at, second, shift, emitter.minimum(left, TILE_PAIR * ROWS))
                with branch.otherwise():
                    begin = emitter.select(sequences.are_pairs, at, emitter.minimum(at, last))
                    tile(1, begin, integer(0), integer(0), left)
