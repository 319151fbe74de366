"""Words: sizes of the argument table as a tensor of integers; what Shape returns."""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter
from ort_core.cpu.codegen.llvm_ir.memoized import memoized
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS


@memoized
def size_vector_kernel(count: int) -> tuple[str, Emitter]:
    """Return the kernel that stores ``count`` entries of the argument table behind the first, the target, as i64."""
    name = f"words_{count}"
    emitter = Emitter(name, KERNEL_PARAMETERS)
    args = emitter.parameter("args")
    out = emitter.argument(args, 0, "ptr")
    with emitter.when(emitter.compare("eq", emitter.parameter("piece"), 0)):
        for index in range(count):
            emitter.store(emitter.argument(args, 1 + index), emitter.element(out, index, "i64"), 8)
    return name, emitter
