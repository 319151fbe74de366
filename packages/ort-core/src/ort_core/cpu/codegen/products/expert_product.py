"""Products of experts: rows in one piece for each expert, multiplied by that expert's matrix.

    C[r, :] = epilogue(A[r, :] @ B[e]) for r in starts[e] to starts[e + 1]

How many rows an expert has is only known when the step runs. So the kernel goes over the experts, writes the argument
table of each one's product, and computes its piece of it: every thread takes part in every expert's product.
"""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS
from ort_core.plugin import frozen


@frozen
class ExpertTable:
    """What of a product's argument table differs between experts, by position.

    Attributes:
        count: how many words the table has.
        rows: words that say how many rows there are.
        by_row: addresses of rows: they move on by the rows of the experts before.
        by_expert: addresses of what each expert has its own of: they move on by as much for each.
    """

    count: int
    rows: tuple[int, ...]
    by_row: tuple[int, ...]
    by_expert: tuple[int, ...]


def over_experts(name: str, product: str, table: ExpertTable) -> Emitter:
    """Return the kernel that calls the kernel ``product`` for each expert that has rows.

    Its argument table is the product's for all rows and the first expert; behind it stand the address of ``starts``
    (int64, one more than there are experts), how many experts there are, and how many bytes each address of ``by_row``
    moves on for a row, and each of ``by_expert`` for an expert.
    """
    e = Emitter(name, KERNEL_PARAMETERS)
    args, count = e.parameter("args"), table.count
    words = e.variable(f"[{count} x i64]", hint="table", align=8)
    for i in range(count):
        _set(e, words, i, e.argument(args, i))
    starts, experts = e.argument(args, count, "ptr"), e.argument(args, count + 1)
    moved = (*table.by_row, *table.by_expert)
    steps = [e.argument(args, count + 2 + i) for i in range(len(moved))]
    with e.loop(0, experts, unroll=False, hint="expert") as expert:
        start, stop = (e.load("i64", e.element(starts, e.add(expert, i), "i64")) for i in (0, 1))
        rows = e.sub(stop, start)
        with e.when(e.compare("sgt", rows, 0)):
            for place in table.rows:
                _set(e, words, place, rows)
            for number, (place, step) in enumerate(zip(moved, steps, strict=True)):
                passed = start if number < len(table.by_row) else expert
                _set(e, words, place, e.add(e.argument(args, place), e.mul(passed, step)))
            e.call_void(product, words, *(e.parameter(each) for each in ("piece", "pieces", "thread")))
    return e


def _set(emitter: Emitter, table: IRValue, index: int, value: IRValue) -> None:
    emitter.store(value, emitter.element(table, integer(index), "i64"))
