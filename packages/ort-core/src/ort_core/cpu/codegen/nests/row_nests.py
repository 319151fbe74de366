"""Row nests: softmax, normalizations and reductions over the innermost axis, a row at a time.

A row runs through passes; a pass walks the elements once, storing results and reducing others to values of the row;
derived values are computed between passes. ``row_value(0)`` is the length of the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ort_core.cpu.codegen.llvm_ir.addresses import strided_offset
from ort_core.cpu.codegen.llvm_ir.deferred_kernel import DeferredKernel, deferred_kernel
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.llvm_ir.scalar_printer import STORED, TYPES, ScalarPrinter, constant
from ort_core.cpu.codegen.llvm_ir.vectors import lane_mask, load_vector, store_vector
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import (
    BROADCAST,
    KERNEL_PARAMETERS,
    NestInput,
    has_masks,
    load_element,
    share,
    store_element,
)
from ort_core.cpu.codegen.nests.places import each_place
from ort_core.cpu.codegen.nests.repeated_work import repeats_work
from ort_core.plugin.ir import DataType, KnownDim
from ort_core.plugin.loops import (
    RowPass,
    RowReduction,
    Scalar,
    binary,
    element,
    maximum,
    minimum,
    neutral_value,
    select,
    structure,
)

_MOST_VECTORS = 4  # of float32, of a row that is kept in registers, each perhaps with what three operands make of it
_ACCUMULATORS = 4  # independent vector sums: hides the latency of an addition, and makes rounding errors smaller

JOINED: Mapping[str, Callable[[Scalar, Scalar], Scalar]] = {
    "sum": lambda a, b: a + b, "prod": lambda a, b: a * b, "max": maximum, "min": minimum,
    "peak": lambda a, b: select(binary("gt", a, b), a, b),
}  # fmt: skip
"""What two parts of a row are together, by the kind of the reduction."""


@dataclass(frozen=True, slots=True)
class RowNest:
    """What to compute for every row.

    ``inputs`` step through the row densely or are one value per row (BROADCAST). An expression reads output ``k``, as
    stored by an earlier pass, as input ``len(inputs) + k``. ``scalars`` are (row value, output number): results with
    one element a row. The argument table: output pointers, scalar output pointers, input pointers, ``rank`` sizes
    (the last is the row's length), then for each output and each input ``rank - 1`` strides of the outer dimensions.
    Scalar outputs are dense. ``vectors`` is how many vectors a row fills, the last one perhaps in part, where those are
    known to be so few that all stay in registers from the first pass to the last; else 0. ``dtype`` is the float type
    of what is reduced, of the row's values and of scalar outputs.
    """

    rank: int
    inputs: tuple[NestInput, ...]
    outputs: tuple[DataType, ...]
    passes: tuple[RowPass, ...]
    scalars: tuple[int, ...] = ()
    vectors: int = 0
    dtype: DataType = DataType.FLOAT

    @property
    def structure(self) -> str:
        """What is computed, as text: equal for equal nests."""
        passes = [
            ([n for n, _ in p.stores], [(r.kind, r.index) for r in p.reductions], [n for n, _ in p.derived])
            for p in self.passes
        ]
        roots = [root for each in self.passes for root in each.roots]
        types = [self.dtype.name, *(dtype.name for dtype in self.outputs)]
        return f"{self.rank} {self.inputs} {types} {passes} {self.scalars} {self.vectors} {structure(*roots)}"


def row_vectors(length: KnownDim, dtypes: Iterable[DataType], target: Target) -> int:
    """Return ``RowNest.vectors`` for rows of a length over operands of these types."""
    types = list(dtypes)
    widest = max([dtype.bits for dtype in types], default=DataType.FLOAT.bits)
    most = _MOST_VECTORS * target.lanes * DataType.FLOAT.bits // widest
    if not isinstance(length, int) or not 0 < length <= most or not has_masks(target, types):
        return 0
    return -(-length // target.lanes)


def row_kernel(nest: RowNest, target: Target) -> DeferredKernel:
    """Return the kernel, one function."""
    return deferred_kernel(
        "rows", nest.structure, lambda name: [_RowPrinter(nest, target, name).function()],
        is_vectorized=_is_vectorized(nest, target), is_joined=True,
    )  # fmt: skip


def _is_vectorized(nest: RowNest, target: Target) -> bool:
    """Return whether every loop takes vectors alone, and nothing out of it: few passes do then."""
    fixed = frozenset([number for number, entry in enumerate(nest.inputs) if entry.inner == BROADCAST])
    walked = [root for each in nest.passes for root in each.walked]
    return _is_masked(nest, target) and not repeats_work(tuple(walked), fixed)


def _is_masked(nest: RowNest, target: Target) -> bool:
    """Return whether a mask cuts off the last vector of a row."""
    dense = [entry.dtype for entry in nest.inputs if entry.inner != BROADCAST]
    return has_masks(target, [nest.dtype, *dense, *nest.outputs])


class _RowPrinter:
    def __init__(self, nest: RowNest, target: Target, name: str) -> None:
        self._nest = nest
        self._lanes = target.lanes
        self._word = TYPES[nest.dtype]
        self._emitter = Emitter(name, KERNEL_PARAMETERS, word=self._word)
        self._rows: list[IRValue] = []  # base of each input's row, then of each output's
        self._dtypes = [*(i.dtype for i in nest.inputs), *nest.outputs]
        self._is_masked = _is_masked(nest, target)
        self._values: dict[int, IRValue] = {}
        self._fixed: dict[int, IRValue] = {}

    def function(self) -> Emitter:
        nest, emitter = self._nest, self._emitter
        args, outer = emitter.parameter("args"), nest.rank - 1
        places = iter(range(1 << 16))
        outputs = [emitter.argument(args, next(places), "ptr") for _ in nest.outputs]
        scalars = [emitter.argument(args, next(places), "ptr") for _ in nest.scalars]
        inputs = [emitter.argument(args, next(places), "ptr") for _ in nest.inputs]
        sizes = [emitter.argument(args, next(places)) for _ in range(nest.rank)]
        out_strides = [[emitter.argument(args, next(places)) for _ in range(outer)] for _ in nest.outputs]
        in_strides = [[emitter.argument(args, next(places)) for _ in range(outer)] for _ in nest.inputs]
        count: IRValue = integer(1)
        for size in sizes[:-1]:
            count = emitter.mul(count, size)
        length = sizes[-1]
        rest = emitter.sub(length, max(0, nest.vectors - 1) * self._lanes)
        self._last = lane_mask(emitter, rest, self._lanes) if nest.vectors else None
        first, last = share(emitter, count)
        with each_place(emitter, first, last, sizes[:-1], "row") as (row, indices):
            bases = [*inputs, *outputs]
            strides = [*in_strides, *out_strides]
            self._rows = [
                emitter.element(base, strided_offset(emitter, indices, steps), STORED[dtype])
                for base, steps, dtype in zip(bases, strides, self._dtypes)
            ]
            self._values = {0: emitter.assign(self._word, f"sitofp i64 {length.text} to {self._word}")}
            self._fixed = {
                i: load_element(emitter, self._rows[i], integer(0), entry.dtype, 1)
                for i, entry in enumerate(nest.inputs) if entry.inner == BROADCAST
            }  # fmt: skip
            if nest.vectors:
                self._in_registers()
            else:
                for each in nest.passes:
                    self._pass(each, length)
            for pointer, index in zip(scalars, nest.scalars):
                store_element(emitter, self._values[index], pointer, row, nest.dtype, 1)
        return emitter

    def _pass(self, each: RowPass, length: IRValue) -> None:
        emitter, lanes = self._emitter, self._lanes
        if each.stores or each.reductions:
            unroll = _ACCUMULATORS if each.reductions else 1
            slots = {r.index: self._accumulators(r, lanes, unroll) for r in each.reductions}
            rest_slots = {} if self._is_masked else {r.index: self._accumulators(r, 1, 1) for r in each.reductions}
            step = lanes * unroll
            wide = emitter.sub(length, emitter.urem(length, step))
            whole = emitter.sub(length, emitter.urem(length, lanes))
            with emitter.loop(0, wide, step, unroll=False, hint="j") as j:
                for part in range(unroll):
                    self._body(each, emitter.add(j, part * lanes), lanes, {k: s[part] for k, s in slots.items()})
            if unroll > 1:
                with emitter.loop(wide, whole, lanes, unroll=False, hint="j") as j:
                    self._body(each, j, lanes, {k: s[0] for k, s in slots.items()})
            if self._is_masked:
                with emitter.when(emitter.compare("slt", whole, length)):
                    mask = lane_mask(emitter, emitter.sub(length, whole), lanes)
                    self._body(each, whole, lanes, {k: s[0] for k, s in slots.items()}, mask)
            else:
                with emitter.loop(whole, length, 1, unroll=False, hint="j") as j:
                    self._body(each, j, 1, {k: s[0] for k, s in rest_slots.items()})
            for reduction in each.reductions:
                self._values[reduction.index] = self._combine(reduction, slots, rest_slots)
        self._derive(each)

    def _in_registers(self) -> None:
        """Run all passes over a row of a few vectors; each is loaded once, and stored by the last pass that does."""
        emitter, nest, lanes = self._emitter, self._nest, self._lanes
        places = [integer(number * lanes) for number in range(nest.vectors)]
        masks = [None] * (nest.vectors - 1) + [self._last]
        loaded: list[dict[int, IRValue]] = [{} for _ in places]
        for number, each in enumerate(nest.passes):
            stored_later = {output for later in nest.passes[number + 1 :] for output, _ in later.stores}
            printers = [self._printer(lanes, *row) for row in zip(loaded, places, masks, strict=True)]
            results = [[printer.print(expression) for _, expression in each.stores] for printer in printers]
            for reduction in each.reductions:
                values = [printer.print(reduction.expression) for printer in printers]
                assert self._last is not None
                values[-1] = emitter.select(self._last, values[-1], self._neutral(reduction, lanes))
                self._values[reduction.index] = self._folded(reduction.kind, values)
            for known, place, mask, values in zip(loaded, places, masks, results, strict=True):
                for (output, _), value in zip(each.stores, values, strict=True):
                    position = len(nest.inputs) + output
                    known[position] = value
                    if output not in stored_later:
                        store_vector(emitter, value, emitter.element(self._rows[position], place), mask)
            self._derive(each)

    def _derive(self, each: RowPass) -> None:
        for index, expression in each.derived:
            self._values[index] = self._printer(1, {}).print(expression)

    def _accumulators(self, reduction: RowReduction, width: int, count: int) -> list[IRValue]:
        neutral = self._neutral(reduction, width)
        return [self._emitter.variable(neutral.type, neutral, "acc") for _ in range(count)]

    def _neutral(self, reduction: RowReduction, width: int) -> IRValue:
        return constant(neutral_value(reduction.kind, self._nest.dtype), self._nest.dtype, width)

    def _body(
        self, each: RowPass, j: IRValue, width: int, slots: dict[int, IRValue], mask: IRValue | None = None
    ) -> None:
        emitter = self._emitter
        printer = self._printer(width, {}, j, mask)
        for output, expression in each.stores:
            position = len(self._nest.inputs) + output
            value, row = printer.print(expression), self._rows[position]
            if mask is not None:
                store_vector(emitter, value, emitter.element(row, j), mask)
            else:
                store_element(emitter, value, row, j, self._dtypes[position], width)
        for reduction in each.reductions:
            slot, value = slots[reduction.index], printer.print(reduction.expression)
            if mask is not None:
                value = emitter.select(mask, value, self._neutral(reduction, width))
            old = emitter.load(value.type, slot)
            emitter.store(self._joined(reduction.kind, old, value, width), slot)

    def _combine(
        self, reduction: RowReduction, slots: dict[int, list[IRValue]], rest: dict[int, list[IRValue]]
    ) -> IRValue:
        emitter, kind = self._emitter, reduction.kind
        type_ = vector_type(self._lanes, self._word)
        total = self._folded(kind, [emitter.load(type_, slot) for slot in slots[reduction.index]])
        return total if not rest else self._joined(kind, total, emitter.load(self._word, rest[reduction.index][0]), 1)

    def _folded(self, kind: str, vectors: Sequence[IRValue]) -> IRValue:
        """Return the sum, product or extreme of all lanes of vectors."""
        emitter = self._emitter
        total = vectors[0]
        for vector in vectors[1:]:
            total = self._joined(kind, total, vector, self._lanes)
        width = self._lanes
        while width > 1:  # halve the vector until one lane is left
            half = width // 2
            low = _part(emitter, total, width, 0, half)
            high = _part(emitter, total, width, half, half)
            total, width = self._joined(kind, low, high, half), half
        return total

    def _joined(self, kind: str, left: IRValue, right: IRValue, width: int) -> IRValue:
        a, b = element(0, self._nest.dtype), element(1, self._nest.dtype)
        joined = JOINED[kind](a, b)
        return ScalarPrinter(self._emitter, width, lambda index: (left, right)[index]).print(joined)

    def _printer(
        self, width: int, loaded: dict[int, IRValue], j: IRValue | None = None, mask: IRValue | None = None
    ) -> ScalarPrinter:
        emitter = self._emitter

        def read(index: int) -> IRValue:
            if index not in loaded:
                if index in self._fixed:
                    loaded[index] = emitter.splat(self._fixed[index], width)
                else:
                    assert j is not None, "a derived value reads an element"
                    row = self._rows[index]
                    if mask is not None:
                        loaded[index] = load_vector(emitter, emitter.element(row, j), width, mask)
                    else:
                        loaded[index] = load_element(emitter, row, j, self._dtypes[index], width)
            return loaded[index]

        return ScalarPrinter(emitter, width, read, lambda index: emitter.splat(self._values[index], width))


def _part(emitter: Emitter, vector: IRValue, width: int, start: int, count: int) -> IRValue:
    word = vector.type[1:-1].partition(" x ")[2]
    if count == 1:
        return emitter.assign(word, f"extractelement {vector.typed}, i32 {start}")
    lanes = ", ".join(f"i32 {i}" for i in range(start, start + count))
    text = f"shufflevector {vector.typed}, {vector.type} poison, <{count} x i32> <{lanes}>"
    return emitter.assign(vector_type(count, word), text)
