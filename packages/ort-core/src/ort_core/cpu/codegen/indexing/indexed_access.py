"""Access by indices that are data: GatherND, GatherElements and the scatters. Every index is checked.

An index out of bounds sets the error word and touches nothing outside; the reference kernels then give the precise
error.
"""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.cpu.codegen.llvm_ir.addresses import copy_bytes, strided_offset
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.llvm_ir.memoized import memoized
from ort_core.cpu.codegen.llvm_ir.scalar_printer import ScalarPrinter
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, load_element, share, store_element
from ort_core.cpu.codegen.nests.places import each_place
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import binary, element

_ROW = 4096  # elements of the innermost dimension that are one piece of work
_GATHERED = 8  # elements gathered at once


@memoized
def gather_nd_kernel(depth: int, index_bits: int) -> tuple[str, Emitter]:
    """Return the kernel ``out[b, i, :] = data[b, index[b, i, 0], ..., :]``.

    The argument table: out, data, indices, error, batch count, tuples for each batch, bytes of a batch entry of data,
    bytes of a slice, then ``depth`` sizes and ``depth`` strides in bytes.
    """
    name = f"gather_nd_{depth}_{index_bits}"
    emitter = Emitter(name, KERNEL_PARAMETERS)
    args = emitter.parameter("args")
    out, data, indices, error = (emitter.argument(args, i, "ptr") for i in range(4))
    batches, count, entry, row = (emitter.argument(args, i) for i in range(4, 8))
    sizes = [emitter.argument(args, 8 + i) for i in range(depth)]
    strides = [emitter.argument(args, 8 + depth + i) for i in range(depth)]
    first, last = share(emitter, emitter.mul(batches, count))
    with emitter.loop(first, last, unroll=False, hint="task") as task:
        start = emitter.mul(emitter.udiv(task, count), entry)
        offset, inside = _tuple_offset(emitter, indices, emitter.mul(task, depth), sizes, strides, index_bits)
        with emitter.either(inside) as branch:
            source = emitter.element(data, emitter.add(start, offset), "i8")
            copy_bytes(emitter, emitter.element(out, emitter.mul(task, row), "i8"), source, row)
            with branch.otherwise():
                emitter.store(integer(1), error, 8)
    return name, emitter


@memoized
def gather_elements_kernel(
    rank: int, axis: int, itemsize: int, index_bits: int, *, is_dense: bool
) -> tuple[str, Emitter]:
    """Return the kernel ``out[c] = data[c with c[axis] replaced by index[c]]``; out and indices are row-major.

    The argument table: out, data, indices, error, ``rank`` sizes of the indices, the size of data's axis, at least 1,
    ``rank`` strides of data, of which the axis's is 1 where it ``is_dense``. Where an index is out of bounds, some
    element of data is copied.
    """
    name = f"gather_elements_{rank}_{axis}_{itemsize}_{index_bits}" + ("_dense" if is_dense else "")
    emitter = Emitter(name, KERNEL_PARAMETERS)
    args, type_ = emitter.parameter("args"), f"i{itemsize * 8}"
    out, data, indices, error = (emitter.argument(args, i, "ptr") for i in range(4))
    sizes = [emitter.argument(args, 4 + i) for i in range(rank)]
    length = emitter.argument(args, 4 + rank)
    strides = [emitter.argument(args, 5 + rank + i) for i in range(rank)]
    rows, row, dense = _product(emitter, sizes[:-1]), sizes[-1], _row_major(emitter, sizes)
    blocks = emitter.udiv(emitter.add(row, _ROW - 1), _ROW)
    first, last = share(emitter, emitter.mul(rows, blocks))
    bad = emitter.variable("i1", IRValue("i1", "false"), "bad")
    with each_place(emitter, first, last, [*sizes[:-1], blocks], "task") as (_, (*place, block)):
        base = strided_offset(
            emitter, [integer(0) if d == axis else i for d, i in enumerate(place)], strides[:-1]
        )  # fmt: skip
        here, start = strided_offset(emitter, place, dense[:-1]), emitter.mul(block, _ROW)
        stop = emitter.minimum(emitter.add(start, _ROW), row)
        whole = emitter.sub(stop, emitter.urem(emitter.sub(stop, start), _GATHERED))
        for width, low, high in ((_GATHERED, start, whole), (1, whole, stop)):
            with emitter.loop(low, high, width, unroll=False, hint="j") as j:
                at = emitter.add(here, j)
                index, inside = _bounded(emitter, indices, at, length, index_bits, width)
                _note_outside(emitter, bad, inside, width)
                offset = index if is_dense else _scaled(emitter, index, strides[axis], width)
                first_one = base if axis == rank - 1 else emitter.add(base, emitter.mul(j, strides[-1]))
                if axis != rank - 1 and width > 1:
                    offset = emitter.binary("add", offset, _multiples(emitter, strides[-1], width))
                value = _gathered(emitter, emitter.element(data, first_one, type_), offset, type_, itemsize, width)
                emitter.store(value, emitter.element(out, at, type_), itemsize)
    with emitter.when(emitter.load("i1", bad)):
        emitter.store(integer(1), error, 8)
    return name, emitter


