"""Stores numbers of the argument table as a tensor: contents that follow from sizes alone."""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter
from ort_core.cpu.codegen.llvm_ir.memoized import memoized
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS


@memoized
def size_store_kernel(count: int, bits: int) -> tuple[str, Emitter]:
    """Return the kernel that stores ``count`` integers of ``bits`` bits. The argument table: out, then the integers."""
    name = f"words_{count}_{bits}"
    emitter = Emitter(name, KERNEL_PARAMETERS)
    args = emitter.parameter("args")
    with emitter.when(emitter.compare("eq", emitter.parameter("piece"), 0)):
        out = emitter.argument(args, 0, "ptr")
        for number in range(count):
            value = emitter.argument(args, 1 + number)
            if bits != 64:
                value = emitter.assign(f"i{bits}", f"trunc {value.typed} to i{bits}")
            emitter.store(value, emitter.element(out, number, f"i{bits}"), bits // 8)
    return name, emitter
