"""Copies that interleave a few rows: one element of each, then the next of each, as DepthToSpace lays out pixels.

As ordinary rows they would have as many elements as there are rows, two or three each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ort_core.cpu.codegen.llvm_ir.addresses import strided_offset
from ort_core.cpu.codegen.llvm_ir.deferred_kernel import DeferredKernel, deferred_kernel
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.llvm_ir.scalar_printer import STORED
from ort_core.cpu.codegen.llvm_ir.vectors import shuffle
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import (
    KERNEL_PARAMETERS,
    in_halves,
    load_element,
    natural_alignment,
    split_rows,
    store_element,
)
from ort_core.plugin.ir import DataType

MOST_ROWS = 4


@dataclass(frozen=True, slots=True)
class InterleavedCopy:
    """What to copy: ``count`` rows of elements of a type, for all outer dimensions of ``rank``.

    The argument table: out, source, ``rank`` sizes (the last: elements of a row), ``rank - 1`` strides of the outer
    dimensions for out, as many for the source, then the source's stride from row to row. Rows and out are dense.
    """

    rank: int
    count: int
    dtype: DataType

    @property
    def structure(self) -> str:
        """What is copied, as text."""
        return f"{self.rank} {self.count} {self.dtype.name}"


def interleaving_kernel(copy: InterleavedCopy, target: Target) -> DeferredKernel:
    """Return the kernel, one function."""
    return deferred_kernel(
        "interleaved", copy.structure, lambda name: [_function(copy, target, name)], is_joined=True
    )  # fmt: skip


def _function(copy: InterleavedCopy, target: Target, name: str) -> Emitter:
    emitter, stored = Emitter(name, KERNEL_PARAMETERS), STORED[copy.dtype]
    args, places = emitter.parameter("args"), iter(range(1 << 16))
    out, source = (emitter.argument(args, next(places), "ptr") for _ in range(2))
    sizes = [emitter.argument(args, next(places)) for _ in range(copy.rank)]
    out_strides, in_strides = ([emitter.argument(args, next(places)) for _ in range(copy.rank - 1)] for _ in range(2))
    between = emitter.argument(args, next(places))
    lanes = target.lanes * 32 // max(32, copy.dtype.bits)
    with split_rows(emitter, sizes) as (indices, start, stop):
        goal = emitter.element(out, strided_offset(emitter, indices, out_strides), stored)
        first = strided_offset(emitter, indices, in_strides)
        rows = [
            emitter.element(source, emitter.add(first, emitter.mul(between, integer(k))), stored)
            for k in range(copy.count)
        ]

        def place(j: IRValue, width: int) -> None:
            vectors = [load_element(emitter, row, j, copy.dtype, width) for row in rows]
            at = emitter.mul(j, copy.count)
            if width == 1:
                for k, value in enumerate(vectors):
                    store_element(emitter, value, goal, emitter.add(at, k), copy.dtype, 1)
                return
            emitter.store(
                _interleaved(emitter, vectors), emitter.element(goal, at, stored), natural_alignment(copy.dtype)
            )

        whole = emitter.sub(stop, emitter.urem(emitter.sub(stop, start), lanes))
        with emitter.loop(start, whole, lanes, unroll=False, hint="j") as j:
            place(j, lanes)
        in_halves(emitter, whole, stop, lanes, place)
    return emitter


def _interleaved(emitter: Emitter, vectors: Sequence[IRValue]) -> IRValue:
    """Return the first lanes of all vectors, their second lanes, and so on, as one vector."""
    count = len(vectors)
    width = int(vectors[0].type[1:].partition(" x ")[0])
    lanes = [k * width + lane for lane in range(width) for k in range(count)]
    if count == 2:
        return shuffle(emitter, vectors[0], vectors[1], lanes)
    first, second = (shuffle(emitter, pair[0], pair[-1], range(2 * width)) for pair in (vectors[:2], vectors[2:]))
    return shuffle(emitter, first, second, lanes)