@memoized
def scatter_elements_kernel(
    rank: int, axis: int, dtype: DataType, index_bits: int, reduction: str
) -> tuple[str, Emitter]:
    """Return the kernel ``out[c with c[axis] replaced by index[c]] = update[c]``, or combined with what stands there.

    Threads share the lines along the axis, which write to different places; within a line the order is kept. The
    argument table: out, updates, indices, error, ``rank`` sizes of the indices, the size of out's axis, ``rank``
    strides of out; indices and updates are row-major.
    """
    name = f"scatter_elements_{rank}_{axis}_{dtype.text}_{index_bits}_{reduction}"
    emitter = Emitter(name, KERNEL_PARAMETERS)
    args = emitter.parameter("args")
    out, updates, indices, error = (emitter.argument(args, i, "ptr") for i in range(4))
    sizes = [emitter.argument(args, 4 + i) for i in range(rank)]
    length = emitter.argument(args, 4 + rank)
    strides = [emitter.argument(args, 5 + rank + i) for i in range(rank)]
    dense = _row_major(emitter, sizes)
    others = [d for d in range(rank) if d != axis]
    first, last = share(emitter, _product(emitter, [sizes[d] for d in others]))
    with each_place(emitter, first, last, [sizes[d] for d in others], "line") as (_, place):
        base = strided_offset(emitter, place, [dense[d] for d in others])
        target = strided_offset(emitter, place, [strides[d] for d in others])
        with emitter.loop(0, sizes[axis], unroll=False, hint="i") as i:
            at = emitter.add(base, emitter.mul(i, dense[axis]))
            index, inside = _checked(emitter, indices, at, length, index_bits)
            with emitter.either(inside) as branch:
                goal = emitter.add(target, emitter.mul(index, strides[axis]))
                _update(emitter, out, goal, updates, at, dtype, reduction)
                with branch.otherwise():
                    emitter.store(integer(1), error, 8)
    return name, emitter


@memoized
def scatter_nd_kernel(depth: int, dtype: DataType, index_bits: int, reduction: str) -> tuple[str, Emitter]:
    """Return the kernel ``out[index[i, 0], ..., :] = update[i, :]``, or combined with what stands there.

    Threads share the elements of the slices, so that updates of one place keep their order. The argument table: out,
    updates, indices, error, number of tuples, elements of a slice, ``depth`` sizes, ``depth`` strides in elements.
    """
    name = f"scatter_nd_{depth}_{dtype.text}_{index_bits}_{reduction}"
    emitter = Emitter(name, KERNEL_PARAMETERS)
    args = emitter.parameter("args")
    out, updates, indices, error = (emitter.argument(args, i, "ptr") for i in range(4))
    count, row = emitter.argument(args, 4), emitter.argument(args, 5)
    sizes = [emitter.argument(args, 6 + i) for i in range(depth)]
    strides = [emitter.argument(args, 6 + depth + i) for i in range(depth)]
    first, last = share(emitter, row)
    with emitter.when(emitter.compare("slt", first, last)), emitter.loop(0, count, unroll=False, hint="tuple") as i:
        offset, inside = _tuple_offset(emitter, indices, emitter.mul(i, depth), sizes, strides, index_bits)
        with emitter.either(inside) as branch:
            source = emitter.mul(i, row)
            with emitter.loop(first, last, hint="j") as j:
                _update(emitter, out, emitter.add(offset, j), updates, emitter.add(source, j), dtype, reduction)
            with branch.otherwise():
                emitter.store(integer(1), error, 8)
    return name, emitter


def _update(
    emitter: Emitter, out: IRValue, goal: IRValue, updates: IRValue, at: IRValue, dtype: DataType, reduction: str
) -> None:
    value = load_element(emitter, updates, at, dtype, 1)
    if reduction != "none":
        operands = (load_element(emitter, out, goal, dtype, 1), value)
        joined = binary(reduction, element(0, dtype), element(1, dtype))
        value = ScalarPrinter(emitter, 1, operands.__getitem__).print(joined)
    store_element(emitter, value, out, goal, dtype, 1)


