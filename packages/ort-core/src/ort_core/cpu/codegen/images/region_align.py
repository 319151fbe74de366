"""RoiAlign of channels-last images: each bin of a region is sampled at a grid of points, all channels at once.

A point reads four pixels. ``avg`` sums them by their weights over all points of a bin; ``max`` takes the largest
weighted pixel, as the operator is defined.
"""

from __future__ import annotations

from ort_core.cpu.codegen.images.channels_last import (
    Lanes,
    divide,
    each_channels,
    kernel_emitter,
    position,
    share_of,
)
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, float32, integer
from ort_core.cpu.codegen.llvm_ir.scalar_printer import ScalarPrinter
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, binary, cast, element, lift, maximum, minimum, select, unary

F32, I64 = DataType.FLOAT, DataType.INT64
MOST_POINTS = 1 << 20  # of a bin along one axis; for more the reference kernel says whether memory suffices


@frozen
class RegionAlign:
    """What to pool. ``ratio``: points of a bin along each axis, 0 for as many as it has pixels."""

    channels: int
    ratio: int
    scale: float
    is_half_pixel: bool
    is_maximum: bool
    index_bits: int

    @property
    def structure(self) -> str:
        """What is computed, as text: equal for equal operators."""
        return f"{self.channels} {self.ratio} {self.scale!r} {self.is_half_pixel} {self.is_maximum} {self.index_bits}"


@frozen
class _Side:
    """One axis of a region: where it begins, how long a bin is, how many points a bin has; the size of the image."""

    start: IRValue
    width: IRValue
    points: IRValue
    size: IRValue


@frozen
class _Point:
    """Two neighbors on one axis and their weights."""

    places: tuple[IRValue, IRValue]
    weights: tuple[IRValue, IRValue]


def region_align_kernel(name: str, spec: RegionAlign, target: Target) -> list[Emitter]:
    """Return the kernel.

    The argument table: out, x, rois (float32, four a region), image numbers, error (pointers), regions, rows and
    columns of bins, images, height and width of x, elements of x from image to image, row to row and pixel to pixel,
    and of out from region to region and bin to bin. An image number out of bounds, a corner that is not finite, and a
    bin of too many points set the error word. No size of x is 0.
    """
    emitter = kernel_emitter(name)
    args = emitter.parameter("args")
    out, x, rois, numbers, error = (emitter.argument(args, i, "ptr") for i in range(5))
    regions, bin_rows, bin_columns, batch, height, width, x_image, x_row, x_pixel, y_region, y_bin = (
        emitter.argument(args, i) for i in range(5, 16)
    )
    bins = emitter.mul(bin_rows, bin_columns)
    with share_of(emitter, emitter.mul(regions, bins)) as unit:
        region, which = divide(emitter, unit, bins)
        row, column = divide(emitter, which, bin_columns)
        corners = [
            emitter.load("float", emitter.element(rois, emitter.add(emitter.mul(region, 4), i)), 4) for i in range(4)
        ]
        down = _side(emitter, spec, corners[1], corners[3], bin_rows, height)
        across = _side(emitter, spec, corners[0], corners[2], bin_columns, width)
        number = _number(emitter, spec, numbers, region)
        is_known = emitter.compare("ult", number, batch)  # unsigned: a negative number is huge
        most = emitter.maximum(down.points, across.points)
        is_right = emitter.binary("and", is_known, emitter.compare("sle", most, MOST_POINTS))
        printer = ScalarPrinter(emitter, 1, corners.__getitem__)
        for i in range(4):
            is_finite = binary("lt", unary("abs", element(i, F32)), float("inf"))  # false for NaN, too
            is_right = emitter.binary("and", is_right, printer.print(is_finite))
        with emitter.either(is_right) as branch:
            to = position(emitter, out, [(region, y_region), (which, y_bin)])
            base = position(emitter, x, [(number, x_image)])
            _bin(emitter, spec, target, to, base, (down, across), (row, column), (x_row, x_pixel))
            with branch.otherwise():
                emitter.store(integer(1), error, 8)
    return [emitter]


def _number(emitter: Emitter, spec: RegionAlign, numbers: IRValue, region: IRValue) -> IRValue:
    type_ = f"i{spec.index_bits}"
    number = emitter.load(type_, emitter.element(numbers, region, type_))
    return number if spec.index_bits == 64 else emitter.assign("i64", f"sext {number.typed} to i64")


