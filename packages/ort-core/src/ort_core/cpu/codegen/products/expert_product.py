"""Products of experts: rows in one piece for each expert, multiplied by that expert's matrix.

    C[r, :] = epilogue(A[r, :] @ B[e]) for r in starts[e] to starts[e + 1]

How many rows an expert has is only known when the step runs. So the kernel goes over the experts, writes the argument
table of each one's product, and computes its piece of it: every thread takes part in every expert's product.
"""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS
from ort_core.cpu.codegen.products.epilogue import Epilogue
from ort_core.cpu.codegen.products.expression_epilogue import WORDS
from ort_core.cpu.codegen.products.matrix_product import ARGUMENTS, product_functions

_FLOAT_NBYTES = 4
BEHIND = 3  # words behind those of a product and its epilogue: starts, experts, and the elements of a matrix


def expert_functions(
    name: str, target: Target, *, packed: bool, operands: int, epilogue: Epilogue | None = None
) -> list[Emitter]:
    """Return the functions of the products of all experts; the last one is the kernel.

    Its argument table is that of ``product_functions`` for all rows, with ``WORDS`` for each of the epilogue's
    operands; behind it the address of ``starts`` (int64, one more than there are experts), how many experts there are,
    how many elements lie from one expert's matrix to the next, and as much for each operand. Batches are not read.
    """
    product = f"{name}_one"
    functions = product_functions(product, target, packed=packed, epilogue=epilogue)
    return [*functions, _over_experts(name, product, operands)]


def _over_experts(name: str, product: str, operands: int) -> Emitter:
    e = Emitter(name, KERNEL_PARAMETERS)
    args, count = e.parameter("args"), ARGUMENTS.count + WORDS * operands
    table = e.variable(f"[{count} x i64]", hint="table", align=8)
    given = [e.argument(args, i) for i in range(count + BEHIND + operands)]
    for i in range(count):
        _set(e, table, i, given[i])
    starts, experts, step = e.argument(args, count, "ptr"), given[count + 1], given[count + 2]
    with e.loop(0, experts, unroll=False, hint="expert") as expert:
        start, stop = (e.load("i64", e.element(starts, e.add(expert, i), "i64")) for i in (0, 1))
        rows = e.sub(stop, start)
        with e.when(e.compare("sgt", rows, 0)):
            _set(e, table, ARGUMENTS.m, rows)
            _move(e, table, given, ARGUMENTS.a, e.mul(start, given[ARGUMENTS.a_row]))
            _move(e, table, given, ARGUMENTS.b, e.mul(expert, step))
            _move(e, table, given, ARGUMENTS.c, e.mul(start, given[ARGUMENTS.c_row]))
            for i in range(operands):
                _move(e, table, given, ARGUMENTS.count + WORDS * i, e.mul(expert, given[count + BEHIND + i]))
            e.call_void(product, table, *(e.parameter(each) for each in ("piece", "pieces", "thread")))
    return e


def _set(emitter: Emitter, table: IRValue, index: int, value: IRValue) -> None:
    emitter.store(value, emitter.element(table, integer(index), "i64"))


def _move(emitter: Emitter, table: IRValue, given: list[IRValue], index: int, elements: IRValue) -> None:
    """Set a pointer of the table to an address so many floats behind the one given."""
    _set(emitter, table, index, emitter.add(given[index], emitter.mul(elements, _FLOAT_NBYTES)))
