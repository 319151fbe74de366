"""Pooling, channels-last, vectorized over the channels: maximum, average or sum, and each over a whole image.

Where channels are fewer than a vector has lanes and windows move by one pixel, neighboring pixels fill the vectors.
Windows are clipped to the image, so that no border is needed; a clipped maximum ignores what lies outside, a clipped
average divides by what it counted, or with ``counts_border`` by the part of the window inside the padded image.
A maximum over NaN is NaN. Maxima of images in bfloat16 are such numbers again, and stored so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ort_core.cpu.codegen.images.channels_last import (
    Epilogue,
    Lanes,
    OperandKind,
    Terms,
    channel_vectors,
    divide,
    kernel_emitter,
    position,
    share_of,
)
from ort_core.cpu.codegen.llvm_ir.bfloat16_lanes import narrowed_lanes, widened_lanes
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, float32, integer, vector_type
from ort_core.cpu.codegen.machine_code.target import Target

VECTORS_AT_ONCE = 4  # sums in flight: they hide the latency of additions and share the window's address arithmetic

UNROLLED_TAPS = 25  # of a window inside the image

LOWEST = -3.4028234663852886e38  # of float32
PIECES_PER_IMAGE = 8  # of a whole image's channels, where there are so many: the pieces that threads share


@dataclass(frozen=True, slots=True)
class PoolingArguments:
    """Positions in the argument table. Strides count elements; the epilogue's operands follow from ``epilogue`` on."""

    x: int = 0
    y: int = 1
    batch: int = 2
    height: int = 3
    width: int = 4
    x_height: int = 5
    x_width: int = 6
    x_row: int = 7
    x_image: int = 8
    y_row: int = 9
    y_image: int = 10
    epilogue: int = 11


ARGUMENTS = PoolingArguments()


@dataclass(frozen=True, slots=True)
class Pooling:
    """What is known when the kernel is generated; sizes are run-time arguments.

    Attributes:
        channels: of the images.
        kernel: height and width of the window; ``None``: the whole image, whatever its size.
        strides: of the window.
        dilations: distance of taps.
        pads: border at the top, left, bottom and right; the last two matter with ``counts_border`` alone.
        is_maximum: the largest number; else the average.
        is_sum: the sum instead of the average.
        counts_border: an average divides by the window inside the padded image, not inside the image.
        epilogue: what is done before the store.
        x_pixel: elements from one input pixel to the next; ``None``: ``channels``.
        y_pixel: elements from one output pixel to the next; ``None``: ``channels``.
    """

    channels: int
    kernel: tuple[int, int] | None
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    is_maximum: bool = True
    is_sum: bool = False
    counts_border: bool = False
    epilogue: Epilogue | None = None
    x_pixel: int | None = None
    y_pixel: int | None = None

    @property
    def element(self) -> str:
        """The type of an element of the input and of the result as it lies in memory."""
        return "float"


@dataclass(frozen=True, slots=True)
class RoundedPooling(Pooling):
    """The largest numbers of images in bfloat16, which are stored in bfloat16; nothing else is done before that."""

    def __post_init__(self) -> None:
        """Make sure that nothing has to be rounded."""
        if not self.is_maximum or self.epilogue is not None:
            raise ValueError(f"only the largest numbers of bfloat16 are such again, not {self}")

    @property
    def element(self) -> str:
        """The bits of a bfloat16."""
        return "i16"


@dataclass(frozen=True, slots=True)
class _Span:
    """A window along one axis: taps ``first`` to ``stop``, the place of tap 0, and how many an average counts.

    Attributes:
        taps: how many there are, where the window is known to lie inside the image.
    """

    first: IRValue
    stop: IRValue
    origin: IRValue
    counted: IRValue
    taps: int | None = None

    @classmethod
    def inside(cls, taps: int, origin: IRValue) -> _Span:
        """Return a window that does not hang over the border."""
        return cls(integer(0), integer(taps), origin, integer(taps), taps)


