"""Copies between layouts: channels-first to channels-last and back, and borders around channels-last images.

A transposition works on squares of one vector by as many: rows are loaded, exchanged in registers in log2(lanes)
rounds, and stored as columns. The last square of a row of pixels overlaps the one before it, which needs no mask.
Elements of 8, 16 and 64 bits are moved as integers, in squares of their own size.
"""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.cpu.codegen.images.channels_last import (
    Lanes,
    ceil_divide,
    divide,
    kernel_emitter,
    position,
    share_of,
    zeros,
)
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, float32, integer
from ort_core.cpu.codegen.llvm_ir.vectors import shuffle, transpose
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.plugin import frozen

UNIT_ELEMENTS = 1 << 14  # numbers that are one piece of work: one or two microseconds
_MOST_ROWS = 16  # of a square: more would not fit the registers


@frozen
class TransposeArguments:
    """Positions in the argument table. Strides count elements; a channels-first row is contiguous.

    ``first`` is the channels-first tensor, ``last`` the channels-last one. Where rows follow each other without a gap
    in both, pass height 1 and all pixels of an image as the width.
    """

    source: int = 0
    target: int = 1
    batch: int = 2
    height: int = 3
    width: int = 4
    first_row: int = 5
    first_channel: int = 6
    first_image: int = 7
    last_row: int = 8
    last_image: int = 9


@frozen
class PadArguments:
    """Positions in the argument table: sizes of the source in pixels, borders in pixels, strides in elements.

    ``target`` is the first number of the whole target, border included. ``source_channel`` is read for channels-first
    sources only, ``channels`` and ``source_pixel`` for the others.
    """

    source: int = 0
    target: int = 1
    batch: int = 2
    height: int = 3
    width: int = 4
    source_row: int = 5
    source_image: int = 6
    target_row: int = 7
    target_image: int = 8
    top: int = 9
    bottom: int = 10
    left: int = 11
    right: int = 12
    source_channel: int = 13
    channels: int = 14
    source_pixel: int = 15


TRANSPOSE_ARGUMENTS = TransposeArguments()
PAD_ARGUMENTS = PadArguments()


def channels_last_kernel(
    name: str, channels: int, target: Target, *, pitch: int | None = None, bits: int = 32
) -> list[Emitter]:
    """Return a kernel that copies channels-first to channels-last; ``pitch``: elements from pixel to pixel there."""
    return [_transpose(name, channels, pitch or channels, target, bits, is_to_last=True)]


def channels_first_kernel(
    name: str, channels: int, target: Target, *, pitch: int | None = None, bits: int = 32
) -> list[Emitter]:
    """Return a kernel that copies channels-last to channels-first; ``pitch``: elements from pixel to pixel there."""
    return [_transpose(name, channels, pitch or channels, target, bits, is_to_last=False)]


