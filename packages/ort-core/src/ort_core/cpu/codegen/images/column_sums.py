"""Col2Im of images: each plane is cleared, then every tap of the window adds its columns where they fall inside."""

from __future__ import annotations

import itertools

from ort_core.cpu.codegen.images.channels_last import kernel_emitter, position, share_of
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, float32
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.plugin import frozen

Pair = tuple[int, int]


@frozen
class ColumnSums:
    """A window over rows and columns of an image: its taps, strides, dilations, and the pads in front of it."""

    taps: Pair
    strides: Pair
    dilations: Pair
    before: Pair


def column_sums_kernel(name: str, spec: ColumnSums, target: Target) -> list[Emitter]:
    """Return the kernel.

    The argument table: out, columns (float32 pointers), planes, height and width of each, and how many windows there
    are down and across. Columns are ``[plane, tap, window]``, all row-major without gaps.
    """
    emitter = kernel_emitter(name)
    args = emitter.parameter("args")
    out, columns = emitter.argument(args, 0, "ptr"), emitter.argument(args, 1, "ptr")
    planes, height, width, down, across = (emitter.argument(args, i) for i in range(2, 7))
    size, windows = emitter.mul(height, width), emitter.mul(down, across)
    taps = list(itertools.product(range(spec.taps[0]), range(spec.taps[1])))
    with share_of(emitter, planes) as plane:
        image = position(emitter, out, [(plane, size)])
        source = position(emitter, columns, [(plane, emitter.mul(windows, len(taps)))])
        with emitter.loop(0, size, hint="pixel") as pixel:
            emitter.store(float32(0.0), emitter.element(image, pixel))
        for number, (row_tap, column_tap) in enumerate(taps):
            top = row_tap * spec.dilations[0] - spec.before[0]
            left = column_tap * spec.dilations[1] - spec.before[1]
            first, last = _inside(emitter, left, spec.strides[1], width, across)
            with emitter.loop(0, down, unroll=False, hint="window") as window:
                row = emitter.add(emitter.mul(window, spec.strides[0]), top)
                with emitter.when(emitter.compare("ult", row, height)):  # unsigned: a negative row is huge
                    goal = position(emitter, image, [(row, width), (left, 1)])
                    values = position(emitter, source, [(windows, number), (window, across)])
                    _add(emitter, goal, values, first, last, spec.strides[1], target.lanes)
    return [emitter]


def _inside(emitter: Emitter, left: int, stride: int, width: IRValue, across: IRValue) -> tuple[IRValue, IRValue]:
    """Return the windows whose tap at ``left`` of their place lies in the image: the first, and one past the last."""
    first = max(0, -(left // stride))  # rounded up
    room = emitter.maximum(emitter.sub(width, left), 0)
    last = emitter.minimum(emitter.udiv(emitter.add(room, stride - 1), stride), across)
    return IRValue("i64", str(first)), last


def _add(
    emitter: Emitter, goal: IRValue, values: IRValue, first: IRValue, last: IRValue, stride: int, lanes: int
) -> None:
    """Append the sums of a line: whole vectors where windows step by one, else number by number."""
    whole = first
    if stride == 1:
        length = emitter.maximum(emitter.sub(last, first), 0)
        whole = emitter.add(first, emitter.sub(length, emitter.urem(length, lanes)))
        with emitter.loop(first, whole, lanes, unroll=False, hint="column") as column:
            _add_at(emitter, emitter.element(goal, column), emitter.element(values, column), f"<{lanes} x float>")
    with emitter.loop(whole, last, unroll=False, hint="column") as column:
        at = emitter.element(goal, emitter.mul(column, stride))
        _add_at(emitter, at, emitter.element(values, column), "float")


def _add_at(emitter: Emitter, goal: IRValue, value: IRValue, type_: str) -> None:
    before, more = emitter.load(type_, goal, 4), emitter.load(type_, value, 4)
    emitter.store(emitter.binary("fadd", before, more), goal, 4)