def pooling_kernel(name: str, spec: Pooling, target: Target) -> list[Emitter]:
    """Return the functions of a pooling; ``name`` is the kernel."""
    vectors = channel_vectors(spec.channels, target.lanes)
    whole = [lanes for lanes in vectors if not lanes.is_part]
    at_once = _vectors_at_once(spec, len(vectors))
    chunks = len(whole) // at_once
    remaining = tuple(vectors[chunks * at_once :])
    window = (
        _window_function(f"{name}.full", spec, tuple(whole[:at_once])) if chunks else None,
        _window_function(f"{name}.rest", spec, remaining) if remaining else None,
    )
    lines = []
    if _fills_vectors(spec, target):
        vector = Lanes(target.lanes, target.lanes)
        counts = (VECTORS_AT_ONCE, 1)
        lines = [_window_function(f"{name}.line{n}", spec, (vector,) * n, is_line=True) for n in counts]
    inside: tuple[Emitter | None, Emitter | None] = (None, None)
    if spec.kernel is not None and spec.kernel[0] * spec.kernel[1] <= UNROLLED_TAPS and not lines:
        inside = (
            _window_function(f"{name}.inside", spec, tuple(whole[:at_once]), is_inside=True) if chunks else None,
            _window_function(f"{name}.inside_rest", spec, remaining, is_inside=True) if remaining else None,
        )
    emitter = kernel_emitter(name)
    args = emitter.parameter("args")
    batch, height, width = (emitter.argument(args, i) for i in (ARGUMENTS.batch, ARGUMENTS.height, ARGUMENTS.width))
    step = at_once * target.lanes
    covered = integer(chunks * step)
    if spec.kernel is None:
        pieces = chunks + bool(remaining)
        with share_of(emitter, emitter.mul(batch, pieces)) as unit:
            image, piece = divide(emitter, unit, pieces)
            _one_of(emitter, window, emitter.compare("slt", piece, chunks), image, emitter.mul(piece, step))
    else:
        with share_of(emitter, emitter.mul(batch, height)) as unit:
            image, row = divide(emitter, unit, height)

            def pixels(first: IRValue, stop: IRValue, kind: Sequence[Emitter | None] = window) -> None:
                with emitter.loop(first, stop, unroll=False, hint="x") as pixel:
                    if kind[0]:
                        with emitter.loop(0, covered, step, unroll=False, hint="channel") as channel:
                            emitter.call_void(kind[0].name, args, image, row, pixel, channel)
                    if kind[1]:
                        emitter.call_void(kind[1].name, args, image, row, pixel, covered)

            if lines:
                _walk_line(emitter, spec, lines, target.lanes, (image, row), pixels)
            elif inside[0] or inside[1]:
                first, stop = _inside_pixels(emitter, spec, row)
                pixels(integer(0), first)
                pixels(first, stop, inside)
                pixels(stop, width)
            else:
                pixels(integer(0), width)
    made = [*lines, *(each for each in (*window, *inside) if each)]
    return [*made, emitter]


