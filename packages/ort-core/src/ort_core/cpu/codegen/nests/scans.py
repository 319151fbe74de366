"""Scans: running sums and products along one dimension, with vectors across the innermost other dimension."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.llvm_ir.memoized import memoized
from ort_core.cpu.codegen.llvm_ir.scalar_printer import STORED, ScalarPrinter, constant
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import (
    KERNEL_PARAMETERS,
    in_quarters,
    load_element,
    share,
    store_element,
)
from ort_core.cpu.codegen.nests.places import each_place
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, binary, cast, element

_VECTORS = 4  # scanned side by side: a row's lines are read whole, and additions do not wait for each other


@dataclass(frozen=True, slots=True)
class Scan:
    """What to compute: ``add`` or ``mul`` of all elements up to each one, or before it (``is_exclusive``).

    The running value is held in ``state``. The argument table: out, in, outer count, length, inner count, then of out
    and of in the strides of the three; the inner one is dense where ``is_dense`` (both have 1), else any.
    """

    operation: str
    dtype: DataType
    state: DataType
    is_exclusive: bool
    is_dense: bool


@memoized
def scan_kernel(scan: Scan, target: Target) -> tuple[str, Emitter]:
    """Return the kernel's name and its function."""
    emitter = Emitter("$name", KERNEL_PARAMETERS)
    args = emitter.parameter("args")
    out, source = emitter.argument(args, 0, "ptr"), emitter.argument(args, 1, "ptr")
    outer, length, inner = (emitter.argument(args, i) for i in (2, 3, 4))
    out_strides = [emitter.argument(args, i) for i in (5, 6, 7)]
    in_strides = [emitter.argument(args, i) for i in (8, 9, 10)]
    width = target.lanes if scan.is_dense else 1
    group = width * (_VECTORS if scan.is_dense else 1)
    blocks = emitter.udiv(emitter.add(inner, group - 1), group)
    first, last = share(emitter, emitter.mul(outer, blocks))
    with each_place(emitter, first, last, [outer, blocks], "task") as (_, (row, block)):
        start = emitter.mul(block, group)
        bases = [
            emitter.element(base, emitter.mul(row, strides[0]), STORED[scan.dtype])
            for base, strides in ((out, out_strides), (source, in_strides))
        ]
        stop = emitter.minimum(emitter.add(start, group), inner)
        is_whole = emitter.compare("eq", emitter.sub(stop, start), group)

        def columns(j: IRValue, width: int, vectors: int = 1) -> None:
            _columns(emitter, scan, bases, (j, width, vectors), length, out_strides, in_strides)

        with emitter.either(is_whole) as branch:
            columns(start, width, group // width)
            with branch.otherwise():
                whole = emitter.sub(stop, emitter.urem(emitter.sub(stop, start), width))
                with emitter.loop(start, whole, width, unroll=False, hint="j") as j:
                    columns(j, width)
                in_quarters(emitter, whole, stop, width, columns)
    emitter.rename(f"scan_{hashlib.sha256(emitter.finish().encode()).hexdigest()[:16]}")
    return emitter.name, emitter


def _columns(
    emitter: Emitter, scan: Scan, bases: list[IRValue], place: tuple[IRValue, int, int], length: IRValue,
    out_strides: list[IRValue], in_strides: list[IRValue],
) -> None:  # fmt: skip
    """Scan columns that lie side by side; ``place`` is the first one, how many are a vector, and how many vectors."""
    column, width, vectors = place
    first = constant(0 if scan.operation == "add" else 1, scan.state, width)
    slots = [emitter.variable(first.type, first, "state") for _ in range(vectors)]
    before: Scalar = element(1, scan.state)
    new = binary(scan.operation, before, cast(element(0, scan.dtype), scan.state))
    with emitter.loop(0, length, unroll=False, hint="i") as i:
        rows = []
        for base, strides in zip(bases, (out_strides, in_strides)):
            offset = emitter.add(emitter.mul(i, strides[1]), emitter.mul(column, strides[2]))
            rows.append(emitter.element(base, offset, STORED[scan.dtype]))
        for number, slot in enumerate(slots):
            at = integer(number * width)
            operands = (load_element(emitter, rows[1], at, scan.dtype, width), emitter.load(first.type, slot))
            printer = ScalarPrinter(emitter, width, operands.__getitem__)
            emitter.store(printer.print(new), slot)
            stored = printer.print(cast(before if scan.is_exclusive else new, scan.dtype))
            store_element(emitter, stored, rows[0], at, scan.dtype, width)
