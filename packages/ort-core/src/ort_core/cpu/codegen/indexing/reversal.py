"""ReverseSequence: the first steps of each sequence in reverse order, the others as they are; whole rows at once."""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir.addresses import copy_bytes, strided_offset
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, integer
from ort_core.cpu.codegen.llvm_ir.memoized import memoized
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, share
from ort_core.cpu.codegen.nests.places import each_place


@memoized
def reversal_kernel(*, is_time_first: bool) -> tuple[str, Emitter]:
    """Return the kernel over [before, first, between, second, row], where time is first or second, batch the other.

    The argument table: out, data, lengths (int64), error (pointers), the sizes before, first, between and second, and
    the bytes of a row. A length below 0 or above the steps sets the error word.
    """
    name = "reversal_time_first" if is_time_first else "reversal_batch_first"
    emitter = Emitter(name, KERNEL_PARAMETERS)
    args = emitter.parameter("args")
    out, data, lengths, error = (emitter.argument(args, i, "ptr") for i in range(4))
    sizes = [emitter.argument(args, i) for i in range(4, 8)]
    row = emitter.argument(args, 8)
    strides = [row]
    for size in reversed(sizes[1:]):
        strides.insert(0, emitter.mul(strides[0], size))
    count = sizes[0]
    for size in sizes[1:]:
        count = emitter.mul(count, size)
    time, batch = (1, 3) if is_time_first else (3, 1)
    first, last = share(emitter, count)
    with each_place(emitter, first, last, sizes, "task") as (task, place):
        length = emitter.load("i64", emitter.element(lengths, place[batch], "i64"), 8)
        with emitter.either(emitter.compare("ule", length, sizes[time])) as branch:  # unsigned: negative ones are huge
            turned = emitter.sub(emitter.sub(length, 1), place[time])
            is_turned = emitter.compare("slt", place[time], length)
            place[time] = emitter.select(is_turned, turned, place[time])
            source = emitter.element(data, strided_offset(emitter, place, strides), "i8")
            copy_bytes(emitter, emitter.element(out, emitter.mul(task, row), "i8"), source, row)
            with branch.otherwise():
                emitter.store(integer(1), error, 8)
    return name, emitter
