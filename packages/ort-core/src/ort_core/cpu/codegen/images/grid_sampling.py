"""GridSample of channels-last images: where each point falls is worked out once, then all its channels are taken.

A point gives each axis its taps, a place and a weight each: one (nearest), two (linear) or four (cubic). Outside of the
image stands zero, the border's pixel, or the image mirrored at its ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.cpu.codegen.images.channels_last import (
    Lanes,
    divide,
    each_channels,
    kernel_emitter,
    position,
    share_of,
)
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue
from ort_core.cpu.codegen.llvm_ir.scalar_printer import ScalarPrinter
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, binary, cast, element, lift, maximum, minimum, select, unary

F32, I64 = DataType.FLOAT, DataType.INT64
_FARTHEST = 2.0**63  # what is no number, or farther out, stands at the low edge
_FARTHEST_PLACE = 2.0**31  # outside of each image; places beyond it would not fit an integer
_CUBIC = -0.75  # the coefficient of the cubic filter, fixed by the operator


@frozen
class GridSampling:
    """What to sample: ``mode`` is nearest, linear or cubic, ``padding`` zeros, border or reflection."""

    channels: int
    mode: str
    padding: str
    aligns_corners: bool

    @property
    def structure(self) -> str:
        """What is computed, as text: equal for equal operators."""
        return f"{self.channels} {self.mode} {self.padding} {self.aligns_corners}"


@frozen
class _Tap:
    """A place on one axis (int64), its weight (``None`` for 1), and whether it is inside (``None``: always)."""

    place: IRValue
    weight: IRValue | None
    inside: IRValue | None


def grid_sampling_kernel(name: str, spec: GridSampling, target: Target) -> list[Emitter]:
    """Return the kernel.

    The argument table: out, x, grid (pointers), images, points of each, height and width of x, elements of x from
    image to image, row to row and pixel to pixel, and of out from image to image and point to point. The grid is dense:
    a coordinate of the width and one of the height for each point. No size of x is 0.
    """
    emitter = kernel_emitter(name)
    args = emitter.parameter("args")
    out, x, grid = (emitter.argument(args, i, "ptr") for i in range(3))
    batch, points, height, width, x_image, x_row, x_pixel, y_image, y_pixel = (
        emitter.argument(args, i) for i in range(3, 12)
    )
    with share_of(emitter, emitter.mul(batch, points)) as unit:
        image, point = divide(emitter, unit, points)
        pair = emitter.element(grid, emitter.mul(unit, 2))
        across, down = (emitter.load("float", emitter.element(pair, i), 4) for i in range(2))
        rows, columns = _taps(emitter, spec, down, height), _taps(emitter, spec, across, width)
        base = position(emitter, x, [(image, x_image)])
        corners = [
            _Corner(
                position(emitter, base, [(row.place, x_row), (column.place, x_pixel)]),
                _both(emitter, "fmul", row.weight, column.weight), _both(emitter, "and", row.inside, column.inside),
            )
            for row in rows
            for column in columns
        ]  # fmt: skip
        to = position(emitter, out, [(image, y_image), (point, y_pixel)])

        def sample(channel: IRValue, lanes: Lanes) -> None:
            lanes.write(emitter, _blended(emitter, corners, channel, lanes), emitter.element(to, channel))

        each_channels(emitter, spec.channels, target.lanes, sample)
    return [emitter]


@frozen
class _Corner:
    """A pixel that a point reads, its weight (``None`` for 1), and whether it is inside (``None``: always)."""

    address: IRValue
    weight: IRValue | None
    inside: IRValue | None


def _blended(emitter: Emitter, corners: Sequence[_Corner], channel: IRValue, lanes: Lanes) -> IRValue:
    total: IRValue | None = None
    for corner in corners:
        value = lanes.read(emitter, emitter.element(corner.address, channel))
        if corner.inside is not None:
            value = emitter.select(corner.inside, value, IRValue(lanes.type, "zeroinitializer"))
        if corner.weight is not None:
            weight = emitter.splat(corner.weight, lanes.width)
            value = emitter.binary("fmul", value, weight) if total is None else emitter.fma(value, weight, total)
        total = value
    assert total is not None
    return total


def _both(emitter: Emitter, opcode: str, left: IRValue | None, right: IRValue | None) -> IRValue | None:
    if left is None or right is None:
        return left or right
    return emitter.binary(opcode, left, right)


def _taps(emitter: Emitter, spec: GridSampling, coordinate: IRValue, size: IRValue) -> list[_Tap]:
    """Append what a coordinate means on an axis of a size: where its taps are, and what they weigh."""
    read = [coordinate, emitter.assign("float", f"sitofp {size.typed} to float"), size]
    printer = ScalarPrinter(emitter, 1, read.__getitem__)
    axis = _Axis(element(1, F32), spec)
    at = axis.placed(element(0, F32))
    if spec.mode == "nearest":
        found: list[tuple[Scalar, Scalar | None]] = [(axis.index(at), None)]
    else:
        base = unary("floor", at)
        fraction = at - base
        weights = _linear(fraction) if spec.mode == "linear" else _cubic(fraction)
        first = 0 if spec.mode == "linear" else -1
        found = [(axis.index(base + float(first + i)), weight) for i, weight in enumerate(weights)]
    taps = []
    for index, weight in found:
        place, inside = printer.print(index), None
        if spec.padding == "zeros":
            inside = emitter.compare("ult", place, size)  # unsigned: a negative place is huge
            place = emitter.select(inside, place, IRValue("i64", "0"))
        taps.append(_Tap(place, None if weight is None else printer.print(weight), inside))
    return taps


class _Axis:
    """Formulas of one axis, in the order of the reference kernel's operations."""

    def __init__(self, size: Scalar, spec: GridSampling) -> None:
        self._size, self._spec = size, spec
        is_aligned = spec.aligns_corners
        self._low = lift(0.0 if is_aligned else -0.5, F32)
        self._high = size - 1.0 if is_aligned else size - 0.5
        self._last = size - 1.0

    def placed(self, coordinate: Scalar) -> Scalar:
        """Return the place of a normalized coordinate, in pixels."""
        if self._spec.aligns_corners:
            at = (coordinate + 1.0) * 0.5 * self._last
        else:
            at = ((coordinate + 1.0) * self._size - 1.0) * 0.5
        at = select(binary("lt", unary("abs", at), _FARTHEST), at, self._low)  # false for NaN, too
        if self._spec.mode == "nearest":
            at = unary("rint", at)
        if self._spec.mode == "cubic":
            return at
        if self._spec.padding == "border":
            return select(self._is_outside(at), self._clipped(at), at)
        return self._reflected(at) if self._spec.padding == "reflection" else at

    def index(self, at: Scalar) -> Scalar:
        """Return the pixel at a whole number; for zeros it may be outside."""
        if self._spec.padding == "reflection":
            return cast(self._clipped(unary("trunc", self._reflected(at))), I64)
        if self._spec.padding == "border":
            return cast(self._clipped(at), I64)
        return cast(minimum(maximum(at, -_FARTHEST_PLACE), _FARTHEST_PLACE), I64)

    def _is_outside(self, at: Scalar) -> Scalar:
        return binary("or", binary("lt", at, self._low), binary("gt", at, self._high))

    def _clipped(self, at: Scalar) -> Scalar:
        return minimum(maximum(at, 0.0), self._last)

    def _reflected(self, at: Scalar) -> Scalar:
        """Mirror at both ends until the place is between them."""
        low, high = self._low, self._high
        span = high - low
        is_below = binary("lt", at, low)
        distance = select(is_below, low - at, at - high)
        turns = unary("floor", distance / span)
        rest = distance - turns * span
        is_even = binary("eq", unary("floor", turns * 0.5) * 2.0, turns)
        from_low = binary("eq", cast(is_even, I64), cast(is_below, I64))
        mirrored = select(from_low, low + rest, high - rest)
        inner = select(self._is_outside(at), mirrored, at)
        return select(binary("gt", span, 0.0), inner, low)


def _linear(fraction: Scalar) -> list[Scalar]:
    return [1.0 - fraction, fraction]


def _cubic(fraction: Scalar) -> list[Scalar]:
    a = _CUBIC

    def near(distance: Scalar) -> Scalar:
        return ((a + 2) * distance - (a + 3)) * distance * distance + 1.0

    def far(distance: Scalar) -> Scalar:
        return ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a

    return [far(fraction + 1.0), near(fraction), near(1.0 - fraction), far(2.0 - fraction)]
