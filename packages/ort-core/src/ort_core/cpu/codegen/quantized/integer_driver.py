"""Walks over the outputs of an integer convolution, piece by piece, panel by panel, and calls the tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from ort_core.cpu.codegen.convolutions.convolution_plan import Tiling
from ort_core.cpu.codegen.images.channels_last import ceil_divide, divide, kernel_emitter, share_of
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.llvm_ir.scalar_printer import STORED
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.quantized.integer_convolution_plan import (
    ARGUMENTS,
    IntegerConvolution,
    panels_of,
)
from ort_core.cpu.codegen.quantized.integer_dot import WORD
from ort_core.cpu.codegen.quantized.integer_tile import IntegerTile

CACHED_INPUT_NBYTES = 1 << 19  # input that is run through all panels before the next; with weights half of an L2
CACHED_WEIGHTS_NBYTES = 1 << 19  # weights up to this stay in the second-level cache for all pixels
SEGMENT_TILES = 4  # tiles of one row that are one piece of work


class TileCall(Protocol):
    """What appends the call of a tile."""

    def __call__(self, pixel: IRValue, width: int, own: Sequence[IRValue] = ()) -> None:
        """Append the call of a tile of so many pixels from one on, with operands of that kind of tile."""


class IntegerDriver:
    """The kernel of a convolution: pieces of work, and calls of the tiles of a piece."""

    def __init__(
        self, name: str, spec: IntegerConvolution, target: Target, tile: type[IntegerTile], cut: Tiling
    ) -> None:
        self.name, self.spec, self.target, self.tile = name, spec, target, tile
        self.cut, self.tiling = panels_of(spec, cut.vectors * target.lanes), cut
        self.entries: list[int] = []
        at = ARGUMENTS.epilogue
        for operand in spec.operands:
            self.entries.append(at)
            at += operand.words
        self.tiles: dict[str, Emitter] = {}

    def functions(self) -> list[Emitter]:
        """Return the tiles and, as the last one, the kernel."""
        driver = self._driver()
        return [*self.tiles.values(), driver]

    # the driver: pieces of work, and the tiles of a piece -------------------------------------------------------------

    def _driver(self) -> Emitter:
        emitter = kernel_emitter(self.name)
        args = emitter.parameter("args")
        batch, height, width = (emitter.argument(args, i) for i in (ARGUMENTS.batch, ARGUMENTS.height, ARGUMENTS.width))
        strips, segments = ceil_divide(emitter, height, self.tiling.rows), ceil_divide(emitter, width, self._segment)
        places = emitter.mul(emitter.mul(batch, strips), segments)
        columns = self.cut.count * self.spec.panel_groups
        with self._working(emitter), share_of(emitter, emitter.mul(places, columns)) as unit:
            place, column = self._place_and_column(emitter, unit, places, columns)
            strip_index, segment = divide(emitter, place, segments)
            image, strip = divide(emitter, strip_index, strips)
            first_row = emitter.mul(strip, self.tiling.rows)
            first = emitter.mul(segment, self._segment)
            end = emitter.minimum(emitter.add(first, self._segment), width)
            group, panel = divide(emitter, column, self.cut.count)
            self._strip(emitter, (image, first_row, group, panel), height, first, end)
        return emitter

    def _working(self, emitter: Emitter) -> AbstractContextManager[None]:
        """Emit what must stand around all work of a thread."""
        del emitter
        return nullcontext()

    @property
    def _segment(self) -> int:
        return self.tiling.widths[0] * SEGMENT_TILES

    def _place_and_column(
        self, emitter: Emitter, unit: IRValue, places: IRValue, columns: int
    ) -> tuple[IRValue, IRValue]:
        """Order pieces so that what is used again is still in the cache: places of a block, panels, blocks."""
        if columns == 1:
            return unit, integer(0)
        spec = self.spec
        pixels = min(spec.expected_width or self._segment, self._segment) * spec.strides[1]
        nbytes = pixels * self.tiling.rows * spec.strides[0] * spec.in_channels
        weights_nbytes = spec.panel_words * WORD * spec.out_channels
        several = max(1, CACHED_INPUT_NBYTES // nbytes)
        block = integer(1 if weights_nbytes <= CACHED_WEIGHTS_NBYTES else several)
        index, within = divide(emitter, unit, emitter.mul(block, columns))
        first = emitter.mul(index, block)
        size = emitter.minimum(emitter.sub(places, first), block)
        column, inner = divide(emitter, within, size)
        return emitter.add(first, inner), column

    def _strip(
        self, emitter: Emitter, where: tuple[IRValue, IRValue, IRValue, IRValue], height: IRValue, first: IRValue,
        end: IRValue,
    ) -> None:  # fmt: skip
        image, row, group, panel = where
        covered = self.tiling.rows

        def rows(is_last: bool) -> None:
            if covered == 1:
                self._row_of_tiles(emitter, 1, is_last, where, first, end)
                return
            stop = emitter.minimum(emitter.add(row, covered), height)
            with emitter.either(emitter.compare("eq", emitter.sub(stop, row), covered)) as branch:
                self._row_of_tiles(emitter, covered, is_last, where, first, end)
                with branch.otherwise(), emitter.loop(row, stop, unroll=False, hint="row") as single:
                    self._row_of_tiles(emitter, 1, is_last, (image, single, group, panel), first, end)

        self._each_panel(emitter, panel, rows)

    def _each_panel(self, emitter: Emitter, panel: IRValue, body: Callable[[bool], None]) -> None:
        """Append the body for a whole panel, and for the last one, where that is smaller."""
        if self.cut.last == self.cut.channels:
            body(False)
        elif self.cut.count == 1:
            body(True)
        else:
            with emitter.either(emitter.compare("eq", panel, self.cut.count - 1)) as branch:
                body(True)
                with branch.otherwise():
                    body(False)

    def _row_of_tiles(
        self, emitter: Emitter, rows: int, is_last: bool, where: tuple[IRValue, IRValue, IRValue, IRValue],
        first: IRValue, end: IRValue,
    ) -> None:  # fmt: skip
        spec, args = self.spec, emitter.parameter("args")
        image, row, group, panel = where
        x_row, x_pixel = emitter.argument(args, ARGUMENTS.x_row), emitter.argument(args, ARGUMENTS.x_pixel)
        x_pixel = x_pixel if spec.x_pixel is None else integer(spec.x_pixel)
        start = emitter.mul(image, emitter.argument(args, ARGUMENTS.x_image))
        start = emitter.add(start, emitter.mul(emitter.mul(row, spec.strides[0]), x_row))
        channel = emitter.add(emitter.mul(group, spec.group_outputs), emitter.mul(panel, self.cut.channels))
        start = emitter.add(start, channel if spec.is_depthwise else emitter.mul(group, spec.group_inputs))
        x = emitter.element(emitter.argument(args, ARGUMENTS.x, "ptr"), start, "i8")
        number = emitter.add(emitter.mul(group, self.cut.count), panel)
        weights = emitter.argument(args, ARGUMENTS.weights, "ptr")
        if spec.is_paired:
            weights = emitter.element(weights, emitter.load("i64", emitter.element(weights, number, "i64")), "i8")
        else:
            weights = emitter.element(weights, emitter.mul(number, spec.panel_words * self.cut.channels), "i32")
        targets = self._targets(emitter, image, row, channel)

        def call(pixel: IRValue, width: int, own: Sequence[IRValue] = ()) -> None:
            offset = emitter.mul(pixel, emitter.mul(x_pixel, spec.strides[1]))
            operands = [emitter.element(x, offset, "i8"), x_row, x_pixel, weights]
            for number, (base, type_, steps) in enumerate(targets):
                operands.append(emitter.element(base, emitter.mul(pixel, steps[1]), type_) if steps else base)
                operands.extend(steps)
                if not number:
                    operands.extend(own)
            emitter.call_void(self._tile(rows, width, is_last).name, *operands)

        self._walk(emitter, first, end, call)

    def _walk(self, emitter: Emitter, first: IRValue, end: IRValue, call: TileCall) -> None:
        """Append the calls of tiles for the pixels of a row: of the widest as long as there is room for one."""
        at = emitter.variable("i64", first, "x")
        for width in self.tiling.widths:
            begin = emitter.load("i64", at)
            with emitter.loop(begin, emitter.sub(end, width - 1), width, unroll=False, hint="x") as pixel:
                call(pixel, width)
                emitter.store(emitter.add(pixel, width), at)

    def _targets(
        self, emitter: Emitter, image: IRValue, row: IRValue, channel: IRValue
    ) -> list[tuple[IRValue, str, tuple[IRValue, ...]]]:
        """Return (address at this row, element type, (row, pixel) strides) of the result and of the operands."""
        args = emitter.parameter("args")
        places = (ARGUMENTS.y_row, ARGUMENTS.y_image, ARGUMENTS.y_pixel)
        entries = [(ARGUMENTS.y, "tensor", STORED[self.spec.expression.dtype], places)]
        for operand, entry in zip(self.spec.operands, self.entries, strict=True):
            entries.append((entry, operand.kind, STORED[operand.dtype], (entry + 1, entry + 2, entry + 3)))
        found: list[tuple[IRValue, str, tuple[IRValue, ...]]] = []
        for entry, kind, type_, (row_at, image_at, pixel_at) in entries:
            base = emitter.argument(args, entry, "ptr")
            if kind in ("channel", "tensor"):
                base = emitter.element(base, channel, type_)
            if kind in ("channel", "one"):
                found.append((base, type_, ()))
                continue
            stride = emitter.argument(args, row_at)
            offset = emitter.add(emitter.mul(image, emitter.argument(args, image_at)), emitter.mul(row, stride))
            found.append((emitter.element(base, offset, type_), type_, (stride, emitter.argument(args, pixel_at))))
        return found

    # a tile -----------------------------------------------------------------------------------------------------------

    def _tile(self, rows: int, pixels: int, is_last: bool) -> Emitter:
        name = f"{self.name}.{rows}x{pixels}{'.last' if is_last else ''}"
        if name not in self.tiles:
            channels = self.cut.last if is_last else self.cut.channels
            self.tiles[name] = self.tile(name, self.spec, self.target, rows, pixels, self.cut.channels, channels).emit()
        return self.tiles[name]
