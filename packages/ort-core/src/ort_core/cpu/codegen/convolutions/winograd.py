"""Winograd's convolution of 3x3 windows, channels-last: tiles of 2x2 outputs from 16 products instead of 36.

With ``d`` the 4x4 inputs of a tile and ``g`` a window, the outputs are ``A' [(G g G') * (B' d B)] A`` (S. Winograd,
1980; A. Lavin and S. Gray, 2016): a step transforms the inputs of all tiles, a product for each of the 16 places sums
over the channels, a step transforms back and applies the epilogue. All factors are 0, 1, 1/2 and their negatives, so
that rounding errors are about twice those of the plain sum. An infinite input makes all outputs of its tile NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ort_core.cpu.codegen.images.channels_last import (
    Epilogue,
    Lanes,
    OperandKind,
    divide,
    kernel_emitter,
    position,
    share_of,
)
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.machine_code.target import Target

PLACES = 16  # of a transformed tile
TILE = 2  # outputs along an axis
NEAR_WINDOWS = 1 << 14  # transformed at once, 1 MB as doubles: as a whole, 2^19 of them took three times as long
_WEIGHTS = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])  # G


@dataclass(frozen=True, slots=True)
class InputArguments:
    """Positions in the argument table of the input's transform. Strides count elements.

    ``v`` is ``[place][tile][channel]`` with ``place_stride`` from place to place; ``zeros`` points to a zero for each
    channel, read for pixels outside of the image. ``tiles`` are how many are transformed, from number ``first`` on of
    all tiles of all images.
    """

    x: int = 0
    v: int = 1
    zeros: int = 2
    tiles: int = 3
    tiles_down: int = 4
    tiles_across: int = 5
    height: int = 6
    width: int = 7
    x_row: int = 8
    x_image: int = 9
    place_stride: int = 10
    first: int = 11
    count: int = 12


@dataclass(frozen=True, slots=True)
class OutputArguments:
    """Positions in the argument table of the output's transform; ``m`` is ``[place][tile][channel]``, as ``v``."""

    m: int = 0
    y: int = 1
    tiles: int = 2
    tiles_down: int = 3
    tiles_across: int = 4
    height: int = 5
    width: int = 6
    y_row: int = 7
    y_image: int = 8
    place_stride: int = 9
    first: int = 10
    epilogue: int = 11


INPUT_ARGUMENTS = InputArguments()
OUTPUT_ARGUMENTS = OutputArguments()


