"""The integers from 0 on, which make index arithmetic elementwise."""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter
from ort_core.cpu.codegen.llvm_ir.memoized import memoized
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, share


@memoized
def iota_kernel() -> tuple[str, Emitter]:
    """Return the kernel ``out[i] = i`` of int64. The argument table: out, count."""
    emitter = Emitter("iota", KERNEL_PARAMETERS)
    args = emitter.parameter("args")
    out = emitter.argument(args, 0, "ptr")
    first, last = share(emitter, emitter.argument(args, 1))
    with emitter.loop(first, last) as i:
        emitter.store(i, emitter.element(out, i, "i64"), 8)
    return "iota", emitter
