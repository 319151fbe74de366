"""TopK: each row keeps its best elements in order while it is read once; insertion, for small k."""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.llvm_ir.memoized import memoized
from ort_core.cpu.codegen.llvm_ir.scalar_printer import ScalarPrinter
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, load_element, share, store_element
from ort_core.plugin.ir import DataType, KnownDim
from ort_core.plugin.loops import Scalar, binary, element, unary

MAX_K = 128  # experts of a token that are found so
_MOST_INSERTED = 32  # above, sorting is faster: 64 of 1,000 take 14 us and 6, of 64 2.9 us and 1.8
_LONG = 4096  # rows from which on it is for any k: 20 of 8,400 take 14 us and 11


def is_inserted(length: KnownDim, k: KnownDim) -> bool:
    """Return whether the best ``k`` of ``length`` elements are found by insertion, not by ``sorted_top_k``."""
    is_long = isinstance(length, int) and length >= _LONG
    return isinstance(k, int) and k <= _MOST_INSERTED and not is_long


@memoized
def top_k_kernel(dtype: DataType, *, largest: bool) -> tuple[str, Emitter]:
    """Return the kernel that stores the ``k`` best elements of each row and their indices, best first.

    Equal elements keep their order; a NaN counts as the largest. The argument table: values, indices (int64), input,
    rows, length, k (at least 1, at most length). All are row-major.
    """
    name = f"top_k_{dtype.text}_{int(largest)}"
    emitter = Emitter(name, KERNEL_PARAMETERS)
    args = emitter.parameter("args")
    values, indices, source = (emitter.argument(args, i, "ptr") for i in range(3))
    rows, length, k = (emitter.argument(args, i) for i in range(3, 6))
    first, last = share(emitter, rows)
    with emitter.loop(first, last, unroll=False, hint="row") as row:
        start, begin = emitter.mul(row, k), emitter.mul(row, length)
        count = emitter.variable("i64", integer(0), "count")
        with emitter.loop(0, length, unroll=False, hint="i") as i:
            value = load_element(emitter, source, emitter.add(begin, i), dtype, 1)
            held = emitter.load("i64", count)
            is_open = emitter.compare("slt", held, k)
            worst = emitter.add(start, emitter.sub(emitter.maximum(held, 1), 1))
            takes = emitter.variable("i1", is_open, "takes")
            with emitter.when(emitter.compare("eq", held, k)):
                emitter.store(
                    _precedes(emitter, value, load_element(emitter, values, worst, dtype, 1), dtype, largest), takes
                )
            with emitter.when(emitter.load("i1", takes)):
                place = emitter.minimum(held, emitter.sub(k, 1))  # the worst one falls out when all places are taken
                _insert(emitter, value, i, start, place, values, indices, dtype, largest)
                emitter.store(emitter.minimum(emitter.add(held, 1), k), count)
    return name, emitter


def _insert(
    emitter: Emitter, value: IRValue, index: IRValue, start: IRValue, place: IRValue, values: IRValue,
    indices: IRValue, dtype: DataType, largest: bool,
) -> None:  # fmt: skip
    """Move elements that the value precedes one place back, from ``place`` on, and store it in front of them."""
    slot = emitter.variable("i64", place, "place")
    going = emitter.variable("i1", IRValue("i1", "true"), "going")
    with emitter.loop(0, place, unroll=False, hint="moved"), emitter.when(emitter.load("i1", going)):
        at = emitter.load("i64", slot)
        before = emitter.add(start, emitter.sub(at, 1))
        other = load_element(emitter, values, before, dtype, 1)
        precedes = _precedes(emitter, value, other, dtype, largest)
        emitter.store(precedes, going)
        with emitter.when(precedes):
            store_element(emitter, other, values, emitter.add(start, at), dtype, 1)
            number = emitter.load("i64", emitter.element(indices, before, "i64"))
            emitter.store(number, emitter.element(indices, emitter.add(start, at), "i64"))
            emitter.store(emitter.sub(at, 1), slot)
    final = emitter.add(start, emitter.load("i64", slot))
    store_element(emitter, value, values, final, dtype, 1)
    emitter.store(index, emitter.element(indices, final, "i64"))


def _precedes(emitter: Emitter, value: IRValue, other: IRValue, dtype: DataType, largest: bool) -> IRValue:
    a, b = element(0, dtype), element(1, dtype)
    before: Scalar = binary("gt" if largest else "lt", a, b)
    if dtype.is_float:
        above, below = (a, b) if largest else (b, a)
        is_nan = binary("and", unary("is_nan", above), unary("not", unary("is_nan", below)))
        before = binary("or", before, is_nan)
    operands = (value, other)
    return ScalarPrinter(emitter, 1, operands.__getitem__).print(before)
