"""Convolutions and products of bytes, channels-last: sums of 32 bits in registers, four products at once.

A tile is ``rows x pixels`` outputs by a panel of output channels. The sums run through the epilogue's expression,
which takes zero points off, scales, and may end in bytes again; see ``integer_convolution_plan`` for the layout.
"""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.cpu.codegen.channels_last import ceil_divide, divide, kernel_emitter, share_of
from ort_core.cpu.codegen.emitter import Emitter, Operand, integer, vector_type
from ort_core.cpu.codegen.integer_convolution_plan import ARGUMENTS, IntegerConvolution, panels, tiling
from ort_core.cpu.codegen.integer_dot import WORD, ByteProducts
from ort_core.cpu.codegen.jit import Target
from ort_core.cpu.codegen.narrow_lanes import NarrowLanes, lanes_of
from ort_core.cpu.codegen.scalar_printer import STORED, ScalarPrinter
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import operations

CACHED_INPUT_NBYTES = 1 << 19  # input that is run through all panels before the next; with weights half of an L2
CACHED_WEIGHTS_NBYTES = 1 << 19  # weights up to this stay in the second-level cache for all pixels
SEGMENT_TILES = 4  # tiles of one row that are one piece of work
UNROLLED_OPERATIONS = 24  # longer expressions run in a loop over the pixels of a tile
_SIGN = Operand("i32", "-2139062144")  # 0x80808080: turns signed bytes into unsigned ones, larger by 128


def integer_convolution_kernel(name: str, spec: IntegerConvolution, target: Target) -> list[Emitter]:
    """Return the functions of a convolution; ``name`` is the kernel, the others are its tiles."""
    return _Generator(name, spec, target).functions()


