"""Dense convolution, channels-last, as a register-tiled product over the window and the input channels; no im2col.

A tile is ``rows x pixels`` outputs by up to ``vectors`` vectors of output channels, held in registers for the whole
sum. Neighboring pixels lie a constant number of bytes apart, so that one address register serves a row of the tile.
With dilation 1 the taps of a window row and their channels are one contiguous run of numbers: one inner loop for both.

A last panel of few channels fills its vector with several input channels (``Lanes.fold``); their sums are added up at
the end.

The input must hold the border: pixel (0, 0) of ``x`` is the first tap of the first output (see ``layout.pad``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from ort_core.cpu.codegen.convolutions.convolution_plan import (
    ARGUMENTS,
    Convolution,
    PairConvolution,
    Planes,
    panels,
    tiling,
    turn,
)
from ort_core.cpu.codegen.convolutions.window_planes import window_planes
from ort_core.cpu.codegen.images.channels_last import (
    Lanes,
    OperandKind,
    Terms,
    call_void,
    ceil_divide,
    divide,
    kernel_emitter,
    position,
    share_of,
)
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.llvm_ir.vectors import shuffle
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.bfloat16_product import dot_pairs
from ort_core.cpu.codegen.products.partial_sums import PartialSums
from ort_core.plugin.loops import operations

FAR_WEIGHTS_NBYTES = 1 << 20  # small tiles fetch the next panel of weights beyond this only: it delays their sums
CACHED_INPUT_NBYTES = 1 << 20  # beyond that, this much input is run through all panels before the next
NEAR_WEIGHTS_NBYTES = 1 << 15  # weights up to this stay in the first-level cache and need no prefetch
PREFETCHED_NBYTES = 1 << 12  # how far ahead in a panel: 32 turns of the inner loop, about a memory latency
UNROLLED_OPERATIONS = 12  # longer expressions run in a loop over the pixels of a tile
SEGMENT_TILES = 4  # tiles of one row that are one piece of work: enough to reuse a panel
BALANCED_UNITS = 8  # pieces for each thread, below which a tile is a piece: threads end more nearly together


def convolution_kernel(name: str, spec: Convolution, target: Target) -> list[Emitter]:
    """Return the functions of a convolution; ``name`` is the kernel, the others are its tiles.

    Raises:
        ValueError: the convolution has a border that is not in memory, which only ``depthwise`` makes up.
    """
    if spec.border is not None:
        raise ValueError(f"the convolution {spec} leaves its border out of memory, and this kernel reads it there")
    return _Generator(name, spec, target).functions()


class _Generator:
    def __init__(self, name: str, spec: Convolution, target: Target) -> None:
        self.name = name
        self.spec = spec
        self.cut = panels(spec, target)
        self.tiling = tiling(spec, target)
        self.registers = target.vector_registers
        self.has_large_tiles = target.vector_registers >= 32
        self.cached_weights_nbytes = target.second_level_nbytes // 2  # up to this, read again for each row
        self.operands = spec.epilogue.operands if spec.epilogue else ()
        self.entries = spec.epilogue.entries(ARGUMENTS.epilogue) if spec.epilogue else ()
        self.multiply = dot_pairs if isinstance(spec, PairConvolution) else Emitter.fma
        self.tiles: dict[str, Emitter] = {}

    def functions(self) -> list[Emitter]:
        driver = self._driver()
        return [*self.tiles.values(), driver]

    # the driver: units of work, and the tiles of a unit -------------------------------------------------------------

    def _driver(self) -> Emitter:
        emitter = kernel_emitter(self.name)
        args = emitter.parameter("args")
        batch, height, width = (emitter.argument(args, i) for i in (ARGUMENTS.batch, ARGUMENTS.height, ARGUMENTS.width))
        strips = ceil_divide(emitter, height, self.tiling.rows)
        lines = emitter.mul(batch, strips)
        columns = self.cut.count * self.spec.groups
        segment_pixels = self._segment_pixels(emitter, emitter.mul(lines, columns), width)
        segments = emitter.udiv(emitter.sub(emitter.add(width, segment_pixels), 1), segment_pixels)
        places = emitter.mul(lines, segments)
        with share_of(emitter, emitter.mul(places, columns)) as unit:
            place, column, inner, block = self._place_and_column(emitter, unit, places, columns, segment_pixels)
            strip_index, segment = divide(emitter, place, segments)
            image, strip = divide(emitter, strip_index, strips)
            first_row = emitter.mul(strip, self.tiling.rows)
            first = emitter.mul(segment, segment_pixels)
            end = emitter.minimum(emitter.add(first, segment_pixels), width)
            self._unit(emitter, image, first_row, column, height, (first, end), (inner, block))
        return emitter

    def _segment_pixels(self, emitter: Emitter, lines: IRValue, width: IRValue) -> IRValue:
        """Return how many pixels of a row are one piece of work: some tiles, or one where pieces would be few."""
        tile = self.tiling.widths[0]
        units = emitter.mul(lines, ceil_divide(emitter, width, tile * SEGMENT_TILES))
        few = emitter.compare("slt", units, emitter.mul(emitter.parameter("pieces"), BALANCED_UNITS))
        return emitter.select(few, integer(tile), integer(tile * SEGMENT_TILES))

    def _place_and_column(
        self, emitter: Emitter, unit: IRValue, places: IRValue, columns: int, segment_pixels: IRValue
    ) -> tuple[IRValue, IRValue, IRValue, IRValue]:
        """Order units so that what is used again is still in the cache: places of a block, panels, blocks.

        Returns the place, the panel, the place's number in its block, and how many places the block has.
        """
        if columns == 1:
            return unit, integer(0), integer(0), integer(1)
        block = self._places_per_block(emitter, places, segment_pixels)
        index, within = divide(emitter, unit, emitter.mul(block, columns))
        first = emitter.mul(index, block)
        size = emitter.minimum(emitter.sub(places, first), block)
        column, inner = divide(emitter, within, size)
        return emitter.add(first, inner), column, inner, size

    def _places_per_block(self, emitter: Emitter, places: IRValue, segment_pixels: IRValue) -> IRValue:
        """Return 1 where every thread had better read all weights, else how many places share one reading of them."""
        spec = self.spec
        pixel_nbytes = spec.strides[1] * self.tiling.rows * spec.strides[0] * spec.in_channels * 4
        width = emitter.argument(emitter.parameter("args"), ARGUMENTS.width)
        place_nbytes = emitter.mul(emitter.minimum(segment_pixels, width), pixel_nbytes)
        weights_nbytes = spec.depth * spec.out_channels * 4
        several = emitter.maximum(emitter.udiv(integer(CACHED_INPUT_NBYTES), emitter.maximum(place_nbytes, 1)), 1)
        if weights_nbytes > self.cached_weights_nbytes:
            return several
        is_smaller = emitter.compare("sle", integer(weights_nbytes), emitter.mul(places, place_nbytes))
        return emitter.select(is_smaller, integer(1), several)

    def _unit(
        self, emitter: Emitter, image: IRValue, row: IRValue, column: IRValue, height: IRValue,
        pixels: tuple[IRValue, IRValue], order: tuple[IRValue, IRValue],
    ) -> None:  # fmt: skip
        first, end = pixels
        inner, block = order
        tiles = ceil_divide(emitter, emitter.sub(end, first), self.tiling.widths[0])
        panel_nbytes = 4 * self.cut.channels
        ahead_step = emitter.maximum(emitter.udiv(integer(panel_nbytes), emitter.mul(tiles, block)), 1)
        ahead = (emitter.mul(inner, tiles), ahead_step)
        group, panel = divide(emitter, column, self.cut.count)

        def rows(is_last: bool) -> None:
            covered = self.tiling.rows
            if covered == 1:
                self._row_of_tiles(emitter, 1, is_last, (image, row, group, panel), first, end, ahead)
                return
            stop = emitter.minimum(emitter.add(row, covered), height)
            whole = emitter.compare("eq", emitter.sub(stop, row), covered)
            with emitter.either(whole) as branch:
                self._row_of_tiles(emitter, covered, is_last, (image, row, group, panel), first, end, ahead)
                with branch.otherwise(), emitter.loop(row, stop, unroll=False, hint="row") as single:
                    self._row_of_tiles(emitter, 1, is_last, (image, single, group, panel), first, end, ahead)

        if not self.cut.last or not self.cut.full:
            rows(bool(self.cut.last))
            return
        with emitter.either(emitter.compare("eq", panel, self.cut.full)) as branch:
            rows(True)
            with branch.otherwise():
                rows(False)

    def _row_of_tiles(
        self, emitter: Emitter, rows: int, is_last: bool, where: tuple[IRValue, IRValue, IRValue, IRValue],
        first: IRValue, end: IRValue, ahead: tuple[IRValue, IRValue],
    ) -> None:  # fmt: skip
        spec, args = self.spec, emitter.parameter("args")
        image, row, group, panel = where
        channel = emitter.add(emitter.mul(group, spec.group_outputs), emitter.mul(panel, self.cut.channels))
        x_row = emitter.argument(args, ARGUMENTS.x_row)
        place: Terms = [(image, emitter.argument(args, ARGUMENTS.x_image))]
        taps: list[IRValue] = []
        if spec.planes:
            place, taps = self._plane(emitter, spec.planes, image)
        x = position(
            emitter,
            emitter.argument(args, ARGUMENTS.x, "ptr"),
            [*place, (emitter.mul(row, spec.strides[0]), x_row), (group, spec.group_inputs)],
        )
        weights = position(
            emitter,
            emitter.argument(args, ARGUMENTS.weights, "ptr"),
            [(group, self.cut.stored_channels * spec.depth), (panel, self.cut.channels * spec.depth)],
        )
        scale = []
        if spec.is_scaled:
            first_scale = emitter.argument(args, ARGUMENTS.scale, "ptr")
            scale.append(position(emitter, first_scale, [(image, emitter.argument(args, ARGUMENTS.scale_image))]))
        targets = self._targets(emitter, image, row, channel)
        next_panel = emitter.element(weights, self.cut.channels * spec.depth)
        done, ahead_step = ahead
        at = emitter.variable("i64", first, "x")
        for width in self.tiling.widths:
            start = emitter.load("i64", at)
            stop = emitter.sub(end, width - 1)
            with emitter.loop(start, stop, width, unroll=False, hint="x") as pixel:
                step = [(pixel, spec.strides[1] * spec.input_pitch)]
                tile = emitter.add(done, emitter.udiv(emitter.sub(pixel, first), self.tiling.widths[0]))
                skipped = emitter.mul(emitter.mul(tile, spec.depth), ahead_step)
                ahead_at = emitter.element(next_panel, skipped, "i8")
                operands = [position(emitter, x, step), x_row, *taps, weights, *scale, ahead_at, ahead_step]
                for base, stride, pitch, type_ in targets:
                    operands.append(position(emitter, base, [(pixel, pitch)], type_) if pitch else base)
                    operands.extend([stride] if stride else [])
                emitter.call_void(self._tile(rows, width, is_last).name, *operands)
                emitter.store(emitter.add(pixel, width), at)

    def _plane(self, emitter: Emitter, planes: Planes, image: IRValue) -> tuple[Terms, list[IRValue]]:
        """Return where the window's first plane lies, and what a tile is told: plane stride, first tap, end of taps."""
        args = emitter.parameter("args")
        stride = emitter.argument(args, ARGUMENTS.x_plane)
        found = window_planes(emitter, planes, image, args)
        place = [(found.volume, emitter.argument(args, ARGUMENTS.x_image)), (found.origin, stride)]
        return place, [stride, found.first, found.end]

    def _targets(
        self, emitter: Emitter, image: IRValue, row: IRValue, channel: IRValue
    ) -> list[tuple[IRValue, IRValue | None, int, str]]:
        """Return (address, row stride, pixel pitch, type) of the output and of the epilogue's operands, at this row."""
        args = emitter.parameter("args")
        entries = [(ARGUMENTS.y, ARGUMENTS.y_row, self.spec.output_pitch, self.spec.stored)]
        entries += [
            (entry, entry + 1 if kind is OperandKind.TENSOR else 0, self._operand_pitch(i), "float")
            for i, (kind, entry) in enumerate(zip(self.operands, self.entries, strict=True))
        ]
        found: list[tuple[IRValue, IRValue | None, int, str]] = []
        for entry, stride_entry, pitch, type_ in entries:
            base = emitter.element(emitter.argument(args, entry, "ptr"), channel, type_)
            if not stride_entry:
                found.append((base, None, 0, type_))
                continue
            stride = emitter.argument(args, stride_entry)
            image_stride = emitter.argument(args, stride_entry + 1)
            first = position(emitter, base, [(image, image_stride), (row, stride)], type_)
            found.append((first, stride, pitch, type_))
        return found

    def _operand_pitch(self, operand: int) -> int:
        assert self.spec.epilogue is not None
        return self.spec.epilogue.pitch(operand, self.spec.out_channels)

    # a tile ---------------------------------------------------------------------------------------------------------

    def _tile(self, rows: int, pixels: int, is_last: bool) -> Emitter:
        name = f"{self.name}.{rows}x{pixels}{'.last' if is_last else ''}"
        if name not in self.tiles:
            self.tiles[name] = self._tile_function(name, rows, pixels, self.cut.last if is_last else self.cut.vectors)
        return self.tiles[name]

    def _tile_function(self, name: str, rows: int, pixels: int, vectors: tuple[Lanes, ...]) -> Emitter:
        parameters = [("ptr noalias readonly", "x"), ("i64", "x_row")]
        parameters += [("i64", "x_plane"), ("i64", "first_tap"), ("i64", "end_tap")] if self.spec.planes else []
        parameters += [("ptr noalias readonly", "w")]
        parameters += [("ptr noalias readonly", "scale")] if self.spec.is_scaled else []
        parameters += [("ptr", "ahead"), ("i64", "ahead_step"), ("ptr", "y"), ("i64", "y_row")]
        for i, kind in enumerate(self.operands):
            parameters.append(("ptr", f"operand{i}"))
            if kind is OperandKind.TENSOR:
                parameters.append(("i64", f"operand{i}_row"))
        emitter = Emitter(name, parameters, linkage="internal")
        zero = [IRValue(lanes.sum_type, "zeroinitializer") for lanes in vectors]
        sums = [[emitter.variable(each.type, each, "sum") for each in zero] for _ in range(rows * pixels)]
        self._accumulate(emitter, rows, pixels, vectors, sums)
        if vectors[0].fold > 1:
            sums = [[_unfolded(emitter, vectors[0], slot) for slot in pixel_sums] for pixel_sums in sums]
        self._finish(emitter, pixels, vectors, sums)
        return emitter

    def _accumulate(
        self, emitter: Emitter, rows: int, pixels: int, vectors: tuple[Lanes, ...], sums: list[list[IRValue]]
    ) -> None:
        spec, x = self.spec, emitter.parameter("x")
        partial = None
        if spec.chain != (spec.window_rows, spec.run[1]):
            slots = [slot for pixel_sums in sums for slot in pixel_sums]
            partial = PartialSums(emitter, slots, [lanes.sum_type for lanes in vectors] * len(sums))
        if spec.planes is None:
            self._accumulate_plane(emitter, rows, pixels, vectors, sums, partial, (x, integer(0)))
        else:
            first, end = emitter.parameter("first_tap"), emitter.parameter("end_tap")
            with emitter.loop(first, end, unroll=False, hint="kz") as kz:
                plane = position(emitter, x, [(emitter.mul(kz, spec.planes.dilation), emitter.parameter("x_plane"))])
                first_row = emitter.mul(kz, spec.kernel[0])
                self._accumulate_plane(emitter, rows, pixels, vectors, sums, partial, (plane, first_row))
        if partial:
            partial.take_back()

    def _accumulate_plane(
        self, emitter: Emitter, rows: int, pixels: int, vectors: tuple[Lanes, ...], sums: list[list[IRValue]],
        partial: PartialSums | None, place: tuple[IRValue, IRValue],
    ) -> None:  # fmt: skip
        """Append the products of one plane of the window: its address, and the number of its first row of taps."""
        spec = self.spec
        if self._shares_pixels(vectors, len(sums)):
            self._accumulate_columns(emitter, rows, pixels, vectors[0], sums, partial, place)
            return
        x, first_row = place
        taps, run = spec.run
        panel = sum(lanes.width for lanes in vectors)
        x_row, weights = emitter.parameter("x_row"), emitter.parameter("w")
        fold, (whole_rows, each) = vectors[0].fold, spec.chain
        length = run if whole_rows else math.gcd(run, each)  # what a turn divides, so that it ends where parts do
        step = fold * self._turn(length // fold, len(sums) * len(vectors))
        with (
            _window_rows(emitter, spec, partial) as ky,
            emitter.loop(0, integer(taps), unroll=False, hint="kx") as kx,
        ):
            line = position(emitter, x, [(emitter.mul(ky, spec.dilations[0]), x_row)])
            tap = position(emitter, line, [(kx, spec.dilations[1] * spec.input_pitch)])
            bases = [position(emitter, tap, [(x_row, row * spec.strides[0])]) for row in range(rows)]
            panel_row = emitter.add(emitter.mul(emitter.add(first_row, ky), taps), kx)
            weight = position(emitter, weights, [(panel_row, run * panel)])
            with _run_parts(emitter, spec, partial) as part, emitter.loop(*part, step, unroll=False, hint="k") as k:
                for number in range(0, step, fold):
                    at = emitter.add(k, number)
                    row_of_panel = emitter.element(weight, emitter.mul(at, panel))
                    depth = emitter.add(emitter.mul(panel_row, run), at)
                    self._prefetch(emitter, len(sums), bases[0], at, depth, row_of_panel)
                    self._multiply(emitter, pixels, vectors, sums, bases, at, row_of_panel)

    def _shares_pixels(self, vectors: tuple[Lanes, ...], sums: int) -> bool:
        """Return whether input numbers are spread over a vector once for all taps of a window row that read them.

        Several of them need an instruction of their own for that, where one number is spread as it is multiplied
        (32 to 8 channels of 64 x 80: 0.38 ms, else 0.45; 64 to 16 of 80 x 112: 2.4 ms, else 2.3).
        """
        width = self.spec.kernel[1]
        is_folded = vectors[0].fold > 1 and 1 < width <= sums
        return is_folded and self.spec.chain[0] > 0 and sums + width + 1 <= self.registers

    def _accumulate_columns(
        self, emitter: Emitter, rows: int, pixels: int, lanes: Lanes, sums: list[list[IRValue]],
        partial: PartialSums | None, place: tuple[IRValue, IRValue],
    ) -> None:  # fmt: skip
        """Append the same products, those of all taps of a window row at once for each input channel."""
        spec, (x, first_row) = self.spec, place
        width, inputs = spec.kernel[1], spec.group_inputs
        x_row, weights = emitter.parameter("x_row"), emitter.parameter("w")
        step = lanes.fold * self._turn(inputs // lanes.fold, len(sums) * width)
        with _window_rows(emitter, spec, partial) as ky:
            line = position(emitter, x, [(emitter.mul(ky, spec.dilations[0]), x_row)])
            bases = [position(emitter, line, [(x_row, row * spec.strides[0])]) for row in range(rows)]
            first = emitter.mul(emitter.add(first_row, ky), width * inputs)
            with emitter.loop(0, integer(inputs), step, unroll=False, hint="k") as k:
                for number in range(0, step, lanes.fold):
                    at = emitter.add(k, number)
                    depths = [emitter.add(emitter.add(first, tap * inputs), at) for tap in range(width)]
                    places = [emitter.element(weights, emitter.mul(depth, lanes.width)) for depth in depths]
                    factors = [emitter.load(lanes.sum_type, place, align=4 * lanes.sum_width) for place in places]
                    for row, base in enumerate(bases):
                        row_sums = [slot for (slot,) in sums[row * pixels : (row + 1) * pixels]]
                        self._multiply_columns(emitter, lanes, row_sums, emitter.element(base, at), factors)

    def _multiply_columns(
        self, emitter: Emitter, lanes: Lanes, sums: list[IRValue], first: IRValue, factors: list[IRValue]
    ) -> None:
        """Append the products of the input numbers of each column with the factors of all taps that read it."""
        spec = self.spec
        readers: dict[int, list[tuple[IRValue, IRValue]]] = {}
        for tap, factor in enumerate(factors):
            for pixel, slot in enumerate(sums):
                column = pixel * spec.strides[1] + tap * spec.dilations[1]
                readers.setdefault(column, []).append((factor, slot))
        for column, products in sorted(readers.items()):
            numbers = _spread(emitter, lanes, emitter.element(first, column * spec.input_pitch))
            for factor, slot in products:
                emitter.store(self.multiply(emitter, numbers, factor, emitter.load(factor.type, slot)), slot)

    def _turn(self, run: int, sums: int) -> int:
        """Return how many input numbers one turn of the inner loop takes.

        In tiles of many registers one fills the pipes if there are sums enough; more make the compiler load the next
        weights early and spill the sums. Small register files need more instructions for each product: 2.0 with one
        number in a turn, 1.8 with four, which tells where the processor is shared (ResNet-50 on a virtual machine with
        AVX2: 59.5 ms and 55.3).
        """
        if self.has_large_tiles and sums >= 12:
            return 1
        return turn(run)

    def _prefetch(self, emitter: Emitter, tile: int, base: IRValue, at: IRValue, depth: IRValue, line: IRValue) -> None:
        """Ask for what comes next: with one turn of the inner loop goes one piece of the work to come.

        Hardware does not foresee the step to another page, tile or panel; these three do. Measured on 7x7 images,
        512 to 512 channels, 3x3, weights not in the cache: 94 GFLOP/s without, 121 with the first, 150 with both.
        """
        spec = self.spec
        weights_nbytes, line_floats = spec.depth * spec.out_channels * 4, 16
        if weights_nbytes > NEAR_WEIGHTS_NBYTES:
            for first in range(0, self.cut.channels, line_floats):
                prefetch(emitter, emitter.element(line, PREFETCHED_NBYTES // 4 + first), 3)
        if weights_nbytes > (NEAR_WEIGHTS_NBYTES if self.has_large_tiles else FAR_WEIGHTS_NBYTES):
            step = emitter.mul(depth, emitter.parameter("ahead_step"))
            prefetch(emitter, emitter.element(emitter.parameter("ahead"), step, "i8"), 2)
        if self.has_large_tiles and spec.kernel == (1, 1):
            # the pixels of the next tile; larger windows have read most of them before
            pitch = spec.strides[1] * spec.input_pitch
            prefetch(emitter, emitter.element(emitter.element(base, emitter.mul(at, 16)), tile * pitch), 3)

    def _multiply(
        self, emitter: Emitter, pixels: int, vectors: tuple[Lanes, ...], sums: list[list[IRValue]],
        bases: list[IRValue], at: IRValue, line: IRValue,
    ) -> None:  # fmt: skip
        """Append the products of a number of each pixel, or those that share a vector, with a row of the panel."""
        factors = []
        for i, lanes in enumerate(vectors):
            place = emitter.element(line, i * lanes.width)
            factors.append(emitter.load(lanes.sum_type, place, align=4 * lanes.sum_width))
        if self.spec.is_scaled:  # the weights, not the pixels: there are fewer of them in a tile
            scale = emitter.load("float", emitter.element(emitter.parameter("scale"), at))
            spread = emitter.splat(scale, vectors[0].width)
            factors = [emitter.binary("fmul", factor, spread) for factor in factors]
        pitch = self.spec.strides[1] * self.spec.input_pitch
        for index, pixel_sums in enumerate(sums):
            row, pixel = divmod(index, pixels)
            address = emitter.element(emitter.element(bases[row], at), pixel * pitch)
            number = _spread(emitter, vectors[0], address)
            for factor, slot in zip(factors, pixel_sums, strict=True):
                emitter.store(self.multiply(emitter, number, factor, emitter.load(factor.type, slot)), slot)

    def _finish(self, emitter: Emitter, pixels: int, vectors: tuple[Lanes, ...], sums: list[list[IRValue]]) -> None:
        epilogue = self.spec.epilogue
        bases = [
            emitter.parameter("y"),
            *(emitter.parameter(f"operand{i}") for i in range(len(self.operands))),
        ]
        per_channel = {
            (operand, i): lanes.read(emitter, emitter.element(bases[operand + 1], i * lanes.width))
            for operand, kind in enumerate(self.operands)
            if kind is OperandKind.CHANNEL
            for i, lanes in enumerate(vectors)
        }
        if epilogue is None or operations(epilogue.expression) <= UNROLLED_OPERATIONS:
            for index, pixel_sums in enumerate(sums):
                row, pixel = divmod(index, pixels)
                values = [emitter.load(lanes.type, slot) for lanes, slot in zip(vectors, pixel_sums, strict=True)]
                self._store_pixel(emitter, vectors, values, per_channel, integer(row), integer(pixel))
            return
        kept = self._kept_sums(emitter, vectors, sums)
        with emitter.loop(0, integer(len(sums)), unroll=False, hint="sum") as sum_index:
            sum_row, sum_pixel = divide(emitter, sum_index, pixels)
            first = emitter.mul(sum_index, len(vectors))
            values = [
                emitter.load(lanes.type, emitter.element(kept, emitter.add(first, i), lanes.type))
                for i, lanes in enumerate(vectors)
            ]
            self._store_pixel(emitter, vectors, values, per_channel, sum_row, sum_pixel)

    def _kept_sums(self, emitter: Emitter, vectors: tuple[Lanes, ...], sums: list[list[IRValue]]) -> IRValue:
        """Append the copy of all sums to the stack: a long expression is then one loop, not one copy per sum."""
        type_ = vectors[0].type
        kept = emitter.variable(f"[{len(sums) * len(vectors)} x {type_}]")
        for index, slot in enumerate(slot for pixel_sums in sums for slot in pixel_sums):
            emitter.store(emitter.load(type_, slot), emitter.element(kept, index, type_))
        return kept

    def _store_pixel(
        self, emitter: Emitter, vectors: tuple[Lanes, ...], values: list[IRValue],
        per_channel: dict[tuple[int, int], IRValue], row: IRValue, pixel: IRValue,
    ) -> None:  # fmt: skip
        epilogue = self.spec.epilogue
        for i, (lanes, value) in enumerate(zip(vectors, values, strict=True)):

            def read(operand: int, lanes: Lanes = lanes, i: int = i) -> IRValue:
                if (operand, i) in per_channel:
                    return per_channel[operand, i]
                base, stride = emitter.parameter(f"operand{operand}"), emitter.parameter(f"operand{operand}_row")
                place: Terms = [(stride, row), (pixel, self._operand_pitch(operand)), (i, lanes.width)]
                return lanes.read(emitter, position(emitter, base, place))

            if epilogue:
                value = epilogue.apply(emitter, value, lanes.width, read)
            place: Terms = [(emitter.parameter("y_row"), row), (pixel, self.spec.output_pitch), (i, lanes.width)]
            lanes.write(emitter, value, position(emitter, emitter.parameter("y"), place, self.spec.stored))


def _spread(emitter: Emitter, lanes: Lanes, address: IRValue) -> IRValue:
    """Return a vector that repeats the input numbers at an address: one, or those that share a vector."""
    if lanes.fold == 1:
        return emitter.splat(emitter.load("float", address), lanes.width)
    numbers = emitter.load(f"<{lanes.fold} x float>", address, align=4)
    return shuffle(emitter, numbers, numbers, [lane % lanes.fold for lane in range(lanes.sum_width)])


def _unfolded(emitter: Emitter, lanes: Lanes, slot: IRValue) -> IRValue:
    """Return a variable with the sums of the lanes that belong to one channel each."""
    value, width = emitter.load(lanes.sum_type, slot), lanes.sum_width
    while width > lanes.width:
        even, odd = (shuffle(emitter, value, value, range(first, width, 2)) for first in range(2))
        value, width = emitter.binary("fadd", even, odd), width // 2
    return emitter.variable(lanes.type, value, "sum")


@contextmanager
def _window_rows(emitter: Emitter, spec: Convolution, partial: PartialSums | None) -> Iterator[IRValue]:
    """Loop over the window's rows in one plane; where chains end behind a row, sums are put aside."""
    rows, each = spec.kernel[0], spec.chain[0]
    if partial is None or each == 0:
        with emitter.loop(0, integer(rows), unroll=False, hint="ky") as ky:
            yield ky
        return
    with emitter.loop(0, integer(rows), each, unroll=False, hint="rows") as first:
        stop = emitter.minimum(emitter.add(first, each), rows)
        with emitter.loop(first, stop, unroll=False, hint="ky") as ky:
            yield ky
        partial.put_aside()


@contextmanager
def _run_parts(emitter: Emitter, spec: Convolution, partial: PartialSums | None) -> Iterator[tuple[IRValue, IRValue]]:
    """Loop over the parts of a run, from where to where; where chains end behind a part, sums are put aside."""
    run, (rows, each) = integer(spec.run[1]), spec.chain
    if partial is None or rows:
        yield integer(0), run
        return
    with emitter.loop(0, run, each, unroll=False, hint="part") as first:
        yield first, emitter.minimum(emitter.add(first, each), run)
        partial.put_aside()


def prefetch(emitter: Emitter, address: IRValue, level: int) -> None:
    """Ask for a cache line; ``level`` 3 is the nearest cache. The address need not exist."""
    hints = (IRValue("i32", "0"), IRValue("i32", str(level)), IRValue("i32", "1"))
    call_void(emitter, "llvm.prefetch.p0", address, *hints)
