"""Copies of channels-first images of one or three channels into channels-last words of bfloat16 with a border.

A first layer has an odd number of channels. In words of two, an image of them has one channel more, which is zero:
convolutions of pairs read it. A pixel has one word or two, which a vector of pixels makes of one load of each channel.
"""

from __future__ import annotations

from ort_core.cpu.codegen.images.channels_last import position
from ort_core.cpu.codegen.images.layout import COPY, bordered
from ort_core.cpu.codegen.llvm_ir.bfloat16_lanes import joined_words, rounded_bits
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue
from ort_core.cpu.codegen.llvm_ir.vectors import load_vector, shuffle

CHANNELS = (1, 3)
LANES = 16  # pixels at a time; rows of fewer are not copied


def rounded_rows_kernel(name: str, channels: int) -> list[Emitter]:
    """Return a kernel with ``PadArguments``, whose target is counted in words. It needs AVX512-BF16.

    Rows of the source are contiguous and at least ``LANES`` pixels long.
    """
    return bordered(name, (channels + 1) // 2, 0.0, _row_function(f"{name}.copy", channels))


def _row_function(name: str, channels: int) -> Emitter:
    """Return the copy of a row; its last vector overlaps the one before it."""
    e = Emitter(name, [*COPY, ("i64", "plane")], linkage="internal")
    x, y, pixels, plane = (e.parameter(n) for n in ("x", "y", "pixels", "plane"))
    final = e.sub(pixels, LANES)
    with e.loop(0, pixels, LANES, unroll=False, hint="pixel") as block:
        pixel = e.minimum(block, final)
        places = [position(e, x, [(plane, channel), (pixel, 1)]) for channel in range(channels)]
        halves = [rounded_bits(e, load_vector(e, place, LANES), LANES) for place in places]
        words = [joined_words(e, *pair, LANES) for pair in zip(halves[::2], halves[1::2], strict=False)]
        words += halves[-1:] if channels % 2 else []
        to = position(e, y, [(pixel, len(words))])
        for number, vector in enumerate(_in_turn(e, words)):
            e.store(vector, e.element(to, number * LANES), 4)
    return e


def _in_turn(e: Emitter, words: list[IRValue]) -> list[IRValue]:
    """Return vectors of the words of one pixel after the other."""
    if len(words) == 1:
        return words
    lanes = [lane // 2 + LANES * (lane % 2) for lane in range(2 * LANES)]
    return [shuffle(e, words[0], words[1], lanes[first : first + LANES]) for first in (0, LANES)]
