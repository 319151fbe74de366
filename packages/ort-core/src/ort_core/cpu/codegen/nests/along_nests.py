"""Reductions of any element type along the dimension that lies densely: vectors of states run along it.

Each lane folds its share of the elements, and ``joins`` make one state of two in the end. Sums of floats are therefore
added in another order than one by one: that of row nests, with a smaller error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from ort_core.cpu.codegen.llvm_ir.addresses import strided_offset
from ort_core.cpu.codegen.llvm_ir.deferred_kernel import DeferredKernel, deferred_kernel
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.llvm_ir.scalar_printer import STORED, TYPES, ScalarPrinter, constant
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import (
    BROADCAST,
    KERNEL_PARAMETERS,
    load_element,
    share,
    store_element,
)
from ort_core.cpu.codegen.nests.places import each_place
from ort_core.cpu.codegen.nests.reduction_nests import INDEX, STATES, ReductionNest
from ort_core.plugin.loops import Scalar, structure

_VECTORS = 4  # folded side by side: hides the latency of an addition
_States = list[IRValue]  # the variables of one set of states


@dataclass(frozen=True, slots=True)
class AlongNest:
    """What to reduce: as ``nest`` says, but for its inputs, which say how they step through the innermost reduced one.

    ``joins`` are the states that two sets of them make, in terms of ``row_value(STATES + i)`` for the one set and of
    ``row_value(STATES + states + i)`` for the other; the order of both must not matter.
    """

    nest: ReductionNest
    joins: tuple[Scalar, ...]

    @property
    def structure(self) -> str:
        """What is computed, as text: equal for equal nests."""
        return f"{self.nest.structure} {structure(*self.joins)}"


def along_kernel(nest: AlongNest, target: Target) -> DeferredKernel:
    """Return the kernel, one function; its argument table is that of ``ReductionNest``."""
    return deferred_kernel(
        "along", nest.structure, lambda name: [_AlongPrinter(nest, target, name).function()], is_joined=True
    )


class _AlongPrinter:
    def __init__(self, along: AlongNest, target: Target, name: str) -> None:
        self._nest, self._joins = along.nest, along.joins
        self._lanes = target.lanes
        self._emitter = Emitter(name, KERNEL_PARAMETERS)

    def function(self) -> Emitter:
        nest, emitter = self._nest, self._emitter
        args, places = emitter.parameter("args"), iter(range(1 << 16))
        outputs = [emitter.argument(args, next(places), "ptr") for _ in nest.results]
        inputs = [emitter.argument(args, next(places), "ptr") for _ in nest.inputs]
        kept = [emitter.argument(args, next(places)) for _ in range(nest.kept)]
        reduced = [emitter.argument(args, next(places)) for _ in range(nest.reduced)]
        out_strides = [[emitter.argument(args, next(places)) for _ in range(nest.kept - 1)] for _ in nest.results]
        in_strides = [[emitter.argument(args, next(places)) for _ in range(nest.kept + nest.reduced)] for _ in inputs]
        self._count = self._product(reduced)
        first, last = share(emitter, self._product(kept))
        with each_place(emitter, first, last, kept, "task") as (_, indices):
            bases = [
                emitter.element(base, strided_offset(emitter, indices, steps), STORED[entry.dtype])
                for base, steps, entry in zip(inputs, in_strides, nest.inputs)
            ]
            states = self._folded(bases, reduced, [steps[nest.kept :] for steps in in_strides])
            printer = self._printer(1, lambda number: states[number - STATES], [], integer(0))
            for base, steps, (expression, dtype) in zip(outputs, out_strides, nest.results):
                row = emitter.element(base, strided_offset(emitter, indices, steps), STORED[dtype])
                store_element(emitter, printer.print(expression), row, indices[-1], dtype, 1)
        return emitter

    def _folded(self, bases: list[IRValue], reduced: list[IRValue], steps: list[list[IRValue]]) -> list[IRValue]:
        """Fold all elements of one result; return its states."""
        emitter, lanes, length = self._emitter, self._lanes, reduced[-1]
        sets = [self._variables(lanes) for _ in range(_VECTORS)]
        rest = self._variables(1)
        block = lanes * _VECTORS
        in_blocks = emitter.sub(length, emitter.urem(length, block))
        in_vectors = emitter.sub(length, emitter.urem(length, lanes))
        with ExitStack() as loops:
            outer = [loops.enter_context(emitter.loop(0, size, unroll=False, hint="reduced")) for size in reduced[:-1]]
            rows = [
                emitter.element(base, strided_offset(emitter, outer, each), STORED[entry.dtype])
                for base, each, entry in zip(bases, steps, self._nest.inputs)
            ]
            with emitter.loop(0, in_blocks, block, unroll=False, hint="j") as j:
                for number, states in enumerate(sets):
                    self._update(states, rows, emitter.add(j, number * lanes), lanes)
            with emitter.loop(in_blocks, in_vectors, lanes, unroll=False, hint="j") as j:
                self._update(sets[0], rows, j, lanes)
            with emitter.loop(in_vectors, length, unroll=False, hint="j") as j:
                self._update(rest, rows, j, 1)
        found = self._loaded(sets[0], lanes)
        for states in sets[1:]:
            found = self._joined(found, self._loaded(states, lanes), lanes)
        width = lanes
        while width > 1:  # halve the vectors until one lane is left
            halves = [[_half(emitter, value, width, side) for value in found] for side in (0, 1)]
            width //= 2
            found = self._joined(halves[0], halves[1], width)
        return self._joined(found, self._loaded(rest, 1), 1)

    def _variables(self, width: int) -> _States:
        first = [constant(value, dtype, width) for dtype, value in self._nest.initial]
        return [self._emitter.variable(value.type, value, "state") for value in first]

    def _loaded(self, states: _States, width: int) -> list[IRValue]:
        types = [vector_type(width, TYPES[dtype]) for dtype, _ in self._nest.initial]
        return [self._emitter.load(type_, slot) for type_, slot in zip(types, states)]

    def _update(self, states: _States, rows: Sequence[IRValue], at: IRValue, width: int) -> None:
        old = self._loaded(states, width)
        printer = self._printer(width, lambda number: old[number - STATES], rows, at)
        for value, slot in zip([printer.print(update) for update in self._nest.updates], states):
            self._emitter.store(value, slot)

    def _joined(self, left: Sequence[IRValue], right: Sequence[IRValue], width: int) -> list[IRValue]:
        both = [*left, *right]
        printer = self._printer(width, lambda number: both[number - STATES], [], integer(0))
        return [printer.print(join) for join in self._joins]

    def _printer(
        self, width: int, state: Callable[[int], IRValue], rows: Sequence[IRValue], at: IRValue
    ) -> ScalarPrinter:
        emitter, loaded = self._emitter, dict[int, IRValue]()

        def read(number: int) -> IRValue:
            if number not in loaded:
                entry = self._nest.inputs[number]
                if entry.inner == BROADCAST:
                    value = load_element(emitter, rows[number], integer(0), entry.dtype, 1)
                    loaded[number] = emitter.splat(value, width)
                else:
                    loaded[number] = load_element(emitter, rows[number], at, entry.dtype, width)
            return loaded[number]

        def row(number: int) -> IRValue:
            if number >= STATES:
                return state(number)
            return self._places(at, width) if number == INDEX else emitter.splat(self._count, width)

        return ScalarPrinter(emitter, width, read, row)

    def _places(self, first: IRValue, width: int) -> IRValue:
        """Return the places of ``width`` elements in their row."""
        if width == 1:
            return first
        lanes = IRValue(vector_type(width, "i64"), "<" + ", ".join(f"i64 {lane}" for lane in range(width)) + ">")
        return self._emitter.binary("add", self._emitter.splat(first, width), lanes)

    def _product(self, sizes: Sequence[IRValue]) -> IRValue:
        total: IRValue = integer(1)
        for size in sizes:
            total = self._emitter.mul(total, size)
        return total


def _half(emitter: Emitter, vector: IRValue, width: int, side: int) -> IRValue:
    """Return the lower or the upper half of a vector, a value itself where that is one lane."""
    element, count = vector.type[1:-1].partition(" x ")[2], width // 2
    if count == 1:
        return emitter.assign(element, f"extractelement {vector.typed}, i32 {side}")
    lanes = ", ".join(f"i32 {side * count + i}" for i in range(count))
    text = f"shufflevector {vector.typed}, {vector.type} poison, <{count} x i32> <{lanes}>"
    return emitter.assign(vector_type(count, element), text)