def _tuple_offset(
    emitter: Emitter, indices: IRValue, at: IRValue, sizes: Sequence[IRValue], strides: Sequence[IRValue], bits: int
) -> tuple[IRValue, IRValue]:
    """Return where an index tuple points to and whether all of it is inside."""
    offset, inside = integer(0), IRValue("i1", "true")
    for number, (size, stride) in enumerate(zip(sizes, strides)):
        index, is_inside = _checked(emitter, indices, emitter.add(at, number), size, bits)
        offset = emitter.add(offset, emitter.mul(index, stride))
        inside = emitter.assign("i1", f"and i1 {inside.text}, {is_inside.text}")
    return offset, inside


def _bounded(
    emitter: Emitter, indices: IRValue, at: IRValue, size: IRValue, bits: int, width: int
) -> tuple[IRValue, IRValue]:
    """Return indices counted from the front, 0 for those outside, and which are inside."""
    wide, flags = vector_type(width, "i64"), vector_type(width, "i1")
    index = emitter.load(vector_type(width, f"i{bits}"), emitter.element(indices, at, f"i{bits}"), bits // 8)
    if bits != 64:
        index = emitter.assign(wide, f"sext {index.typed} to {wide}")
    nothing = IRValue(wide, "zeroinitializer") if width > 1 else integer(0)
    sizes = emitter.splat(size, width)
    is_negative = emitter.assign(flags, f"icmp slt {index.typed}, {nothing.text}")
    index = emitter.select(is_negative, emitter.binary("add", index, sizes), index)
    inside = emitter.assign(flags, f"icmp ult {index.typed}, {sizes.text}")  # unsigned: a negative index is huge
    return emitter.select(inside, index, nothing), inside


def _note_outside(emitter: Emitter, bad: IRValue, inside: IRValue, width: int) -> None:
    """Set a flag unless all are inside."""
    if width > 1:
        bits = emitter.assign(f"i{width}", f"bitcast {inside.typed} to i{width}")
        inside = emitter.compare("eq", bits, -1)
    outside = emitter.assign("i1", f"xor i1 {inside.text}, true")
    seen = emitter.load("i1", bad)
    emitter.store(emitter.assign("i1", f"or i1 {seen.text}, {outside.text}"), bad)


def _scaled(emitter: Emitter, index: IRValue, stride: IRValue, width: int) -> IRValue:
    return emitter.binary("mul", index, emitter.splat(stride, width))


def _multiples(emitter: Emitter, stride: IRValue, width: int) -> IRValue:
    """Return 0, 1, 2, ... times a stride."""
    type_ = vector_type(width, "i64")
    lanes = IRValue(type_, "<" + ", ".join(f"i64 {lane}" for lane in range(width)) + ">")
    return emitter.binary("mul", emitter.splat(stride, width), lanes)


def _gathered(
    emitter: Emitter, base: IRValue, offset: IRValue, type_: str, itemsize: int, width: int
) -> IRValue:  # fmt: skip
    """Load elements at offsets from a place."""
    if width == 1:
        return emitter.load(type_, emitter.element(base, offset, type_), itemsize)
    vector = vector_type(width, type_)
    value = IRValue(vector, "poison")
    for lane in range(width):
        one = emitter.assign("i64", f"extractelement {offset.typed}, i32 {lane}")
        found = emitter.load(type_, emitter.element(base, one, type_), itemsize)
        value = emitter.assign(vector, f"insertelement {value.typed}, {found.typed}, i32 {lane}")
    return value


def _checked(emitter: Emitter, indices: IRValue, at: IRValue, size: IRValue, bits: int) -> tuple[IRValue, IRValue]:
    """Return an index counted from the front and whether it is inside."""
    index = emitter.load(f"i{bits}", emitter.element(indices, at, f"i{bits}"))
    if bits != 64:
        index = emitter.assign("i64", f"sext {index.typed} to i64")
    index = emitter.select(emitter.compare("slt", index, 0), emitter.binary("add", index, size), index)
    return index, emitter.compare("ult", index, size)  # unsigned: a negative index is huge


def _product(emitter: Emitter, sizes: Sequence[IRValue]) -> IRValue:
    total: IRValue = integer(1)
    for size in sizes:
        total = emitter.mul(total, size)
    return total


def _row_major(emitter: Emitter, sizes: Sequence[IRValue]) -> list[IRValue]:
    strides: list[IRValue] = []
    step: IRValue = integer(1)
    for size in reversed(sizes):
        strides.append(step)
        step = emitter.mul(step, size)
    return strides[::-1]
