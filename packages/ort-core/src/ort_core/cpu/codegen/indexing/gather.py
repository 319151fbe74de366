"""Gather: rows of a table chosen by indices; every index is checked."""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir.addresses import copy_bytes
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.llvm_ir.memoized import memoized
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, share


@memoized
def gather_kernel(index_bits: int, *, wraps: bool = True) -> tuple[str, Emitter]:
    """Return the kernel ``out[o, i, :] = table[o, index[i], :]``.

    The argument table: out, table, index, error (pointers), the outer count, the number of indices, the size of the
    gathered axis, and the bytes of one row. Indices are of ``index_bits`` bits, negative ones count from the end (or,
    without ``wraps``, are out of bounds). An index out of bounds sets ``error`` and copies nothing.
    """
    name = f"gather_{index_bits}" if wraps else f"gather_{index_bits}_from_start"
    emitter = Emitter(name, KERNEL_PARAMETERS)
    args = emitter.parameter("args")
    out, table, indices, error = (emitter.argument(args, i, "ptr") for i in range(4))
    outer, count, size, row = (emitter.argument(args, i) for i in range(4, 8))
    first, last = share(emitter, emitter.mul(outer, count))
    with emitter.loop(first, last, unroll=False, hint="task") as task:
        block, which = emitter.udiv(task, count), emitter.urem(task, count)
        index = _index(emitter, indices, which, index_bits)
        if wraps:
            negative = emitter.compare("slt", index, 0)
            index = emitter.select(negative, emitter.add(index, size), index)
        inside = emitter.compare("ult", index, size)  # unsigned: a negative index is huge
        with emitter.either(inside) as branch:
            source = emitter.mul(emitter.add(emitter.mul(block, size), index), row)
            copy_bytes(
                emitter, emitter.element(out, emitter.mul(task, row), "i8"), emitter.element(table, source, "i8"), row
            )
            with branch.otherwise():
                emitter.store(integer(1), error, 8)
    return name, emitter


def _index(emitter: Emitter, indices: IRValue, which: IRValue, bits: int) -> IRValue:
    value = emitter.load(f"i{bits}", emitter.element(indices, which, f"i{bits}"))
    return value if bits == 64 else emitter.assign("i64", f"sext {value.typed} to i64")