def _side(emitter: Emitter, spec: RegionAlign, start: IRValue, end: IRValue, bins: IRValue, size: IRValue) -> _Side:
    shift = 0.5 if spec.is_half_pixel else 0.0
    read = [start, end, emitter.assign("float", f"sitofp {bins.typed} to float")]
    printer = ScalarPrinter(emitter, 1, read.__getitem__)
    low, high = (element(i, F32) * spec.scale - shift for i in range(2))
    length = high - low if spec.is_half_pixel else maximum(high - low, 1.0)
    width = length / element(2, F32)
    points = lift(spec.ratio, I64)
    if spec.ratio <= 0:
        is_finite = binary("lt", unary("abs", width), float("inf"))  # false for NaN, too
        points = maximum(cast(select(is_finite, unary("ceil", width), 0.0), I64), 0)
    return _Side(printer.print(low), printer.print(width), printer.print(points), size)


def _bin(
    emitter: Emitter, spec: RegionAlign, target: Target, to: IRValue, base: IRValue, sides: tuple[_Side, _Side],
    place: tuple[IRValue, IRValue], steps: tuple[IRValue, IRValue],
) -> None:  # fmt: skip
    """Append the pooling of one bin: zero, then what each point adds."""
    down, across = sides

    def clear(channel: IRValue, lanes: Lanes) -> None:
        start = -float("inf") if spec.is_maximum else 0.0
        lanes.write(emitter, emitter.splat(_first(start), lanes.width), emitter.element(to, channel))

    def clear_all(channel: IRValue, lanes: Lanes) -> None:
        lanes.write(emitter, emitter.splat(float32(0.0), lanes.width), emitter.element(to, channel))

    has_points = emitter.compare("sgt", emitter.minimum(down.points, across.points), 0)
    with emitter.either(has_points) as branch:
        each_channels(emitter, spec.channels, target.lanes, clear)
        with emitter.loop(0, down.points, unroll=False, hint="i") as i:
            row = _point(emitter, spec, down, place[0], i)
            with emitter.loop(0, across.points, unroll=False, hint="j") as j:
                column = _point(emitter, spec, across, place[1], j)
                pixels = [
                    (
                        position(emitter, base, [(row.places[a], steps[0]), (column.places[b], steps[1])]),
                        emitter.binary("fmul", row.weights[a], column.weights[b]),
                    )
                    for a in range(2)
                    for b in range(2)
                ]

                def add(
                    channel: IRValue, lanes: Lanes, pixels: list[tuple[IRValue, IRValue]] = pixels
                ) -> None:  # fmt: skip
                    goal = emitter.element(to, channel)
                    total = lanes.read(emitter, goal)
                    for address, weight in pixels:
                        value = lanes.read(emitter, emitter.element(address, channel))
                        total = _taken(emitter, spec, total, value, emitter.splat(weight, lanes.width), lanes)
                    lanes.write(emitter, total, goal)

                each_channels(emitter, spec.channels, target.lanes, add)
        with branch.otherwise():
            each_channels(emitter, spec.channels, target.lanes, clear_all)


def _first(value: float) -> IRValue:
    return float32(value) if value == 0.0 else IRValue("float", "0xFFF0000000000000")


def _taken(
    emitter: Emitter, spec: RegionAlign, total: IRValue, value: IRValue, weight: IRValue, lanes: Lanes
) -> IRValue:
    if not spec.is_maximum:
        return emitter.fma(value, weight, total)
    operands = (total, emitter.binary("fmul", value, weight))
    return ScalarPrinter(emitter, lanes.width, operands.__getitem__).print(maximum(element(0, F32), element(1, F32)))


def _point(emitter: Emitter, spec: RegionAlign, side: _Side, which: IRValue, number: IRValue) -> _Point:
    """Append where a point of a bin is on one axis: its two neighbors, and how much each counts."""
    read = [
        side.start, side.width, *(
            emitter.assign("float", f"sitofp {each.typed} to float") for each in (which, number, side.points, side.size)
        ), side.size,
    ]  # fmt: skip
    printer = ScalarPrinter(emitter, 1, read.__getitem__)
    start, width, bin_number, index, points, size = (element(i, F32) for i in range(6))
    last = element(6, I64) - 1
    at = start + bin_number * width + (index + 0.5) * width / points
    inside = binary("and", binary("ge", at, -1.0), binary("le", at, size))
    at = select(inside, maximum(at, 0.0), 0.0)
    low = minimum(cast(at, I64), last)
    at = select(binary("ge", low, last), cast(low, F32), at)
    fraction = at - cast(low, F32)
    share: Scalar = lift(1.0, F32) if spec.is_maximum else 1.0 / points
    weights = [select(inside, part, 0.0) * share for part in (1.0 - fraction, fraction)]
    places = (printer.print(low), printer.print(minimum(low + 1, last)))
    return _Point(places, (printer.print(weights[0]), printer.print(weights[1])))