class _Generator:
    def __init__(self, name: str, spec: IntegerConvolution, target: Target) -> None:
        self.name, self.spec, self.target = name, spec, target
        self.cut, self.tiling = panels(spec, target), tiling(spec, target)
        self.entries = []
        at = ARGUMENTS.epilogue
        for operand in spec.operands:
            self.entries.append(at)
            at += operand.words
        self.tiles: dict[str, Emitter] = {}

    def functions(self) -> list[Emitter]:
        driver = self._driver()
        return [*self.tiles.values(), driver]

    # the driver: pieces of work, and the tiles of a piece -------------------------------------------------------------

    def _driver(self) -> Emitter:
        emitter = kernel_emitter(self.name)
        args = emitter.parameter("args")
        batch, height, width = (emitter.argument(args, i) for i in (ARGUMENTS.batch, ARGUMENTS.height, ARGUMENTS.width))
        strips, segments = ceil_divide(emitter, height, self.tiling.rows), ceil_divide(emitter, width, self._segment)
        places = emitter.mul(emitter.mul(batch, strips), segments)
        columns = self.cut.count * self.spec.groups
        with share_of(emitter, emitter.mul(places, columns)) as unit:
            place, column = self._place_and_column(emitter, unit, places, columns)
            strip_index, segment = divide(emitter, place, segments)
            image, strip = divide(emitter, strip_index, strips)
            first_row = emitter.mul(strip, self.tiling.rows)
            first = emitter.mul(segment, self._segment)
            end = emitter.minimum(emitter.add(first, self._segment), width)
            group, panel = divide(emitter, column, self.cut.count)
            self._strip(emitter, (image, first_row, group, panel), height, first, end)
        return emitter

    @property
    def _segment(self) -> int:
        return self.tiling.widths[0] * SEGMENT_TILES

    def _place_and_column(
        self, emitter: Emitter, unit: Operand, places: Operand, columns: int
    ) -> tuple[Operand, Operand]:
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
        self, emitter: Emitter, where: tuple[Operand, Operand, Operand, Operand], height: Operand, first: Operand,
        end: Operand,
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

        if self.cut.last == self.cut.channels:
            rows(False)
        elif self.cut.count == 1:
            rows(True)
        else:
            with emitter.either(emitter.compare("eq", panel, self.cut.count - 1)) as branch:
                rows(True)
                with branch.otherwise():
                    rows(False)

    def _row_of_tiles(
        self, emitter: Emitter, rows: int, is_last: bool, where: tuple[Operand, Operand, Operand, Operand],
        first: Operand, end: Operand,
    ) -> None:  # fmt: skip
        spec, args = self.spec, emitter.parameter("args")
        image, row, group, panel = where
        x_row, x_pixel = emitter.argument(args, ARGUMENTS.x_row), emitter.argument(args, ARGUMENTS.x_pixel)
        start = emitter.mul(image, emitter.argument(args, ARGUMENTS.x_image))
        start = emitter.add(start, emitter.mul(emitter.mul(row, spec.strides[0]), x_row))
        start = emitter.add(start, emitter.mul(group, spec.group_inputs))
        x = emitter.element(emitter.argument(args, ARGUMENTS.x, "ptr"), start, "i8")
        number = emitter.add(emitter.mul(group, self.cut.count), panel)
        weight = emitter.mul(number, spec.panel_words * self.cut.channels)
        weights = emitter.element(emitter.argument(args, ARGUMENTS.weights, "ptr"), weight, "i32")
        channel = emitter.add(emitter.mul(group, spec.group_outputs), emitter.mul(panel, self.cut.channels))
        targets = self._targets(emitter, image, row, channel)
        at = emitter.variable("i64", first, "x")
        for width in self.tiling.widths:
            begin = emitter.load("i64", at)
            with emitter.loop(begin, emitter.sub(end, width - 1), width, unroll=False, hint="x") as pixel:
                offset = emitter.mul(pixel, emitter.mul(x_pixel, spec.strides[1]))
                operands = [emitter.element(x, offset, "i8"), x_row, x_pixel, weights]
                for base, type_, steps in targets:
                    operands.append(emitter.element(base, emitter.mul(pixel, steps[1]), type_) if steps else base)
                    operands.extend(steps)
                emitter.call_void(self._tile(rows, width, is_last).name, *operands)
                emitter.store(emitter.add(pixel, width), at)

    def _targets(
        self, emitter: Emitter, image: Operand, row: Operand, channel: Operand
    ) -> list[tuple[Operand, str, tuple[Operand, ...]]]:
        """Return (address at this row, element type, (row, pixel) strides) of the result and of the operands."""
        args = emitter.parameter("args")
        places = (ARGUMENTS.y_row, ARGUMENTS.y_image, ARGUMENTS.y_pixel)
        entries = [(ARGUMENTS.y, "tensor", STORED[self.spec.expression.dtype], places)]
        for operand, entry in zip(self.spec.operands, self.entries, strict=True):
            entries.append((entry, operand.kind, STORED[operand.dtype], (entry + 1, entry + 2, entry + 3)))
        found: list[tuple[Operand, str, tuple[Operand, ...]]] = []
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
            self.tiles[name] = _Tile(name, self.spec, self.target, rows, pixels, self.cut.channels, channels).emit()
        return self.tiles[name]


