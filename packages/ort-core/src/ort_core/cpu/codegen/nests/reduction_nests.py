"""Reduction nests: reductions over any dimensions, with vectors across the innermost dimension that is kept.

Each result has states that every element of the reduced dimensions updates, in order: a sum, a maximum, the best
element and its index. Where the reduced dimension is the dense one, row nests are faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from ort_core.cpu.codegen.llvm_ir.deferred_kernel import DeferredKernel, deferred_kernel
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.cpu.codegen.llvm_ir.scalar_printer import STORED, ScalarPrinter, constant
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import (
    BROADCAST,
    DENSE,
    KERNEL_PARAMETERS,
    NestInput,
    gather_elements,
    in_quarters,
    load_element,
    share,
    store_element,
)
from ort_core.cpu.codegen.nests.places import each_place
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, structure

COUNT, INDEX, STATES = 0, 1, 2  # row values: elements reduced, index in the innermost reduced dimension, first state
_VECTORS = 4  # reduced side by side: hides the latency of an addition


@dataclass(frozen=True, slots=True)
class ReductionNest:
    """What to reduce.

    ``kept`` and ``reduced`` are the numbers of dimensions of each sort, both at least 1. ``inputs`` say how they step
    through the innermost kept dimension. ``initial`` are the states' first values, ``updates`` their next ones, in
    terms of the inputs, of ``row_value(STATES + i)`` and ``row_value(INDEX)`` (int64); ``results`` (expression, type)
    are stored. The argument table: output pointers, input pointers, kept sizes, reduced sizes, then for each output
    ``kept - 1`` strides, then for each input ``kept + reduced`` strides. Outputs are dense in the innermost dimension.
    """

    kept: int
    reduced: int
    inputs: tuple[NestInput, ...]
    initial: tuple[tuple[DataType, float | int], ...]
    updates: tuple[Scalar, ...]
    results: tuple[tuple[Scalar, DataType], ...]

    @property
    def structure(self) -> str:
        """What is computed, as text: equal for equal nests."""
        initial = [(dtype.name, repr(value)) for dtype, value in self.initial]
        types = [dtype.name for _, dtype in self.results]
        roots = [*self.updates, *(expression for expression, _ in self.results)]
        return f"{self.kept} {self.reduced} {self.inputs} {initial} {types} {structure(*roots)}"


def reduction_kernel(nest: ReductionNest, target: Target) -> DeferredKernel:
    """Return the kernel, one function."""
    return deferred_kernel(
        "reduction", nest.structure, lambda name: [_ReductionPrinter(nest, target, name).function()], is_joined=True
    )


class _ReductionPrinter:
    def __init__(self, nest: ReductionNest, target: Target, name: str) -> None:
        self._nest = nest
        self._lanes = target.lanes
        self._emitter = Emitter(name, KERNEL_PARAMETERS)

    def function(self) -> Emitter:
        nest, emitter = self._nest, self._emitter
        args, places = emitter.parameter("args"), iter(range(1 << 16))
        outputs = [emitter.argument(args, next(places), "ptr") for _ in nest.results]
        inputs = [emitter.argument(args, next(places), "ptr") for _ in nest.inputs]
        kept = [emitter.argument(args, next(places)) for _ in range(nest.kept)]
        self._reduced = [emitter.argument(args, next(places)) for _ in range(nest.reduced)]
        out_strides = [[emitter.argument(args, next(places)) for _ in range(nest.kept - 1)] for _ in nest.results]
        in_strides = [[emitter.argument(args, next(places)) for _ in range(nest.kept + nest.reduced)] for _ in inputs]
        self._inner = [strides[nest.kept - 1] for strides in in_strides]
        self._steps = [strides[nest.kept :] for strides in in_strides]
        self._count = integer(1)
        for size in self._reduced:
            self._count = emitter.mul(self._count, size)
        block = self._lanes * _VECTORS
        blocks = emitter.udiv(emitter.add(kept[-1], block - 1), block)
        outer: IRValue = integer(1)
        for size in kept[:-1]:
            outer = emitter.mul(outer, size)
        first, last = share(emitter, emitter.mul(outer, blocks))
        with each_place(emitter, first, last, [*kept[:-1], blocks], "task") as (_, (*indices, number)):
            start = emitter.mul(number, block)
            stop = emitter.minimum(emitter.add(start, block), kept[-1])
            self._bases = [
                emitter.element(base, self._offset(indices, steps), STORED[entry.dtype])
                for base, steps, entry in zip(inputs, in_strides, nest.inputs)
            ]
            self._rows = [
                emitter.element(base, self._offset(indices, steps), STORED[dtype])
                for base, steps, (_, dtype) in zip(outputs, out_strides, nest.results)
            ]
            self._columns(start, stop, block)
        return emitter

    def _columns(self, start: IRValue, stop: IRValue, block: int) -> None:
        """Fold a block at once where it is whole, else vector by vector, and the rest by quarters of one."""
        emitter, lanes = self._emitter, self._lanes
        length = emitter.sub(stop, start)
        with emitter.either(emitter.compare("eq", length, block)) as branch:
            self._fold(start, lanes, _VECTORS)
            with branch.otherwise():
                whole = emitter.sub(stop, emitter.urem(length, lanes))
                with emitter.loop(start, whole, lanes, unroll=False, hint="j") as j:
                    self._fold(j, lanes, 1)
                in_quarters(emitter, whole, stop, lanes, lambda j, width: self._fold(j, width, 1))

    def _fold(self, column: IRValue, width: int, vectors: int) -> None:
        nest, emitter = self._nest, self._emitter
        states = []
        for _ in range(vectors):
            first = [constant(value, dtype, width) for dtype, value in nest.initial]
            states.append([emitter.variable(value.type, value, "state") for value in first])
        with ExitStack() as loops:
            indices = [
                loops.enter_context(emitter.loop(0, size, unroll=False, hint="reduction")) for size in self._reduced
            ]
            places = [
                emitter.element(base, self._offset(indices, steps), STORED[entry.dtype])
                for base, steps, entry in zip(self._bases, self._steps, nest.inputs)
            ]
            for number, slots in enumerate(states):
                old = [emitter.load(value.type, slot) for value, slot in zip(first, slots)]
                at = emitter.add(column, number * width)
                printer = self._printer(places, at, width, old, indices[-1])
                for value, slot in zip([printer.print(update) for update in nest.updates], slots):
                    emitter.store(value, slot)
        for number, slots in enumerate(states):
            final = [emitter.load(value.type, slot) for value, slot in zip(first, slots)]
            at = emitter.add(column, number * width)
            printer = self._printer([], at, width, final, integer(0))
            for row, (expression, dtype) in zip(self._rows, nest.results):
                store_element(emitter, printer.print(expression), row, at, dtype, width)

    def _printer(
        self, places: Sequence[IRValue], column: IRValue, width: int, states: Sequence[IRValue], index: IRValue
    ) -> ScalarPrinter:
        emitter, loaded = self._emitter, dict[int, IRValue]()

        def read(number: int) -> IRValue:
            if number not in loaded:
                entry = self._nest.inputs[number]
                if entry.inner == BROADCAST:
                    value = load_element(emitter, places[number], integer(0), entry.dtype, 1)
                    loaded[number] = emitter.splat(value, width)
                elif entry.inner == DENSE:
                    loaded[number] = load_element(emitter, places[number], column, entry.dtype, width)
                else:
                    step = self._inner[number]
                    loaded[number] = gather_elements(emitter, places[number], column, step, entry.dtype, width)
            return loaded[number]

        def row(number: int) -> IRValue:
            if number >= STATES:
                return states[number - STATES]
            return emitter.splat(index if number == INDEX else self._count, width)

        return ScalarPrinter(emitter, width, read, row)

    def _offset(self, indices: Sequence[IRValue], strides: Sequence[IRValue]) -> IRValue:
        offset: IRValue = integer(0)
        for index, stride in zip(indices, strides):
            offset = self._emitter.add(offset, self._emitter.mul(index, stride))
        return offset