def transformed_weights(weights: np.ndarray) -> np.ndarray:
    """Return ``[place][input channel][output channel]`` of weights ``[out][in][3][3]``, rounded once."""
    outputs, inputs = weights.shape[:2]
    places = np.empty((PLACES, inputs, outputs), np.float32)
    channels = max(1, NEAR_WINDOWS // outputs)
    for first in range(0, inputs, channels):
        some = weights[:, first : first + channels].transpose(2, 3, 1, 0)
        taps = some.astype(np.float64, order="C").reshape(3, 3, -1)
        rows = np.einsum("ij,jkn->ikn", _WEIGHTS, taps)  # sums of whole vectors: a tenth of the time of one over j, k
        made = np.einsum("lk,ikn->iln", _WEIGHTS, rows)
        places[:, first : first + channels] = made.reshape(PLACES, -1, outputs)
    return places


def input_kernel(
    name: str, channels: int, pads: tuple[int, int], target: Target, x_pixel: int | None = None
) -> list[Emitter]:
    """Return the kernel that transforms the inputs of all tiles; ``pads`` are those at the top and at the left.

    ``channels`` is a multiple of the vector's lanes; ``x_pixel`` are the elements from one input pixel to the next,
    ``None``: ``channels``.
    """
    emitter, at = kernel_emitter(name), INPUT_ARGUMENTS
    args, lanes = emitter.parameter("args"), Lanes(target.lanes, target.lanes)
    height, width, x_row = (emitter.argument(args, i) for i in (at.height, at.width, at.x_row))
    zeros = emitter.argument(args, at.zeros, "ptr")
    place_stride = emitter.argument(args, at.place_stride)
    with _tiles(emitter, (at.tiles, at.first, at.tiles_down, at.tiles_across)) as (tile, image, down, across):
        rows = [emitter.sub(emitter.add(emitter.mul(down, TILE), i), pads[0]) for i in range(4)]
        columns = [emitter.sub(emitter.add(emitter.mul(across, TILE), j), pads[1]) for j in range(4)]
        x = emitter.argument(args, at.x, "ptr")
        x = position(emitter, x, [(image, emitter.argument(args, at.x_image))])
        v = position(emitter, emitter.argument(args, at.v, "ptr"), [(tile, channels)])
        pixels = []
        for row in rows:
            is_row = emitter.compare("ult", row, height)
            for column in columns:
                inside = emitter.binary("and", is_row, emitter.compare("ult", column, width))
                place = position(emitter, x, [(row, x_row), (column, x_pixel or channels)])
                pixels.append(emitter.select(inside, place, zeros))
        with emitter.loop(0, integer(channels), target.lanes, unroll=False, hint="channel") as channel:
            values = [lanes.read(emitter, emitter.element(pixel, channel)) for pixel in pixels]
            goal = emitter.element(v, channel)
            for place_number, value in enumerate(_transformed(emitter, values, _input_line)):
                lanes.write(emitter, value, position(emitter, goal, [(place_number, place_stride)]))
    return [emitter]


def output_kernel(
    name: str, channels: int, epilogue: Epilogue | None, is_whole: bool, target: Target, y_pixel: int | None = None,
    groups: int = 1,
) -> list[Emitter]:  # fmt: skip
    """Return the kernel that makes outputs of the products.

    Args:
        name: the kernel's symbol.
        channels: of the outputs; of one group.
        epilogue: what is done before the store.
        is_whole: tiles cover height and width exactly.
        target: what the code is for.
        y_pixel: elements from one output pixel to the next; ``None``: the channels of all groups.
        groups: how many there are, of which one call makes one.
    """
    emitter, at = kernel_emitter(name), OUTPUT_ARGUMENTS
    pitches = (channels * groups, y_pixel or channels * groups)
    args, lanes = emitter.parameter("args"), Lanes(target.lanes, target.lanes)
    place_stride = emitter.argument(args, at.place_stride)
    height, width = emitter.argument(args, at.height), emitter.argument(args, at.width)
    with _tiles(emitter, (at.tiles, at.first, at.tiles_down, at.tiles_across)) as (tile, image, down, across):
        m = position(emitter, emitter.argument(args, at.m, "ptr"), [(tile, channels)])
        with emitter.loop(0, integer(channels), target.lanes, unroll=False, hint="channel") as channel:
            origin = emitter.element(m, channel)
            places = [lanes.read(emitter, position(emitter, origin, [(i, place_stride)])) for i in range(PLACES)]
            outputs = _transformed(emitter, places, _output_line)
            for number, value in enumerate(outputs):
                row = emitter.add(emitter.mul(down, TILE), number // TILE)
                pixel = emitter.add(emitter.mul(across, TILE), number % TILE)
                if is_whole or number == 0:
                    _finish(emitter, pitches, epilogue, lanes, value, (image, row, pixel, channel))
                    continue
                exists = emitter.binary(
                    "and", emitter.compare("slt", row, height), emitter.compare("slt", pixel, width)
                )
                with emitter.when(exists):
                    _finish(emitter, pitches, epilogue, lanes, value, (image, row, pixel, channel))
    return [emitter]


class _tiles:  # noqa: N801 - a context manager that reads as a statement
    """Open the loop over this thread's tiles; gives the tile's place in memory, its image, row and column."""

    def __init__(self, emitter: Emitter, entries: tuple[int, int, int, int]) -> None:
        args = emitter.parameter("args")
        self._emitter = emitter
        self._sizes = [emitter.argument(args, i) for i in entries]

    def __enter__(self) -> tuple[IRValue, IRValue, IRValue, IRValue]:
        emitter, (tiles, first, down, across) = self._emitter, self._sizes
        self._share = share_of(emitter, tiles)
        tile = self._share.__enter__()
        line, column = divide(emitter, emitter.add(first, tile), across)
        image, row = divide(emitter, line, down)
        return tile, image, row, column

    def __exit__(self, *details: object) -> None:
        self._share.__exit__(*details)  # type: ignore[arg-type]  # contextmanager's own signature


def _transformed(emitter: Emitter, values: Sequence[IRValue], line: object) -> list[IRValue]:
    """Apply a transform of lines to the rows of a square of four, then to the columns of what comes out."""
    rows = [line(emitter, values[4 * i : 4 * i + 4]) for i in range(4)]  # type: ignore[operator]  # one of the two below
    columns = [line(emitter, [row[j] for row in rows]) for j in range(len(rows[0]))]  # type: ignore[operator]  # as above
    return [column[i] for i in range(len(columns[0])) for column in columns]


def _input_line(emitter: Emitter, d: Sequence[IRValue]) -> list[IRValue]:
    """Append B' d."""
    return [
        emitter.binary("fsub", d[0], d[2]),
        emitter.binary("fadd", d[1], d[2]),
        emitter.binary("fsub", d[2], d[1]),
        emitter.binary("fsub", d[1], d[3]),
    ]


def _output_line(emitter: Emitter, m: Sequence[IRValue]) -> list[IRValue]:
    """Append A' m."""
    return [
        emitter.binary("fadd", emitter.binary("fadd", m[0], m[1]), m[2]),
        emitter.binary("fsub", emitter.binary("fsub", m[1], m[2]), m[3]),
    ]


def _finish(
    emitter: Emitter, pitches: tuple[int, int], epilogue: Epilogue | None, lanes: Lanes, value: IRValue,
    where: tuple[IRValue, IRValue, IRValue, IRValue],
) -> None:  # fmt: skip
    """Append the epilogue and the store of one pixel's vector of channels.

    ``pitches`` are the channels of all groups and the elements from one pixel of the output to the next.
    """
    at, args = OUTPUT_ARGUMENTS, emitter.parameter("args")
    image, row, pixel, channel = where

    def address(entry: int, strides: int | None, pitch: int) -> IRValue:
        base = emitter.element(emitter.argument(args, entry, "ptr"), channel)
        if strides is None:
            return base
        row_stride, image_stride = emitter.argument(args, strides), emitter.argument(args, strides + 1)
        return position(emitter, base, [(image, image_stride), (row, row_stride), (pixel, pitch)])

    entries = epilogue.entries(at.epilogue) if epilogue else ()

    def read(operand: int) -> IRValue:
        assert epilogue is not None
        strides = entries[operand] + 1 if epilogue.operands[operand] is OperandKind.TENSOR else None
        return lanes.read(emitter, address(entries[operand], strides, epilogue.pitch(operand, pitches[0])))

    if epilogue:
        value = epilogue.apply(emitter, value, lanes.width, read)
    lanes.write(emitter, value, address(at.y, at.y_row, pitches[1]))
