"""Depthwise and narrow grouped convolution, channels-last, vectorized over the output channels.

A vector of output channels covers several groups. Each of its lanes needs the inputs of its own group: for a depthwise
convolution these are the same channels, else a fixed exchange of lanes per input channel of the group. An input pixel
is loaded once for all the taps of a window row that use it.

The input holds the border, as for ``convolution``, or (``Convolution.border``) the kernel makes it up: rows of the
window outside the image are left out, and pixels beside it are read from zeros. The argument table is the same. Of
volumes, the planes of the window that lie outside are left out as well. Images of a depthwise convolution may lie in
bfloat16 (``RoundedInputConvolution``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ort_core.cpu.codegen.convolutions.convolution_plan import (
    ARGUMENTS,
    Convolution,
    PairConvolution,
    RoundedInputConvolution,
    tile_widths,
)
from ort_core.cpu.codegen.convolutions.window_planes import WindowPlanes, window_planes
from ort_core.cpu.codegen.images.channels_last import (
    Lanes,
    OperandKind,
    Terms,
    ceil_divide,
    channel_vectors,
    divide,
    kernel_emitter,
    position,
    share_of,
    zeros,
)
from ort_core.cpu.codegen.images.layout import joined_vectors
from ort_core.cpu.codegen.llvm_ir.bfloat16_lanes import rounded_lanes, widened_lanes
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.llvm_ir.vectors import shuffle
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.plugin import frozen

VECTORS_PER_UNIT = 16  # vectors of channels that are one piece of work with one output row
UNROLLED_PRODUCTS = 32  # products per output up to which the rows of the window are unrolled
MAX_GROUP_INPUTS = 16  # beyond, a group is wide enough for the dense kernel


def is_narrow(spec: Convolution, target: Target) -> bool:
    """Return whether this kernel takes a convolution; else ``convolution`` does, group by group."""
    lanes, outputs, inputs = target.lanes, spec.group_outputs, spec.group_inputs
    if isinstance(spec, PairConvolution) or spec.groups == 1 or lanes % outputs or inputs > MAX_GROUP_INPUTS:
        return False
    return lanes // outputs * inputs <= 2 * lanes


def narrow_count(spec: Convolution, target: Target) -> int:
    """Return how many elements the packed weights have, those for channels that do not exist included."""
    return -(-spec.out_channels // target.lanes) * target.lanes * spec.depth


def pack_narrow_weights(spec: Convolution, weights: np.ndarray, target: Target) -> np.ndarray:
    """Return the weights ``[out][in / groups][rows][columns]`` as ``[vector][row][column][input][lane]``.

    Those of volumes have ``[planes]`` in front of the rows, which are all rows of one window here.
    """
    lanes, window = target.lanes, (spec.window_rows, spec.kernel[1])
    count = -(-spec.out_channels // lanes)
    padded = np.zeros((count * lanes, spec.group_inputs, *window), np.float32)
    padded[: spec.out_channels] = weights.reshape(spec.out_channels, spec.group_inputs, *window)
    parts = padded.reshape(count, lanes, spec.group_inputs, *window)
    return np.ascontiguousarray(parts.transpose(0, 3, 4, 2, 1)).ravel()


def narrow_kernel(name: str, spec: Convolution, target: Target) -> list[Emitter]:
    """Return the functions of a depthwise or narrow grouped convolution; ``name`` is the kernel."""
    return _Generator(name, spec, target).functions()


@frozen
class _Outside:
    """What tells a pixel beside the image, and where zeros stand to be read for it."""

    width: IRValue
    zeros: IRValue


@frozen
class _Window:
    """The input of a tile: row ``row`` and column ``column`` of ``x`` are those of its first tap.

    Taps ``first_tap`` to ``stop_tap`` lie inside of the image. Of volumes, ``x`` is where the first tap's plane lies or
    would lie.
    """

    x: IRValue
    x_row: IRValue
    row: IRValue
    column: IRValue
    first_tap: IRValue
    stop_tap: IRValue
    outside: _Outside | None


class _Generator:
    def __init__(self, name: str, spec: Convolution, target: Target) -> None:
        self.name, self.spec, self.lanes = name, spec, target.lanes
        self.is_rounded = isinstance(spec, RoundedInputConvolution)
        if self.is_rounded and (spec.planes or spec.group_inputs * spec.group_outputs != 1):
            raise ValueError(f"only depthwise convolutions of images read bfloat16, not {spec}")
        self.element = "i16" if self.is_rounded else "float"  # of the input
        self.vectors = channel_vectors(spec.out_channels, target.lanes)
        self.widths = tile_widths(spec.expected_width, target.vector_registers // 2 - 2)
        is_able = self.is_rounded and target.lanes == 16 and target.has("avx512bf16")
        self.unrounded = spec.epilogue.unrounded if spec.epilogue and is_able else None
        self.operands = spec.epilogue.operands if spec.epilogue else ()
        self.entries = spec.epilogue.entries(ARGUMENTS.epilogue) if spec.epilogue else ()

    def functions(self) -> list[Emitter]:
        tiles = {
            (lanes, pixels): self._tile(f"{self.name}.{pixels}x{lanes.count}", lanes, pixels)
            for lanes in dict.fromkeys(self.vectors)
            for pixels in self.widths
        }
        emitter = kernel_emitter(self.name)
        args = emitter.parameter("args")
        batch, height, width = (emitter.argument(args, i) for i in (ARGUMENTS.batch, ARGUMENTS.height, ARGUMENTS.width))
        chunks = -(-len(self.vectors) // VECTORS_PER_UNIT)
        rows = emitter.mul(batch, height)
        with share_of(emitter, emitter.mul(rows, chunks)) as unit:
            # Rows split between threads as the convolutions before and behind split them: data stays in its core.
            place, chunk = divide(emitter, unit, chunks)
            image, row = divide(emitter, place, height)
            first = emitter.mul(chunk, VECTORS_PER_UNIT)
            at = emitter.variable("i64", integer(0), "x")
            for pixels in self.widths:
                start, stop = emitter.load("i64", at), emitter.sub(width, pixels - 1)
                with emitter.loop(start, stop, pixels, unroll=False, hint="x") as pixel:
                    self._vectors_of_tile(emitter, tiles, pixels, first, (args, image, row, pixel))
                    emitter.store(emitter.add(pixel, pixels), at)
        return [*tiles.values(), emitter]

    def _vectors_of_tile(
        self, emitter: Emitter, tiles: dict[tuple[Lanes, int], Emitter], pixels: int, first: IRValue,
        where: tuple[IRValue, IRValue, IRValue, IRValue],
    ) -> None:  # fmt: skip
        """Append the walk along the channels: memory is read in its own order, which hardware foresees."""
        whole = sum(not lanes.is_part for lanes in self.vectors)
        behind = emitter.add(first, VECTORS_PER_UNIT)
        if whole:
            stop = emitter.minimum(behind, integer(whole))
            with emitter.loop(first, stop, unroll=False, hint="vector") as vector:
                emitter.call_void(tiles[self.vectors[0], pixels].name, *where, vector)
        if whole < len(self.vectors):
            with emitter.when(emitter.compare("sgt", behind, whole)):
                emitter.call_void(tiles[self.vectors[-1], pixels].name, *where, integer(whole))

    # some output pixels of one vector of channels -------------------------------------------------------------------

    def _tile(self, name: str, lanes: Lanes, pixels: int) -> Emitter:
        spec = self.spec
        parameters = [("ptr noalias readonly", "args")] + [("i64", n) for n in ("image", "row", "pixel", "vector")]
        emitter = Emitter(name, parameters, linkage="internal")
        args, image, row, pixel, vector = (emitter.parameter(n) for n in ("args", "image", "row", "pixel", "vector"))
        channel = emitter.mul(vector, self.lanes)
        planes = window_planes(emitter, spec.planes, image, args) if spec.planes else None
        place: Terms = [(planes.volume if planes else image, emitter.argument(args, ARGUMENTS.x_image))]
        if planes:
            place = [*place, (planes.origin, emitter.argument(args, ARGUMENTS.x_plane))]
        inputs = (emitter.mul(vector, self.lanes // spec.group_outputs), spec.group_inputs)
        x = position(emitter, emitter.argument(args, ARGUMENTS.x, "ptr"), [*place, inputs], self.element)
        packed = emitter.argument(args, ARGUMENTS.weights, "ptr")
        weights = position(emitter, packed, [(vector, self.lanes * spec.depth)])
        window = self._window(emitter, x, row, pixel)
        slots = [emitter.variable(lanes.type, zeros(lanes), "sum") for _ in range(pixels)]
        if planes is None:
            self._add_plane(emitter, slots, lanes, window, weights)
        else:
            self._add_planes(emitter, slots, lanes, window, weights, planes)
        sums = [emitter.load(lanes.type, slot) for slot in slots]
        self._store(emitter, lanes, sums, self._targets(emitter, image, row, channel), pixel)
        return emitter

    def _window(self, emitter: Emitter, x: IRValue, row: IRValue, pixel: IRValue) -> _Window:
        spec, args = self.spec, emitter.parameter("args")
        top, left = spec.border[:2] if spec.border else (0, 0)
        first_row = emitter.sub(emitter.mul(row, spec.strides[0]), top)
        first_column = emitter.sub(emitter.mul(pixel, spec.strides[1]), left)
        x_row = emitter.argument(args, ARGUMENTS.x_row)
        if not spec.border:
            start = position(emitter, x, [(first_row, x_row), (first_column, spec.input_pitch)], self.element)
            return _Window(start, x_row, integer(0), integer(0), integer(0), integer(spec.kernel[0]), None)
        height, width = emitter.argument(args, ARGUMENTS.x_height), emitter.argument(args, ARGUMENTS.x_width)

        def rows_above(limit: IRValue) -> IRValue:
            reach = emitter.maximum(emitter.sub(limit, first_row), 0)
            return emitter.minimum(ceil_divide(emitter, reach, spec.dilations[0]), spec.kernel[0])

        nothing = emitter.variable(f"[2 x {vector_type(self.lanes, 'float')}]")
        whole = Lanes(self.lanes, self.lanes)
        for i in range(2):
            whole.write(emitter, zeros(whole), emitter.element(nothing, i * self.lanes))
        outside = _Outside(width, nothing)
        return _Window(x, x_row, first_row, first_column, rows_above(integer(0)), rows_above(height), outside)

    def _add_planes(
        self, emitter: Emitter, slots: list[IRValue], lanes: Lanes, window: _Window, weights: IRValue,
        planes: WindowPlanes,
    ) -> None:  # fmt: skip
        """Append the products of a window over volumes, plane by plane."""
        spec = self.spec
        assert spec.planes is not None
        stride = emitter.argument(emitter.parameter("args"), ARGUMENTS.x_plane)
        with emitter.loop(planes.first, planes.end, unroll=False, hint="kz") as kz:
            plane = position(emitter, window.x, [(emitter.mul(kz, spec.planes.dilation), stride)])
            packed = position(emitter, weights, [(kz, spec.depth // spec.planes.taps * self.lanes)])
            self._add_plane(emitter, slots, lanes, replace(window, x=plane), packed)

    def _add_plane(
        self, emitter: Emitter, slots: list[IRValue], lanes: Lanes, window: _Window, weights: IRValue
    ) -> None:
        """Append the products of the window's rows in one plane, or in an image."""
        spec = self.spec
        products = spec.kernel[0] * spec.kernel[1] * spec.group_inputs
        if spec.border is None and products <= UNROLLED_PRODUCTS:
            for ky in range(spec.kernel[0]):
                self._window_row(emitter, integer(ky), slots, lanes, window, weights)
        else:
            with emitter.loop(window.first_tap, window.stop_tap, unroll=False, hint="ky") as row:
                self._window_row(emitter, row, slots, lanes, window, weights)

    def _window_row(
        self, emitter: Emitter, ky: IRValue, slots: list[IRValue], lanes: Lanes, window: _Window, weights: IRValue
    ) -> None:
        """Append the products of one window row: input pixels from left to right, each with all outputs that use it."""
        spec = self.spec
        columns, inputs = spec.kernel[1], spec.group_inputs
        row = emitter.add(window.row, emitter.mul(ky, spec.dilations[0]))
        line = position(emitter, window.x, [(row, window.x_row)], self.element)
        last = (len(slots) - 1) * spec.strides[1] + (columns - 1) * spec.dilations[1]
        numbers: dict[tuple[int, int], IRValue] = {}
        packed = position(emitter, weights, [(ky, columns * inputs * self.lanes)])
        full = Lanes(self.lanes, self.lanes)
        factors: dict[tuple[int, int], IRValue] = {}
        for pixel, slot in enumerate(slots):
            for kx in range(columns):
                place = pixel * spec.strides[1] + kx * spec.dilations[1]
                if (place, 0) not in numbers:
                    address = self._pixel(emitter, line, window, place, last)
                    numbers.update({(place, i): v for i, v in enumerate(self._inputs(emitter, address, lanes))})
                for i in range(inputs):
                    if (kx, i) not in factors:
                        offset = (kx * inputs + i) * self.lanes
                        factors[kx, i] = full.read(emitter, emitter.element(packed, offset))
                    total = emitter.load(lanes.type, slot)
                    emitter.store(emitter.fma(numbers[place, i], factors[kx, i], total), slot)

    def _pixel(self, emitter: Emitter, line: IRValue, window: _Window, place: int, last: int) -> IRValue:
        """Return the address of a pixel of the window's row, or of zeros if it lies beside the image.

        Only the first and the last of a tile's pixels, as many as the border is wide, can lie there.
        """
        spec = self.spec
        if window.outside is None:
            return emitter.element(line, place * spec.input_pitch, self.element)
        column = emitter.add(window.column, place)
        address = position(emitter, line, [(column, spec.input_pitch)], self.element)
        assert spec.border is not None
        if spec.border[1] <= place <= last - spec.border[3]:
            return address
        inside = emitter.compare("ult", column, window.outside.width)
        return emitter.select(inside, address, window.outside.zeros)

    def _inputs(self, emitter: Emitter, address: IRValue, lanes: Lanes) -> list[IRValue]:
        """Append the loads of an input pixel; vector ``i`` has in each lane input ``i`` of the lane's group."""
        inputs, outputs = self.spec.group_inputs, self.spec.group_outputs
        if self.is_rounded:
            bits = replace(lanes, element=self.element).read(emitter, address)
            return [widened_lanes(emitter, bits, self.lanes)]
        if inputs == outputs == 1:
            return [lanes.read(emitter, address)]
        existing = lanes.count // outputs * inputs
        vectors = channel_vectors(existing, self.lanes)
        parts = [part.read(emitter, emitter.element(address, i * self.lanes)) for i, part in enumerate(vectors)]
        joined = joined_vectors(emitter, parts)
        last = existing - 1
        return [
            shuffle(emitter, joined, joined, [min(lane // outputs * inputs + i, last) for lane in range(self.lanes)])
            for i in range(inputs)
        ]

    def _targets(
        self, emitter: Emitter, image: IRValue, row: IRValue, channel: IRValue
    ) -> list[tuple[IRValue, int, str]]:
        """Return (address of the row, pixel pitch, type) of the output and of the epilogue's operands; 0: no pixels."""
        args = emitter.parameter("args")
        entries = [(ARGUMENTS.y, ARGUMENTS.y_row, self.spec.output_pitch, self.spec.stored)]
        for i, (kind, entry) in enumerate(zip(self.operands, self.entries, strict=True)):
            assert self.spec.epilogue is not None
            pitch = self.spec.epilogue.pitch(i, self.spec.out_channels)
            entries.append((entry, entry + 1 if kind is OperandKind.TENSOR else 0, pitch, "float"))
        found = []
        for entry, strides, pitch, type_ in entries:
            base = emitter.element(emitter.argument(args, entry, "ptr"), channel, type_)
            if strides:
                terms = [(image, emitter.argument(args, strides + 1)), (row, emitter.argument(args, strides))]
                found.append((position(emitter, base, terms, type_), pitch, type_))
            else:
                found.append((base, 0, type_))
        return found

    def _store(
        self, emitter: Emitter, lanes: Lanes, sums: list[IRValue], targets: list[tuple[IRValue, int, str]],
        first: IRValue,
    ) -> None:  # fmt: skip
        per_channel = {
            i: lanes.read(emitter, targets[i + 1][0])
            for i, kind in enumerate(self.operands)
            if kind is OperandKind.CHANNEL
        }
        for pixel, value in enumerate(sums):

            def address(target: int, pixel: int = pixel) -> IRValue:
                base, pitch, type_ = targets[target]
                return position(emitter, base, [(first, pitch), (pixel, pitch)], type_)

            def read(operand: int, pixel: int = pixel) -> IRValue:
                known = per_channel.get(operand)
                return known if known is not None else lanes.read(emitter, address(operand + 1, pixel))

            epilogue = self.unrounded or self.spec.epilogue
            if epilogue:
                value = epilogue.apply(emitter, value, lanes.width, read)
            if self.unrounded:
                value = rounded_lanes(emitter, value, lanes.width)
            lanes.write(emitter, value, address(0))
