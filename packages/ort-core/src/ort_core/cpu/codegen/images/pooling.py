"""Pooling, channels-last, vectorized over the channels: maximum, average or sum, and each over a whole image.

Windows are clipped to the image, so that no border is needed; a clipped maximum ignores what lies outside, a clipped
average divides by what it counted, or with ``counts_border`` by the part of the window inside the padded image.
A maximum over NaN is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ort_core.cpu.codegen.images.channels_last import (
    Epilogue,
    Lanes,
    OperandKind,
    channel_vectors,
    divide,
    kernel_emitter,
    position,
    share_of,
)
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, float32, integer
from ort_core.cpu.codegen.llvm_ir.scalar_printer import ScalarPrinter
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import element, maximum

VECTORS_AT_ONCE = 4  # sums in flight: they hide the latency of additions and share the window's address arithmetic

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


@dataclass(frozen=True, slots=True)
class _Span:
    """A window along one axis: taps ``first`` to ``stop``, the place of tap 0, and how many an average counts."""

    first: IRValue
    stop: IRValue
    origin: IRValue
    counted: IRValue


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
            with emitter.loop(0, width, unroll=False, hint="x") as pixel:
                if window[0]:
                    with emitter.loop(0, covered, step, unroll=False, hint="channel") as channel:
                        emitter.call_void(window[0].name, args, image, row, pixel, channel)
                if window[1]:
                    emitter.call_void(window[1].name, args, image, row, pixel, covered)
    return [*(function for function in window if function), emitter]


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


def _window_function(name: str, spec: Pooling, vectors: Sequence[Lanes]) -> Emitter:
    """Return the function that computes some channels of one output pixel."""
    parameters = [("ptr noalias readonly", "args")] + [("i64", n) for n in ("image", "row", "pixel", "channel")]
    emitter = Emitter(name, parameters, linkage="internal")
    args = emitter.parameter("args")
    image, row, pixel, channel = (emitter.parameter(n) for n in ("image", "row", "pixel", "channel"))
    rows = _span(emitter, spec, 0, row, emitter.argument(args, ARGUMENTS.x_height))
    columns = _span(emitter, spec, 1, pixel, emitter.argument(args, ARGUMENTS.x_width))
    x_row = emitter.argument(args, ARGUMENTS.x_row)
    x = emitter.element(emitter.argument(args, ARGUMENTS.x, "ptr"), channel)
    x = position(emitter, x, [(image, emitter.argument(args, ARGUMENTS.x_image)), (rows.origin, x_row)])
    x = position(emitter, x, [(columns.origin, spec.x_pixel or spec.channels)])
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


def _reduce(
    emitter: Emitter, spec: Pooling, vectors: Sequence[Lanes], x: IRValue, x_row: IRValue, rows: _Span, columns: _Span
) -> list[IRValue]:
    """Append the window's loops; sums of a row are added up before rows are, which keeps long sums accurate."""
    # The lowest number, not -inf, is what onnxruntime gives a window wholly in padding.
    start = [float32(LOWEST if spec.is_maximum else 0.0)]
    initial = [emitter.splat(start[0], lanes.width) for lanes in vectors]
    totals = [emitter.variable(lanes.type, value) for lanes, value in zip(vectors, initial, strict=True)]
    lines = [emitter.variable(lanes.type) for lanes in vectors]
    dilation = spec.dilations
    with emitter.loop(rows.first, rows.stop, unroll=False, hint="ky") as ky:
        line = position(emitter, x, [(emitter.mul(ky, dilation[0]), x_row)])
        for slot, value in zip(lines, initial, strict=True):
            emitter.store(value, slot)
        with emitter.loop(columns.first, columns.stop, unroll=False, hint="kx") as kx:
            tap = position(emitter, line, [(kx, dilation[1] * (spec.x_pixel or spec.channels))])
            for i, (lanes, slot) in enumerate(zip(vectors, lines, strict=True)):
                value = lanes.read(emitter, emitter.element(tap, i * lanes.width))
                emitter.store(_combined(emitter, spec, lanes, emitter.load(lanes.type, slot), value), slot)
        for lanes, slot, total in zip(vectors, lines, totals, strict=True):
            both = (emitter.load(lanes.type, total), emitter.load(lanes.type, slot))
            emitter.store(_combined(emitter, spec, lanes, *both), total)
    return [emitter.load(lanes.type, total) for lanes, total in zip(vectors, totals, strict=True)]


def _combined(emitter: Emitter, spec: Pooling, lanes: Lanes, left: IRValue, right: IRValue) -> IRValue:
    if not spec.is_maximum:
        return emitter.binary("fadd", left, right)
    larger = maximum(element(0, DataType.FLOAT), element(1, DataType.FLOAT))
    return ScalarPrinter(emitter, lanes.width, (left, right).__getitem__).print(larger)


def _store(emitter: Emitter, spec: Pooling, vectors: Sequence[Lanes], totals: Sequence[IRValue]) -> None:
    args = emitter.parameter("args")
    image, row, pixel, channel = (emitter.parameter(n) for n in ("image", "row", "pixel", "channel"))
    operands = spec.epilogue.operands if spec.epilogue else ()
    entries = spec.epilogue.entries(ARGUMENTS.epilogue) if spec.epilogue else ()

    def address(entry: int, strides: int | None, pitch: int, first: int) -> IRValue:
        base = emitter.element(emitter.argument(args, entry, "ptr"), emitter.add(channel, first))
        if strides is None:
            return base
        row_stride, image_stride = emitter.argument(args, strides), emitter.argument(args, strides + 1)
        return position(emitter, base, [(image, image_stride), (row, row_stride), (pixel, pitch)])

    for i, (lanes, total) in enumerate(zip(vectors, totals, strict=True)):
        first = i * lanes.width

        def read(operand: int, lanes: Lanes = lanes, first: int = first) -> IRValue:
            strides = entries[operand] + 1 if operands[operand] is OperandKind.TENSOR else None
            return lanes.read(emitter, address(entries[operand], strides, spec.channels, first))

        value = spec.epilogue.apply(emitter, total, lanes.width, read) if spec.epilogue else total
        lanes.write(emitter, value, address(ARGUMENTS.y, ARGUMENTS.y_row, spec.y_pixel or spec.channels, first))
