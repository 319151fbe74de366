"""Statistics of groups of channels of channels-last images: sums in float64, and what normalizing makes of them.

A group's variance is its mean square less its squared mean. In float64 that can be afforded: squares of float32 are
exact, and what cancels lies 29 bits below the last one of the elements. So images are read once, in any parts.

The moments of a part of an image are two rows of float64, the sums and the sums of squares of each channel, both as
long as ``padded_channels`` says. A part is a run of pixels.
"""

from __future__ import annotations

from ort_core.cpu.codegen.images.channels_last import Lanes, channel_vectors, divide, kernel_emitter, position, share_of
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, float32, integer, vector_type
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.plugin.ir import KnownDim, ceil_div, maximum

PART = 16384  # elements, 64 KiB: far less is more sums to join than pixels to add, far more leaves threads idle
MOST_PARTS = 64  # of an image
BLOCK = 4096  # elements, 16 KiB: what is walked column by column has to stay in a first-level cache
VECTORS = 2  # columns side by side: a cache line or two, and sums that fit the registers of AVX2


def padded_channels(channels: int, target: Target) -> int:
    """Return the length of a row of moments: whole vectors."""
    return -(-channels // target.lanes) * target.lanes


def part_pixels(channels: int, pixels: KnownDim) -> KnownDim:
    """Return how many pixels a part has."""
    return maximum(max(1, PART // channels), ceil_div(pixels, MOST_PARTS))


def moments_kernel(name: str, channels: int, target: Target, *, pitch: int | None = None) -> list[Emitter]:
    """Return the function that stores the moments of every part of every image.

    ``pitch``: elements from one pixel to the next, ``None``: ``channels``.

    The argument table: images, moments ``[image][part][2][padded channels]``, the number of images, pixels of an image,
    pixels of a part, parts of an image, elements from one image to the next.
    """
    emitter = kernel_emitter(name)
    args = emitter.parameter("args")
    x, moments = (emitter.argument(args, i, "ptr") for i in range(2))
    count, pixels, length, parts, image_stride = (emitter.argument(args, i) for i in range(2, 7))
    printer = _MomentsPrinter(emitter, channels, pitch or channels, target)
    with share_of(emitter, emitter.mul(count, parts)) as unit:
        image, part = divide(emitter, unit, parts)
        first = emitter.mul(part, length)
        last = emitter.minimum(emitter.add(first, length), pixels)
        images = position(emitter, x, [(image, image_stride)])
        row = emitter.element(moments, emitter.mul(unit, 2 * padded_channels(channels, target)), "double")
        with emitter.loop(first, last, max(1, BLOCK // channels), unroll=False, hint="block") as start:
            stop = emitter.minimum(emitter.add(start, max(1, BLOCK // channels)), last)
            printer.block(images, row, start, stop, emitter.compare("eq", start, first))
    return [emitter]


class _MomentsPrinter:
    """Prints the sums over a block of pixels, a few vectors of channels at a time."""

    def __init__(self, emitter: Emitter, channels: int, pitch: int, target: Target) -> None:
        self._emitter = emitter
        self._channels = channels
        self._pitch = pitch
        self._lanes = target.lanes
        self._squares = padded_channels(channels, target)

    def block(self, images: IRValue, row: IRValue, start: IRValue, stop: IRValue, is_first: IRValue) -> None:
        """Add the pixels from ``start`` to ``stop`` to the moments at ``row``, which begin there if ``is_first``."""
        emitter, step = self._emitter, VECTORS * self._lanes
        whole = self._channels // step * step
        full = (Lanes(self._lanes, self._lanes),) * VECTORS
        if whole:
            with emitter.loop(0, integer(whole), step, unroll=False, hint="channel") as channel:
                self._columns(full, channel, images, row, (start, stop), is_first)
        if whole < self._channels:
            rest = channel_vectors(self._channels - whole, self._lanes)
            self._columns(rest, integer(whole), images, row, (start, stop), is_first)

    def _columns(
        self, vectors: tuple[Lanes, ...], channel: IRValue, images: IRValue, row: IRValue,
        pixels: tuple[IRValue, IRValue], is_first: IRValue,
    ) -> None:  # fmt: skip
        emitter = self._emitter
        type_ = vector_type(self._lanes, "double")
        zero = IRValue(type_, "zeroinitializer")
        places, slots = [], []
        for number in range(len(vectors)):
            for moment in range(2):
                at = emitter.add(channel, number * self._lanes + moment * self._squares)
                places.append(emitter.element(row, at, "double"))
                slots.append(emitter.variable(type_, emitter.select(is_first, zero, self._load(type_, places[-1]))))
        with emitter.loop(*pixels, unroll=False, hint="pixel") as pixel:
            for number, lanes in enumerate(vectors):
                offset = emitter.add(channel, number * self._lanes)
                value = lanes.read(emitter, position(emitter, images, [(pixel, self._pitch), (offset, 1)]))
                wide = emitter.assign(type_, f"fpext {value.typed} to {type_}")
                total, squares = slots[2 * number : 2 * number + 2]
                emitter.store(emitter.binary("fadd", emitter.load(type_, total), wide), total)
                emitter.store(emitter.fma(wide, wide, emitter.load(type_, squares)), squares)
        for place, slot in zip(places, slots, strict=True):
            emitter.store(emitter.load(type_, slot), place, align=8)

    def _load(self, type_: str, address: IRValue) -> IRValue:
        return self._emitter.load(type_, address, align=8)


def scales_kernel(
    name: str, channels: int, groups: int, epsilon: float, target: Target, *, is_scaled: bool
) -> list[Emitter]:
    """Return the function that makes of moments each channel's mean and the factor that its deviations get.

    The factor is ``1 / sqrt(variance + epsilon)``, times the channel's scale if it ``is_scaled``. The argument table:
    moments, means and factors (``[image][channel]``), scales, the number of images, pixels of an image, parts of one.
    """
    emitter = kernel_emitter(name)
    args = emitter.parameter("args")
    moments, means, scales, given = (emitter.argument(args, i, "ptr") for i in range(4))
    count, pixels, parts = (emitter.argument(args, i) for i in range(4, 7))
    row, members = padded_channels(channels, target), channels // groups
    elements = emitter.assign("double", f"sitofp {emitter.mul(pixels, members).typed} to double")
    with share_of(emitter, emitter.mul(count, integer(groups))) as unit:
        image, group = divide(emitter, unit, groups)
        begin = emitter.add(emitter.mul(emitter.mul(image, parts), 2 * row), emitter.mul(group, members))
        start = emitter.element(moments, begin, "double")
        total, squares = _group_sums(emitter, start, parts, row, members, target)
        mean = emitter.binary("fdiv", total, elements)
        spread = emitter.binary("fsub", emitter.binary("fdiv", squares, elements), emitter.binary("fmul", mean, mean))
        inverse = _inverse_deviation(emitter, spread, epsilon)
        rounded = emitter.assign("float", f"fptrunc {mean.typed} to float")
        with emitter.loop(0, integer(members), unroll=False, hint="member") as member:
            channel = emitter.add(emitter.mul(group, members), member)
            place = emitter.add(emitter.mul(image, channels), channel)
            factor = inverse
            if is_scaled:
                factor = emitter.binary("fmul", inverse, emitter.load("float", emitter.element(given, channel)))
            emitter.store(rounded, emitter.element(means, place))
            emitter.store(factor, emitter.element(scales, place))
    return [emitter]


def _group_sums(
    emitter: Emitter, start: IRValue, parts: IRValue, row: int, members: int, target: Target
) -> tuple[IRValue, IRValue]:
    """Return the sum and the sum of squares over a group's channels and all parts."""
    width = min(target.lanes, 1 << (members.bit_length() - 1))
    whole = members // width * width
    zero = IRValue("double", "0.0")
    wide = [emitter.variable(vector_type(width, "double"), emitter.splat(zero, width)) for _ in range(2)]
    single = [emitter.variable("double", zero) for _ in range(2)]
    with emitter.loop(0, parts, unroll=False, hint="part") as part:
        for moment in range(2):
            line = emitter.element(start, emitter.add(emitter.mul(part, 2 * row), moment * row), "double")
            for first, last, lanes, slot in ((0, whole, width, wide[moment]), (whole, members, 1, single[moment])):
                if first == last:
                    continue
                type_ = vector_type(lanes, "double")
                with emitter.loop(first, integer(last), lanes, unroll=False, hint="member") as member:
                    value = emitter.load(type_, emitter.element(line, member, "double"), align=8)
                    emitter.store(emitter.binary("fadd", emitter.load(type_, slot), value), slot)
    totals = [_lanes_sum(emitter, emitter.load(vector_type(width, "double"), slot), width) for slot in wide]
    rests = [emitter.load("double", slot) for slot in single]
    total, squares = (emitter.binary("fadd", t, rest) for t, rest in zip(totals, rests, strict=True))
    return total, squares


def _lanes_sum(emitter: Emitter, vector: IRValue, width: int) -> IRValue:
    if width == 1:
        return vector
    return emitter.call("double", f"llvm.vector.reduce.fadd.v{width}f64", IRValue("double", "-0.0"), vector)


def _inverse_deviation(emitter: Emitter, variance: IRValue, epsilon: float) -> IRValue:
    """Return ``1 / sqrt(variance + epsilon)`` as float32; what rounding left below 0 is 0, and NaN stays."""
    below = emitter.assign("i1", f"fcmp olt {variance.typed}, 0.0", "c")
    positive = emitter.select(below, IRValue("double", "0.0"), variance)
    padding = IRValue("double", float32(epsilon).text)
    root = emitter.call("double", "llvm.sqrt.f64", emitter.binary("fadd", positive, padding))
    inverse = emitter.binary("fdiv", IRValue("double", "1.0"), root)
    return emitter.assign("float", f"fptrunc {inverse.typed} to float")
