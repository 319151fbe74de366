"""A look for zeros among integers, which nothing is divided by."""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.llvm_ir.memoized import memoized
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, share


@memoized
def zero_check_kernel(bits: int) -> tuple[str, Emitter]:
    """Return the kernel that sets the error word if an integer is 0; the argument table: integers, error, count."""
    name, type_ = f"zeros_{bits}", f"i{bits}"
    emitter = Emitter(name, KERNEL_PARAMETERS)
    args = emitter.parameter("args")
    numbers, error = (emitter.argument(args, i, "ptr") for i in range(2))
    first, last = share(emitter, emitter.argument(args, 2))
    found = emitter.variable("i1", IRValue("i1", "false"), "found")
    with emitter.loop(first, last, hint="i") as i:
        number = emitter.load(type_, emitter.element(numbers, i, type_), bits // 8)
        is_zero, before = emitter.compare("eq", number, 0), emitter.load("i1", found)
        emitter.store(emitter.assign("i1", f"or i1 {before.text}, {is_zero.text}"), found)
    with emitter.when(emitter.load("i1", found)):
        emitter.store(integer(1), error, 8)
    return name, emitter
