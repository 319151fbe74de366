"""A look for float64 numbers beyond a bound, of which a function's generated form knows nothing."""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.llvm_ir.memoized import memoized
from ort_core.cpu.codegen.llvm_ir.scalar_printer import constant
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, share
from ort_core.plugin.ir import DataType


@memoized
def bound_check_kernel(bound: float) -> tuple[str, Emitter]:
    """Return the kernel that sets the error word if the size of a finite number is above ``bound``.

    The argument table: numbers (float64), error, count. Infinities and NaN are no errors.
    """
    name = f"beyond_{bound.hex().replace('.', '_').replace('+', '').replace('-', 'm')}"
    emitter = Emitter(name, KERNEL_PARAMETERS)
    args = emitter.parameter("args")
    numbers, error = (emitter.argument(args, i, "ptr") for i in range(2))
    first, last = share(emitter, emitter.argument(args, 2))
    found = emitter.variable("i1", IRValue("i1", "false"), "found")
    limit, infinity = (constant(value, DataType.DOUBLE, 1) for value in (bound, float("inf")))
    with emitter.loop(first, last, hint="i") as i:
        size = emitter.call("double", "llvm.fabs.f64", emitter.load("double", emitter.element(numbers, i, "double"), 8))
        is_above = emitter.assign("i1", f"fcmp ogt {size.typed}, {limit.text}")
        is_finite = emitter.assign("i1", f"fcmp olt {size.typed}, {infinity.text}")
        is_beyond = emitter.assign("i1", f"and i1 {is_above.text}, {is_finite.text}")
        emitter.store(emitter.assign("i1", f"or i1 {emitter.load('i1', found).text}, {is_beyond.text}"), found)
    with emitter.when(emitter.load("i1", found)):
        emitter.store(integer(1), error, 8)
    return name, emitter