def _inside_pixels(emitter: Emitter, spec: Pooling, row: IRValue) -> tuple[IRValue, IRValue]:
    """Return the first pixel of a row whose window lies inside the image, and the one after the last such."""
    assert spec.kernel is not None
    args = emitter.parameter("args")
    width = emitter.argument(args, ARGUMENTS.width)
    (top, left), (down, across) = spec.pads[:2], spec.strides
    reach = [(taps - 1) * dilation for taps, dilation in zip(spec.kernel, spec.dilations, strict=True)]
    origin = emitter.sub(emitter.mul(row, down), top)
    below = emitter.add(origin, reach[0])
    is_row = emitter.binary(
        "and", emitter.compare("sge", origin, 0),
        emitter.compare("slt", below, emitter.argument(args, ARGUMENTS.x_height)),
    )  # fmt: skip
    first = emitter.minimum(integer(-(-left // across)), width)
    room = emitter.add(emitter.argument(args, ARGUMENTS.x_width), left - reach[1] + across - 1)
    stop = emitter.maximum(emitter.minimum(emitter.udiv(emitter.maximum(room, 0), across), width), first)
    return emitter.select(is_row, first, width), emitter.select(is_row, stop, width)


def _fills_vectors(spec: Pooling, target: Target) -> bool:
    """Return whether neighboring pixels fill vectors: pixels of few channels lie side by side, as their windows do."""
    if spec.kernel is None or spec.strides[1] != 1 or spec.epilogue is not None:
        return False
    is_dense = (spec.x_pixel or spec.channels) == (spec.y_pixel or spec.channels) == spec.channels
    return is_dense and 2 * spec.channels <= target.lanes


def _walk_line(
    emitter: Emitter, spec: Pooling, lines: Sequence[Emitter], lanes: int, where: tuple[IRValue, IRValue],
    pixels: Callable[[IRValue, IRValue], None],
) -> None:  # fmt: skip
    """Append a row of windows: by pixels where they hang over the border, else by vectors, the last of which overlap.

    ``lines`` compute several vectors and one; ``pixels`` appends the windows from one pixel to another.
    """
    assert spec.kernel is not None
    args, channels = emitter.parameter("args"), spec.channels
    width, x_width = emitter.argument(args, ARGUMENTS.width), emitter.argument(args, ARGUMENTS.x_width)
    reach = (spec.kernel[1] - 1) * spec.dilations[1]
    first = emitter.minimum(integer(spec.pads[1]), width)
    stop = emitter.maximum(emitter.minimum(emitter.add(x_width, spec.pads[1] - reach), width), first)
    begin, end = emitter.mul(first, channels), emitter.mul(stop, channels)
    pixels(integer(0), first)
    with emitter.either(emitter.compare("sge", emitter.sub(end, begin), lanes)) as branch:
        several = VECTORS_AT_ONCE * lanes
        whole = emitter.sub(end, emitter.urem(emitter.sub(end, begin), several))
        with emitter.loop(begin, whole, several, unroll=False, hint="vectors") as at:
            emitter.call_void(lines[0].name, args, *where, integer(0), at)
        with emitter.loop(whole, end, lanes, unroll=False, hint="vector") as at:
            last = emitter.minimum(at, emitter.sub(end, lanes))
            emitter.call_void(lines[1].name, args, *where, integer(0), last)
        with branch.otherwise():
            pixels(first, stop)
    pixels(stop, width)


def _vectors_at_once(spec: Pooling, count: int) -> int:
    """Return how many vectors one window function takes; whole images of few channels leave work for every thread."""
    if spec.kernel is not None:
        return VECTORS_AT_ONCE
    return next((size for size in (VECTORS_AT_ONCE, 2) if count >= PIECES_PER_IMAGE * size), 1)


def _one_of(
    emitter: Emitter, window: tuple[Emitter | None, Emitter | None], is_full: IRValue, image: IRValue, channel: IRValue
) -> None:
    args, zero = emitter.parameter("args"), integer(0)
    full, rest = window
    if full and rest:
        with emitter.either(is_full) as branch:
            emitter.call_void(full.name, args, image, zero, zero, channel)
            with branch.otherwise():
                emitter.call_void(rest.name, args, image, zero, zero, channel)
        return
    only = full or rest
    assert only is not None
    emitter.call_void(only.name, args, image, zero, zero, channel)


def _window_function(
    name: str, spec: Pooling, vectors: Sequence[Lanes], *, is_line: bool = False, is_inside: bool = False
) -> Emitter:
    """Return the function that computes some channels of one output pixel.

    On a line, ``channel`` counts on through the channels of the pixels behind, whose windows do not hang over it.
    A window that ``is_inside`` does not hang over the border at all.
    """
    parameters = [("ptr noalias readonly", "args")] + [("i64", n) for n in ("image", "row", "pixel", "channel")]
    emitter = Emitter(name, parameters, linkage="internal")
    args = emitter.parameter("args")
    image, row, pixel, channel = (emitter.parameter(n) for n in ("image", "row", "pixel", "channel"))
    rows, columns = _spans(emitter, spec, (row, pixel), is_line=is_line, is_inside=is_inside)
    x_row = emitter.argument(args, ARGUMENTS.x_row)
    x = emitter.element(emitter.argument(args, ARGUMENTS.x, "ptr"), channel, spec.element)
    place: Terms = [(image, emitter.argument(args, ARGUMENTS.x_image)), (rows.origin, x_row)]
    x = position(emitter, x, [*place, (columns.origin, spec.x_pixel or spec.channels)], spec.element)
    totals = _reduce(emitter, spec, vectors, x, x_row, rows, columns)
    if not spec.is_maximum and not spec.is_sum:
        counted = emitter.mul(rows.counted, columns.counted)
        if spec.kernel is None:
            counted = emitter.maximum(counted, 1)  # ReduceMean of nothing is 0
        count = emitter.assign("float", f"sitofp {counted.typed} to float")
        divisor = emitter.splat(count, vectors[0].width)
        totals = [emitter.binary("fdiv", total, divisor) for total in totals]
    _store(emitter, spec, vectors, totals)
    return emitter


def _spans(
    emitter: Emitter, spec: Pooling, place: tuple[IRValue, IRValue], *, is_line: bool, is_inside: bool
) -> tuple[_Span, _Span]:
    """Return the window at an output's row and pixel along both axes."""
    args = emitter.parameter("args")
    if is_inside:
        assert spec.kernel is not None
        origins = [emitter.sub(emitter.mul(place[i], spec.strides[i]), spec.pads[i]) for i in (0, 1)]
        return _Span.inside(spec.kernel[0], origins[0]), _Span.inside(spec.kernel[1], origins[1])
    rows = _span(emitter, spec, 0, place[0], emitter.argument(args, ARGUMENTS.x_height))
    if is_line:
        assert spec.kernel is not None
        return rows, _Span.inside(spec.kernel[1], integer(-spec.pads[1]))
    return rows, _span(emitter, spec, 1, place[1], emitter.argument(args, ARGUMENTS.x_width))


def _span(emitter: Emitter, spec: Pooling, axis: int, place: IRValue, size: IRValue) -> _Span:
    if spec.kernel is None:
        return _Span(integer(0), size, integer(0), size)
    kernel, stride, dilation = spec.kernel[axis], spec.strides[axis], spec.dilations[axis]
    before, behind = spec.pads[axis], spec.pads[axis + 2]
    origin = emitter.sub(emitter.mul(place, stride), before)

    def taps_below(limit: IRValue) -> IRValue:
        reach = emitter.maximum(emitter.sub(limit, origin), 0)
        return emitter.minimum(emitter.udiv(emitter.add(reach, dilation - 1), dilation), kernel)

    first, stop = taps_below(integer(0)), taps_below(size)
    counted = taps_below(emitter.add(size, behind)) if spec.counts_border else emitter.sub(stop, first)
    return _Span(first, stop, origin, counted)


class _Totals:
    """What is made of a window's numbers, vector by vector.

    Sums of a row are added up before rows are, which keeps long sums accurate. Whether a maximum has met a NaN is
    noted apart: the comparison alone is one instruction.
    """

    def __init__(self, emitter: Emitter, spec: Pooling, vectors: Sequence[Lanes]) -> None:
        self.emitter, self.spec, self.is_maximum, self.vectors = emitter, spec, spec.is_maximum, vectors
        # The lowest number, not -inf, is what onnxruntime gives a window wholly in padding; a whole image has none.
        lowest = -math.inf if spec.kernel is None else LOWEST
        start = float32(lowest if spec.is_maximum else 0.0)
        self.initial = [emitter.splat(start, lanes.width) for lanes in vectors]
        self.totals = [emitter.variable(lanes.type, value) for lanes, value in zip(vectors, self.initial, strict=True)]
        self.others = [emitter.variable(lanes.type, value) for lanes, value in zip(vectors, self.initial, strict=True)]

    def take(self, tap: IRValue) -> None:
        """Append the numbers at an address."""
        emitter = self.emitter
        for i, (lanes, total, other) in enumerate(zip(self.vectors, self.totals, self.others, strict=True)):
            value = _numbers(emitter, self.spec, lanes, i, tap)
            if not self.is_maximum:
                emitter.store(emitter.binary("fadd", emitter.load(lanes.type, other), value), other)
                continue
            largest = emitter.load(lanes.type, total)
            bits = vector_type(lanes.width, "i1")
            is_larger = emitter.assign(bits, f"fcmp ogt {value.typed}, {largest.text}")
            emitter.store(emitter.select(is_larger, value, largest), total)
            self._note_nan(lanes, value, other)

    def _note_nan(self, lanes: Lanes, value: IRValue, nan: IRValue) -> None:
        """Keep a NaN: the number kept is a NaN once one was met, else anything."""
        emitter, kept = self.emitter, self.emitter.load(lanes.type, nan)
        is_nan = emitter.assign(vector_type(lanes.width, "i1"), f"fcmp uno {value.typed}, {kept.text}")
        emitter.store(emitter.select(is_nan, emitter.splat(float32(math.nan), lanes.width), kept), nan)

    def end_row(self) -> None:
        """Append the end of a row of the window."""
        if self.is_maximum:
            return
        emitter = self.emitter
        for lanes, total, line, zero in zip(self.vectors, self.totals, self.others, self.initial, strict=True):
            both = (emitter.load(lanes.type, total), emitter.load(lanes.type, line))
            emitter.store(emitter.binary("fadd", *both), total)
            emitter.store(zero, line)

    def results(self) -> list[IRValue]:
        """Return what was made of all numbers."""
        emitter = self.emitter
        found = [emitter.load(lanes.type, total) for lanes, total in zip(self.vectors, self.totals, strict=True)]
        if not self.is_maximum:
            return found
        kept = [emitter.load(lanes.type, other) for lanes, other in zip(self.vectors, self.others, strict=True)]
        return [
            emitter.select(emitter.assign(vector_type(lanes.width, "i1"), f"fcmp uno {k.typed}, {k.text}"), k, value)
            for lanes, k, value in zip(self.vectors, kept, found, strict=True)
        ]


def _reduce(
    emitter: Emitter, spec: Pooling, vectors: Sequence[Lanes], x: IRValue, x_row: IRValue, rows: _Span, columns: _Span
) -> list[IRValue]:
    """Append the window's loops, or all of its taps one after the other where it is known to be inside."""
    totals, dilation = _Totals(emitter, spec, vectors), spec.dilations
    pitch = dilation[1] * (spec.x_pixel or spec.channels)
    if rows.taps is not None and columns.taps is not None:
        lines = [position(emitter, x, [(x_row, ky * dilation[0])], spec.element) for ky in range(rows.taps)]
        taps = [[emitter.element(line, kx * pitch, spec.element) for kx in range(columns.taps)] for line in lines]
        if spec.is_maximum:
            return [_largest(emitter, spec, lanes, i, taps) for i, lanes in enumerate(vectors)]
        for row in taps:
            for tap in row:
                totals.take(tap)
            totals.end_row()
        return totals.results()
    with emitter.loop(rows.first, rows.stop, unroll=False, hint="ky") as ky_index:
        line = position(emitter, x, [(emitter.mul(ky_index, dilation[0]), x_row)], spec.element)
        with emitter.loop(columns.first, columns.stop, unroll=False, hint="kx") as kx_index:
            totals.take(position(emitter, line, [(kx_index, pitch)], spec.element))
        totals.end_row()
    return totals.results()


def _numbers(emitter: Emitter, spec: Pooling, lanes: Lanes, number: int, tap: IRValue) -> IRValue:
    """Append the load of vector ``number`` of those at an address, as floats."""
    place = emitter.element(tap, number * lanes.width, spec.element)
    if spec.element == "float":
        return lanes.read(emitter, place)
    return widened_lanes(emitter, replace(lanes, element=spec.element).read(emitter, place), lanes.width)


def _largest(emitter: Emitter, spec: Pooling, lanes: Lanes, number: int, taps: Sequence[Sequence[IRValue]]) -> IRValue:
    """Append the maximum of vector ``number`` of all taps; one comparison tells whether either of two is a NaN."""
    bits = vector_type(lanes.width, "i1")
    values = [_numbers(emitter, spec, lanes, number, tap) for row in taps for tap in row]
    largest = emitter.splat(float32(LOWEST), lanes.width)
    for value in values:
        is_larger = emitter.assign(bits, f"fcmp ogt {value.typed}, {largest.text}")
        largest = emitter.select(is_larger, value, largest)
    nan = None
    for left, right in zip(values[::2], [*values[1::2], values[-1]], strict=False):
        is_nan = emitter.assign(bits, f"fcmp uno {left.typed}, {right.text}")
        nan = is_nan if nan is None else emitter.binary("or", nan, is_nan)
    assert nan is not None
    return emitter.select(nan, emitter.splat(float32(math.nan), lanes.width), largest)


def _store(emitter: Emitter, spec: Pooling, vectors: Sequence[Lanes], totals: Sequence[IRValue]) -> None:
    args = emitter.parameter("args")
    image, row, pixel, channel = (emitter.parameter(n) for n in ("image", "row", "pixel", "channel"))
    operands = spec.epilogue.operands if spec.epilogue else ()
    entries = spec.epilogue.entries(ARGUMENTS.epilogue) if spec.epilogue else ()

    def address(entry: int, strides: int | None, pitch: int, first: int, type_: str = "float") -> IRValue:
        base = emitter.element(emitter.argument(args, entry, "ptr"), emitter.add(channel, first), type_)
        if strides is None:
            return base
        row_stride, image_stride = emitter.argument(args, strides), emitter.argument(args, strides + 1)
        return position(emitter, base, [(image, image_stride), (row, row_stride), (pixel, pitch)], type_)

    for i, (lanes, total) in enumerate(zip(vectors, totals, strict=True)):
        first = i * lanes.width

        def read(operand: int, lanes: Lanes = lanes, first: int = first) -> IRValue:
            strides = entries[operand] + 1 if operands[operand] is OperandKind.TENSOR else None
            return lanes.read(emitter, address(entries[operand], strides, spec.channels, first))

        value = spec.epilogue.apply(emitter, total, lanes.width, read) if spec.epilogue else total
        value = value if spec.element == "float" else narrowed_lanes(emitter, value, lanes.width)
        place = address(ARGUMENTS.y, ARGUMENTS.y_row, spec.y_pixel or spec.channels, first, spec.element)
        lanes.write(emitter, value, place)