def square_of(bits: int, target: Target) -> Lanes:
    """Return a whole vector of as many elements as a square has rows: of bytes, those of the smallest registers."""
    if bits == 32:
        return Lanes(target.lanes, target.lanes)
    width = min(_MOST_ROWS, target.vector_nbytes * 8 // bits)
    return Lanes(width, width, f"i{bits}")


def _transpose(name: str, channels: int, pitch: int, target: Target, bits: int, *, is_to_last: bool) -> Emitter:
    emitter, whole = kernel_emitter(name), square_of(bits, target)
    lanes, element = whole.width, whole.element
    args, at = emitter.parameter("args"), TRANSPOSE_ARGUMENTS
    batch, height, width = (emitter.argument(args, i) for i in (at.batch, at.height, at.width))
    pixels = max(lanes, UNIT_ELEMENTS // channels // lanes * lanes)
    segments = ceil_divide(emitter, width, pixels)
    source, destination = emitter.argument(args, at.source, "ptr"), emitter.argument(args, at.target, "ptr")
    first_base, last_base = (source, destination) if is_to_last else (destination, source)
    plane = emitter.argument(args, at.first_channel)
    with share_of(emitter, emitter.mul(emitter.mul(batch, height), segments)) as unit:
        line, segment = divide(emitter, unit, segments)
        image, row = divide(emitter, line, height)
        first = position(
            emitter,
            first_base,
            [(image, emitter.argument(args, at.first_image)), (row, emitter.argument(args, at.first_row))],
            element,
        )
        last = position(
            emitter,
            last_base,
            [(image, emitter.argument(args, at.last_image)), (row, emitter.argument(args, at.last_row))],
            element,
        )
        start = emitter.mul(segment, pixels)
        stop = emitter.minimum(emitter.add(start, pixels), width)
        with emitter.either(emitter.compare("sge", width, lanes)) as branch:
            final = emitter.sub(width, lanes)
            with emitter.loop(start, stop, lanes, unroll=False, hint="pixel") as block:
                pixel = emitter.minimum(block, final)
                near = emitter.element(first, pixel, element)
                far = position(emitter, last, [(pixel, pitch)], element)
                _squares(emitter, channels, pitch, whole, near, far, plane, is_to_last)
            with branch.otherwise(), emitter.loop(start, stop, unroll=False, hint="pixel") as pixel:
                near = emitter.element(first, pixel, element)
                far = position(emitter, last, [(pixel, pitch)], element)
                with emitter.loop(0, integer(channels), unroll=False, hint="channel") as channel:
                    places = [
                        position(emitter, near, [(channel, plane)], element), emitter.element(far, channel, element),
                    ]  # fmt: skip
                    origin, goal = places if is_to_last else reversed(places)
                    emitter.store(emitter.load(element, origin, whole.align), goal, whole.align)
    return emitter


def _squares(
    emitter: Emitter, channels: int, pitch: int, whole: Lanes, first: IRValue, last: IRValue, plane: IRValue,
    is_to_last: bool,
) -> None:  # fmt: skip
    """Append the copy of a vector of pixels of all channels."""
    lanes, element = whole.width, whole.element
    if channels < lanes and channels <= 4 and pitch == channels:
        _interleave(emitter, channels, whole, first, last, plane, is_to_last)
        return
    squares, rest = divmod(channels, lanes)

    def square(channel: IRValue, existing: Lanes) -> None:
        near = position(emitter, first, [(channel, plane)], element)
        far = emitter.element(last, channel, element)
        if is_to_last:
            rows = [
                emitter.load(existing.type, position(emitter, near, [(i, plane)], element), align=existing.align)
                for i in range(existing.count)
            ]
            columns = transpose(emitter, rows + [zeros(existing)] * (lanes - existing.count))
            for i, column in enumerate(columns):
                existing.write(emitter, column, position(emitter, far, [(i, pitch)], element))
            return
        rows = [existing.read(emitter, position(emitter, far, [(i, pitch)], element)) for i in range(lanes)]
        for i, column in enumerate(transpose(emitter, rows)[: existing.count]):
            emitter.store(column, position(emitter, near, [(i, plane)], element), align=existing.align)

    if squares:
        with emitter.loop(0, integer(squares * lanes), lanes, unroll=False, hint="channel") as channel:
            square(channel, whole)
    if rest:
        square(integer(squares * lanes), Lanes(lanes, rest, element))


def _interleave(
    emitter: Emitter, channels: int, one: Lanes, first: IRValue, last: IRValue, plane: IRValue, is_to_last: bool
) -> None:
    """Append the copy of a vector of pixels of very few channels: they are contiguous vectors in both layouts."""
    lanes, element = one.width, one.element
    near = [position(emitter, first, [(i, plane)], element) for i in range(channels)]
    far = [emitter.element(last, i * lanes, element) for i in range(channels)]
    origins, goals = (near, far) if is_to_last else (far, near)
    joined = joined_vectors(emitter, [one.read(emitter, origin) for origin in origins])
    for i, goal in enumerate(goals):
        if is_to_last:
            numbers = range(i * lanes, (i + 1) * lanes)
            places = [n % channels * lanes + n // channels for n in numbers]
        else:
            places = [lane * channels + i for lane in range(lanes)]
        one.write(emitter, shuffle(emitter, joined, joined, places), goal)


def joined_vectors(emitter: Emitter, vectors: Sequence[IRValue]) -> IRValue:
    """Append the concatenation of vectors of one type, filled up to a power of two of them."""
    parts = list(vectors)
    while len(parts) > 1:
        if len(parts) % 2:
            parts.append(parts[-1])
        size = int(parts[0].type[1:].partition(" x ")[0])
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [shuffle(emitter, a, b, range(2 * size)) for a, b in pairs]
    return parts[0]


def pad_kernel(name: str, *, value: float = 0.0, is_dense: bool = True) -> list[Emitter]:
    """Return a kernel that copies channels-last images into larger ones and fills the border with a value.

    ``is_dense``: there is nothing between the pixels of the source.
    """
    return bordered(name, None, value, _copy_function(f"{name}.copy", is_dense=is_dense))


def padded_channels_last_kernel(name: str, channels: int, target: Target) -> list[Emitter]:
    """Return a kernel that copies channels-first images into larger, channels-last ones and fills the border with 0.

    Rows of the source are contiguous and at least a vector long.
    """
    return bordered(name, channels, 0.0, _transpose_row_function(f"{name}.copy", channels, target))


def border_kernel(name: str, channels: int) -> list[Emitter]:
    """Return a kernel with ``PadArguments`` that fills the border of images with 0, and reads and copies nothing."""
    nothing = Emitter(f"{name}.copy", [*COPY, ("i64", "plane")], linkage="internal")
    return bordered(name, channels, 0.0, nothing)


def bordered(name: str, channels: int | None, value: float, copy: Emitter) -> list[Emitter]:
    """Return a kernel that walks over the rows of images, copies each, and fills the border.

    ``copy`` is given a row of the source, its place and its pixels, then the source's plane; where channels are only
    known at run time (``None``), these and how far apart the source's pixels are.
    """
    fill = _fill_function(f"{name}.fill", value)
    emitter = kernel_emitter(name)
    args, at = emitter.parameter("args"), PAD_ARGUMENTS
    batch, height, width, top, bottom, left, right = (
        emitter.argument(args, i) for i in (at.batch, at.height, at.width, at.top, at.bottom, at.left, at.right)
    )
    rows = emitter.add(emitter.add(height, top), bottom)
    count = emitter.argument(args, at.channels) if channels is None else integer(channels)
    inner, before, after = (emitter.mul(pixels, count) for pixels in (width, left, right))
    with share_of(emitter, emitter.mul(batch, rows)) as unit:
        image, row = divide(emitter, unit, rows)
        line = position(
            emitter,
            emitter.argument(args, at.target, "ptr"),
            [(image, emitter.argument(args, at.target_image)), (row, emitter.argument(args, at.target_row))],
        )
        source_row = emitter.sub(row, top)
        with emitter.either(emitter.compare("ult", source_row, height)) as branch:
            emitter.call_void(fill.name, line, before)
            middle = emitter.element(line, before)
            origin = position(
                emitter,
                emitter.argument(args, at.source, "ptr"),
                [(image, emitter.argument(args, at.source_image)), (source_row, emitter.argument(args, at.source_row))],
            )
            steps = [at.source_channel] if channels is not None else [at.channels, at.source_pixel]
            emitter.call_void(copy.name, origin, middle, width, *(emitter.argument(args, step) for step in steps))
            emitter.call_void(fill.name, emitter.element(middle, inner), after)
            with branch.otherwise():
                emitter.call_void(fill.name, line, emitter.add(emitter.add(before, inner), after))
    return [fill, copy, emitter]


COPY = [("ptr noalias readonly", "x"), ("ptr noalias", "y"), ("i64", "pixels")]


def _transpose_row_function(name: str, channels: int, target: Target) -> Emitter:
    """Return the copy of a channels-first row to a channels-last one; the last square overlaps the one before it."""
    emitter = Emitter(name, [*COPY, ("i64", "plane")], linkage="internal")
    x, y, pixels, plane = (emitter.parameter(n) for n in ("x", "y", "pixels", "plane"))
    final = emitter.sub(pixels, target.lanes)
    with emitter.loop(0, pixels, target.lanes, unroll=False, hint="pixel") as block:
        pixel = emitter.minimum(block, final)
        near, far = emitter.element(x, pixel), position(emitter, y, [(pixel, channels)])
        _squares(emitter, channels, channels, square_of(32, target), near, far, plane, is_to_last=True)
    return emitter


def _fill_function(name: str, value: float) -> Emitter:
    emitter = Emitter(name, [("ptr", "y"), ("i64", "count")], linkage="internal")
    with emitter.loop(0, emitter.parameter("count")) as i:
        emitter.store(float32(value), emitter.element(emitter.parameter("y"), i))
    return emitter


def _copy_function(name: str, *, is_dense: bool) -> Emitter:
    emitter = Emitter(name, [*COPY, ("i64", "channels"), ("i64", "pitch")], linkage="internal")
    x, y, pixels, channels, pitch = (emitter.parameter(n) for n in ("x", "y", "pixels", "channels", "pitch"))
    if is_dense:
        _append_copy(emitter, x, y, emitter.mul(pixels, channels))
        return emitter
    with emitter.loop(0, pixels, unroll=False, hint="pixel") as pixel:
        near, far = (position(emitter, base, [(pixel, step)]) for base, step in ((x, pitch), (y, channels)))
        _append_copy(emitter, near, far, channels)
    return emitter


def _append_copy(emitter: Emitter, x: IRValue, y: IRValue, count: IRValue) -> None:
    with emitter.loop(0, count) as i:
        emitter.store(emitter.load("float", emitter.element(x, i)), emitter.element(y, i))
