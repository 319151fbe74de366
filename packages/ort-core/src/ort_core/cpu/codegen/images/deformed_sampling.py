"""What DeformConv reads of channels-last images: for each window, the pixels at its displaced taps, mixed linearly.

The samples of a window are one pixel with as many channels as the window has taps times those of the image, so that the
convolution that is left is one by pixels.
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
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, float32
from ort_core.cpu.codegen.llvm_ir.scalar_printer import ScalarPrinter
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import binary, cast, element, select, unary

F32, I64 = DataType.FLOAT, DataType.INT64
_FARTHEST = 2.0**31  # outside of each image; places beyond it would not fit an integer
_OUTSIDE = -2.0  # what is no number, or farther out: neither it nor its neighbor is a pixel


@frozen
class DeformedSampling:
    """What to sample: windows over rows and columns, whose ``groups`` of channels are displaced apart."""

    channels: int
    groups: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int]
    has_mask: bool

    @property
    def structure(self) -> str:
        """What is computed, as text: equal for equal operators."""
        return repr((
            self.channels, self.groups, self.kernel, self.strides, self.dilations, self.pads, self.has_mask,
        ))  # fmt: skip


@frozen
class _Corner:
    """A pixel that a tap reads, its weight, and whether it is inside of the image."""

    address: IRValue
    weight: IRValue
    inside: IRValue


@frozen
class _Tap:
    """A place on one axis (int64), its weight, and whether it is inside of the image."""

    place: IRValue
    weight: IRValue
    inside: IRValue


def deformed_sampling_kernel(name: str, spec: DeformedSampling, target: Target) -> list[Emitter]:
    """Return the kernel.

    The argument table: out, x, offset, mask (pointers; without a mask any), images, rows and columns of windows, height
    and width of x, elements of x from image to image, row to row and pixel to pixel. Offsets are ``[image][group][tap]
    [row, column][window]``, masks ``[image][group][tap][window]``; results ``[image][window][tap][channel]``. No size
    of x is 0.
    """
    emitter = kernel_emitter(name)
    args = emitter.parameter("args")
    out, x, offset, mask = (emitter.argument(args, i, "ptr") for i in range(4))
    batch, rows, columns, height, width, x_image, x_row, x_pixel = (emitter.argument(args, i) for i in range(4, 12))
    windows, taps = emitter.mul(rows, columns), spec.kernel[0] * spec.kernel[1]
    own = spec.channels // spec.groups
    with share_of(emitter, emitter.mul(batch, windows)) as unit:
        image, window = divide(emitter, unit, windows)
        row, column = divide(emitter, window, columns)
        with emitter.loop(0, IRValue("i64", str(taps)), unroll=False, hint="tap") as tap:
            down, across = divide(emitter, tap, spec.kernel[1])
            for group in range(spec.groups):
                first = emitter.add(emitter.mul(image, spec.groups * taps), emitter.add(tap, group * taps))
                moved = position(emitter, offset, [(emitter.mul(first, 2), windows), (window, 1)])
                vertical = _taps(emitter, spec, 0, moved, (row, down, height))
                horizontal = _taps(emitter, spec, 1, emitter.element(moved, windows), (column, across, width))
                factor = None
                if spec.has_mask:
                    factor = emitter.load("float", position(emitter, mask, [(first, windows), (window, 1)]), 4)
                base = position(emitter, x, [(image, x_image), (group * own, 1)])
                corners = [
                    _corner(emitter, position(emitter, base, [(y.place, x_row), (z.place, x_pixel)]), y, z)
                    for y in vertical
                    for z in horizontal
                ]
                to = position(emitter, out, [(unit, taps * spec.channels), (tap, spec.channels), (group * own, 1)])

                def sample(
                    channel: IRValue, lanes: Lanes, corners: list[_Corner] = corners,
                    factor: IRValue | None = factor, to: IRValue = to,
                ) -> None:  # fmt: skip
                    total = _mixed(emitter, corners, channel, lanes)
                    if factor is not None:
                        total = emitter.binary("fmul", total, emitter.splat(factor, lanes.width))
                    lanes.write(emitter, total, emitter.element(to, channel))

                each_channels(emitter, own, target.lanes, sample)
    return [emitter]


def _mixed(emitter: Emitter, corners: list[_Corner], channel: IRValue, lanes: Lanes) -> IRValue:
    """Return the weighted sum of pixels; one outside is 0, whatever is read in its place."""
    total: IRValue | None = None
    for corner in corners:
        read = lanes.read(emitter, emitter.element(corner.address, channel))
        value = emitter.select(corner.inside, read, IRValue(lanes.type, "zeroinitializer"))
        factor = emitter.splat(corner.weight, lanes.width)
        total = emitter.binary("fmul", value, factor) if total is None else emitter.fma(value, factor, total)
    assert total is not None
    return total


def _corner(emitter: Emitter, address: IRValue, one: _Tap, other: _Tap) -> _Corner:
    """Return a pixel with its weight: 0 outside, also where an offset is no number."""
    inside = emitter.binary("and", one.inside, other.inside)
    weight = emitter.select(inside, emitter.binary("fmul", one.weight, other.weight), float32(0.0))
    return _Corner(address, weight, inside)


def _taps(
    emitter: Emitter, spec: DeformedSampling, axis: int, offset: IRValue, place: tuple[IRValue, IRValue, IRValue]
) -> list[_Tap]:
    """Append where a displaced tap lies on an axis: the pixels on both sides, and what they weigh.

    ``place`` is the window's number on the axis, the tap's, and the size of the axis.
    """
    window, tap, size = place
    start = emitter.add(emitter.mul(window, spec.strides[axis]), emitter.mul(tap, spec.dilations[axis]))
    start = emitter.sub(start, spec.pads[axis])
    read = [emitter.load("float", offset, 4), emitter.assign("float", f"sitofp {start.typed} to float")]
    printer = ScalarPrinter(emitter, 1, read.__getitem__)
    at = element(0, F32) + element(1, F32)
    low = unary("floor", at)
    fraction = at - low
    known = select(binary("lt", unary("abs", low), _FARTHEST), low, _OUTSIDE)  # false for NaN, too
    before = printer.print(cast(known, I64))
    weights = [printer.print(1.0 - fraction), printer.print(fraction)]
    found = []
    for step, weight in enumerate(weights):
        index = emitter.add(before, step)
        inside = emitter.compare("ult", index, size)  # unsigned: a negative place is huge
        found.append(_Tap(emitter.select(inside, index, IRValue("i64", "0")), weight, inside))
    return found
