"""MaxPool with indices: the largest element of each window and its place in the flattened tensor; rows are contiguous.

The first of equal elements is taken, and a NaN is larger than any number. A window wholly in padding gives the type's
least number at the place before the first.
"""

from __future__ import annotations

import itertools

from ort_core.cpu.codegen.images.channels_last import kernel_emitter, share_of
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.llvm_ir.scalar_printer import STORED, ScalarPrinter, constant
from ort_core.cpu.codegen.nests.elementwise_nests import load_element, store_element
from ort_core.cpu.codegen.nests.places import unravel
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, binary, element, integer_range, unary

_LARGEST = {DataType.FLOAT: 3.4028234663852886e38, DataType.DOUBLE: 1.7976931348623157e308}


@frozen
class IndexedPooling:
    """A window over one or more axes; ``is_inner`` says that every window lies within the input.

    ``is_column_major``: places count along the first axis of space first.
    """

    dtype: DataType
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    is_inner: bool
    is_column_major: bool


def indexed_pooling_kernel(name: str, spec: IndexedPooling) -> list[Emitter]:
    """Return the kernel.

    The argument table: results, indices (int64), x (pointers), planes, then for each axis of space its size in x and
    in the results. All three are row-major without gaps.
    """
    emitter, rank = kernel_emitter(name), len(spec.kernel)
    args = emitter.parameter("args")
    out, indices, x = (emitter.argument(args, i, "ptr") for i in range(3))
    planes = emitter.argument(args, 3)
    sizes = [emitter.argument(args, 4 + 2 * axis) for axis in range(rank)]
    counts = [emitter.argument(args, 5 + 2 * axis) for axis in range(rank)]
    rows = emitter.mul(planes, _product(emitter, counts[:-1]))
    plane_size = _product(emitter, sizes)
    steps = [_product(emitter, sizes[axis + 1 :]) for axis in range(rank)]
    places = [_product(emitter, sizes[:axis]) for axis in range(rank)] if spec.is_column_major else steps
    with share_of(emitter, rows) as row:
        plane, *outer = unravel(emitter, row, [planes, *counts[:-1]])
        first = emitter.mul(plane, plane_size)
        source = emitter.element(x, first, STORED[spec.dtype])
        line = emitter.mul(row, counts[-1])
        with emitter.loop(0, counts[-1], unroll=False, hint="window") as last:
            starts = [
                emitter.sub(emitter.mul(at, stride), before)
                for at, stride, before in zip([*outer, last], spec.strides, spec.before, strict=True)
            ]
            best, place = _window(emitter, spec, source, starts, sizes, steps, places)
            at = emitter.add(line, last)
            store_element(emitter, best, out, at, spec.dtype, 1)
            emitter.store(emitter.add(first, place), emitter.element(indices, at, "i64"), 8)
    return [emitter]


def _window(
    emitter: Emitter, spec: IndexedPooling, source: IRValue, starts: list[IRValue], sizes: list[IRValue],
    steps: list[IRValue], places: list[IRValue],
) -> tuple[IRValue, IRValue]:  # fmt: skip
    """Append the search of one window; return its best element and the place of that in the plane."""
    best, place = constant(_least(spec.dtype), spec.dtype, 1), integer(-1)
    on_axes = [
        [_tap(emitter, spec, axis, start, sizes[axis], number) for number in range(spec.kernel[axis])]
        for axis, start in enumerate(starts)
    ]
    takes_first = True
    for taps in itertools.product(*on_axes):
        offset, number = integer(0), integer(0)
        inside: IRValue | None = None
        for (at, is_inside), step, count in zip(taps, steps, places, strict=True):
            offset = emitter.add(offset, emitter.mul(at, step))
            number = emitter.add(number, emitter.mul(at, count))
            if is_inside is not None:
                inside = is_inside if inside is None else emitter.binary("and", inside, is_inside)
        value = load_element(emitter, source, offset, spec.dtype, 1)
        if takes_first and inside is None:
            best, place = value, number
        else:
            better = _is_better(emitter, spec.dtype, value, best)
            if inside is not None:
                is_empty = emitter.compare("slt", place, 0)
                better = emitter.binary("and", emitter.binary("or", better, is_empty), inside)
            best, place = emitter.select(better, value, best), emitter.select(better, number, place)
        takes_first = False
    return best, place


def _tap(
    emitter: Emitter, spec: IndexedPooling, axis: int, start: IRValue, size: IRValue, number: int
) -> tuple[IRValue, IRValue | None]:
    """Return where a tap is on an axis, moved inside, and whether it was (``None``: always)."""
    at = emitter.add(start, number * spec.dilations[axis])
    if spec.is_inner:
        return at, None
    inside = emitter.compare("ult", at, size)  # unsigned: a negative place is huge
    return emitter.select(inside, at, integer(0)), inside


def _is_better(emitter: Emitter, dtype: DataType, value: IRValue, best: IRValue) -> IRValue:
    x, found = element(0, dtype), element(1, dtype)
    better: Scalar = binary("gt", x, found)
    if dtype.is_float:
        better = binary("or", better, binary("and", unary("is_nan", x), unary("not", unary("is_nan", found))))
    return ScalarPrinter(emitter, 1, (value, best).__getitem__).print(better)


def _least(dtype: DataType) -> float | int:
    return -_LARGEST[dtype] if dtype.is_float else integer_range(dtype)[0]


def _product(emitter: Emitter, sizes: list[IRValue]) -> IRValue:
    total: IRValue = integer(1)
    for size in sizes:
        total = emitter.mul(total, size)
    return total