class _Tile:
    """One tile function: ``rows x pixels`` outputs by the vectors of a panel that hold channels."""

    def __init__(
        self, name: str, spec: IntegerConvolution, target: Target, rows: int, pixels: int, panel: int, channels: int
    ) -> None:
        self.spec, self.rows, self.pixels, self.panel = spec, rows, pixels, panel
        self.lanes = target.lanes
        self.vectors = lanes_of(channels, target.lanes)
        self.type = vector_type(target.lanes, "i32")
        parameters = [("ptr noalias readonly", "x"), ("i64", "x_row"), ("i64", "x_pixel")]
        parameters += [("ptr noalias readonly", "w"), ("ptr", "y"), ("i64", "y_row"), ("i64", "y_pixel")]
        for number, operand in enumerate(spec.operands):
            parameters.append(("ptr", f"o{number}"))
            if operand.kind in ("tensor", "row"):
                parameters += [("i64", f"o{number}_row"), ("i64", f"o{number}_pixel")]
        self.emitter = Emitter(name, parameters, linkage="internal")
        self.products = ByteProducts(self.emitter, target)

    def emit(self) -> Emitter:
        """Return the function."""
        emitter, zero = self.emitter, Operand(self.type, "zeroinitializer")
        count = self.rows * self.pixels
        sums = [[emitter.variable(self.type, zero, "sum") for _ in self.vectors] for _ in range(count)]
        self._accumulate(sums)
        self._finish(sums)
        return emitter

    def _accumulate(self, sums: list[list[Operand]]) -> None:
        emitter, spec = self.emitter, self.spec
        taps, run = spec.run
        x, x_row, x_pixel, weights = (emitter.parameter(n) for n in ("x", "x_row", "x_pixel", "w"))
        with emitter.loop(0, integer(spec.kernel[0]), unroll=False, hint="ky") as ky:
            line = emitter.element(x, emitter.mul(emitter.mul(ky, spec.dilations[0]), x_row), "i8")
            with emitter.loop(0, integer(taps), unroll=False, hint="kx") as kx:
                tap = emitter.element(line, emitter.mul(emitter.mul(kx, spec.dilations[1]), x_pixel), "i8")
                number = emitter.mul(emitter.add(emitter.mul(ky, taps), kx), spec.run_words * self.panel)
                weight = emitter.element(weights, number, "i32")
                bases = self._pixel_addresses(tap)
                whole, rest = divmod(run, WORD)
                step = next(size for size in (4, 2, 1) if whole % size == 0 and size * len(sums) <= 16) if whole else 1
                with emitter.loop(0, integer(whole), step, unroll=False, hint="k") as k:
                    for part in range(step):
                        at = emitter.add(k, part)
                        self._multiply(sums, bases, at, emitter.element(weight, emitter.mul(at, self.panel), "i32"), 4)
                if rest:
                    last = emitter.element(weight, whole * self.panel, "i32")
                    self._multiply(sums, bases, integer(whole), last, rest)

    def _pixel_addresses(self, tap: Operand) -> list[Operand]:
        emitter, spec = self.emitter, self.spec
        step = emitter.mul(emitter.parameter("x_pixel"), spec.strides[1])
        found = []
        for row in range(self.rows):
            base = emitter.element(tap, emitter.mul(emitter.parameter("x_row"), row * spec.strides[0]), "i8")
            found += [emitter.element(base, emitter.mul(step, pixel), "i8") for pixel in range(self.pixels)]
        return found

    def _multiply(
        self, sums: list[list[Operand]], bases: list[Operand], k: Operand, weight: Operand, nbytes: int
    ) -> None:
        """Append the products of one word of each pixel with a row of the panel."""
        emitter = self.emitter
        factors = [
            self.products.prepared(emitter.load(self.type, emitter.element(weight, i * self.lanes, "i32"), 4))
            for i in range(len(self.vectors))
        ]
        for base, slots in zip(bases, sums, strict=True):
            word = self._word(emitter.element(base, k, "i32"), nbytes)
            number = emitter.splat(word, self.lanes)
            if self.spec.is_signed:
                number = emitter.assign(self.type, f"xor {number.typed}, {emitter.splat(_SIGN, self.lanes).text}")
            spread = self.products.spread(number)
            for factor, slot in zip(factors, slots, strict=True):
                emitter.store(self.products.add(emitter.load(self.type, slot), spread, factor), slot)

    def _word(self, address: Operand, nbytes: int) -> Operand:
        """Load four bytes, or the last one to three of a run: what lies behind them may not exist."""
        emitter = self.emitter
        if nbytes == WORD:
            return emitter.load("i32", address, 1)
        total: Operand | None = None
        for index in range(nbytes):
            byte = emitter.load("i8", emitter.element(address, index, "i8"), 1)
            wide = emitter.assign("i32", f"zext {byte.typed} to i32")
            wide = emitter.assign("i32", f"shl {wide.typed}, {8 * index}") if index else wide
            total = wide if total is None else emitter.assign("i32", f"or {total.typed}, {wide.text}")
        assert total is not None
        return total

    # the epilogue -----------------------------------------------------------------------------------------------------

    def _finish(self, sums: list[list[Operand]]) -> None:
        emitter, spec = self.emitter, self.spec
        fixed = self._fixed_operands()
        if operations(spec.expression) <= UNROLLED_OPERATIONS:
            for index, slots in enumerate(sums):
                row, pixel = divmod(index, self.pixels)
                values = [emitter.load(self.type, slot) for slot in slots]
                self._store_pixel(values, fixed, integer(row), integer(pixel))
            return
        count = len(self.vectors)
        kept = emitter.variable(f"[{len(sums) * count} x {self.type}]")
        for index, slot in enumerate(slot for slots in sums for slot in slots):
            emitter.store(emitter.load(self.type, slot), emitter.element(kept, index, self.type))
        with emitter.loop(0, integer(len(sums)), unroll=False, hint="sum") as number:
            at_row, at_pixel = divide(emitter, number, self.pixels)
            first = emitter.mul(number, count)
            values = [
                emitter.load(self.type, emitter.element(kept, emitter.add(first, i), self.type)) for i in range(count)
            ]
            self._store_pixel(values, fixed, at_row, at_pixel)

    def _fixed_operands(self) -> dict[tuple[int, int], Operand]:
        """Load the operands that are the same for every pixel."""
        emitter, fixed = self.emitter, {}
        for number, operand in enumerate(self.spec.operands):
            base = emitter.parameter(f"o{number}")
            for i, lanes in enumerate(self.vectors):
                if operand.kind == "channel":
                    place = emitter.element(base, i * self.lanes, STORED[operand.dtype])
                    fixed[number, i] = lanes.read(emitter, place, operand.dtype)
                elif operand.kind == "one":
                    fixed[number, i] = self._spread(base, NarrowLanes(1, 1), number)
        return fixed

    def _spread(self, address: Operand, one: NarrowLanes, number: int) -> Operand:
        return self.emitter.splat(one.read(self.emitter, address, self.spec.operands[number].dtype), self.lanes)

    def _store_pixel(
        self, values: Sequence[Operand], fixed: dict[tuple[int, int], Operand], row: Operand, pixel: Operand
    ) -> None:
        emitter, spec = self.emitter, self.spec
        for i, (lanes, value) in enumerate(zip(self.vectors, values, strict=True)):

            def read(index: int, lanes: NarrowLanes = lanes, value: Operand = value, i: int = i) -> Operand:
                if index == 0:
                    return value
                number = index - 1
                if (number, i) in fixed:
                    return fixed[number, i]
                operand = spec.operands[number]
                if operand.kind == "row":
                    return self._spread(
                        self._place(f"o{number}", operand.dtype, row, pixel, 0), NarrowLanes(1, 1), number
                    )
                place = self._place(f"o{number}", operand.dtype, row, pixel, i * self.lanes)
                return lanes.read(emitter, place, operand.dtype)

            result = ScalarPrinter(emitter, self.lanes, read).print(spec.expression)
            stored = spec.expression.dtype
            lanes.write(emitter, result, self._place("y", stored, row, pixel, i * self.lanes), stored)

    def _place(self, name: str, dtype: DataType, row: Operand, pixel: Operand, channel: int) -> Operand:
        emitter = self.emitter
        offset = emitter.add(
            emitter.mul(row, emitter.parameter(f"{name}_row")), emitter.mul(pixel, emitter.parameter(f"{name}_pixel"))
        )
        return emitter.element(emitter.parameter(name), emitter.add(offset, channel), STORED[dtype])
