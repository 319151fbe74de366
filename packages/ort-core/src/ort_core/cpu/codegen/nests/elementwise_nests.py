"""Elementwise nests: fused scalar expressions over broadcast, strided and contiguous operands, for any sizes.

The iteration space has ``rank`` dimensions, the innermost one dense in every output. Rows (all outer dimensions
together) times blocks of the innermost dimension are the tasks that threads share. The innermost loop is printed for
vectors, its rest for single elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from ort_core.cpu.codegen.llvm_ir.deferred_kernel import DeferredKernel, deferred_kernel
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.llvm_ir.scalar_printer import STORED, TYPES, ScalarPrinter
from ort_core.cpu.codegen.llvm_ir.vectors import lane_mask, load_vector, shuffle, store_vector
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.places import each_place
from ort_core.cpu.codegen.nests.repeated_work import repeats_work
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, operations, structure

KERNEL_PARAMETERS = (("ptr noalias readonly", "args"), ("i64", "piece"), ("i64", "pieces"), ("i64", "thread"))
BLOCK = 4096  # elements of the innermost dimension per task: 16 KiB of float32, half of a first-level cache
BROADCAST, DENSE, STRIDED, REPEATED, PITCHED, TILED, OPEN = range(7)
_PLAIN = (BROADCAST, DENSE, STRIDED, OPEN)
PERIODS = (2, 4, 8)  # sizes of short rows that are walked as one long row
MOST_SKIPPED = 4  # strides up to it are loaded whole
_MOST_HALVED = 16  # operations of a result
_LEAST_MASKED = 8  # lanes of AVX; smaller vector units have no masks: LLVM writes a branch for each lane


@frozen
class NestInput:
    """An operand: its element type and how the innermost loop steps through it.

    ``step`` is the stride of a STRIDED one where that is known to be two or a few more elements, else 0. The stride of
    an OPEN one is 0 or 1, which only a run tells: it is one element for the whole row, or dense. Of short rows of
    ``period`` elements that are walked as one, an operand may be REPEATED (an element for each), PITCHED (as well, a
    stride apart) or TILED (the same for each).
    """

    dtype: DataType
    inner: int
    step: int = 0
    period: int = 0


@frozen
class ElementwiseNest:
    """What to compute. ``outputs`` are (expression, element type); expressions read ``inputs`` by index.

    The argument table: output pointers, input pointers, ``rank`` sizes, then for each output ``rank - 1`` strides of
    the outer dimensions, then for each input ``rank`` strides (in elements; the innermost counts only if STRIDED or
    PITCHED). Where ``out_period`` is set, outputs have ``rank`` strides, too: the last one leads from short row to
    short row of so many elements.
    """

    rank: int
    inputs: tuple[NestInput, ...]
    outputs: tuple[tuple[Scalar, DataType], ...]
    out_period: int = 0

    @property
    def structure(self) -> str:
        """What is computed, as text: equal for equal nests."""
        types = [dtype.name for _, dtype in self.outputs]
        period = f" {self.out_period}" if self.out_period else ""
        return f"{self.rank}{period} {self.inputs} {types} {structure(*(expression for expression, _ in self.outputs))}"


def elementwise_kernel(nest: ElementwiseNest, target: Target) -> DeferredKernel:
    """Return the kernel, one function."""
    return deferred_kernel(
        "nest", nest.structure, lambda name: [_function(nest, target, name)],
        is_vectorized=_is_vectorized(nest, target), is_joined=True,
    )  # fmt: skip


def _function(nest: ElementwiseNest, target: Target, name: str) -> Emitter:
    emitter = Emitter(name, KERNEL_PARAMETERS, word="double" if nest.outputs[0][1] is DataType.DOUBLE else "float")
    args, rank = emitter.parameter("args"), nest.rank
    count_out, count_in = len(nest.outputs), len(nest.inputs)
    outputs = [emitter.argument(args, i, "ptr") for i in range(count_out)]
    inputs = [emitter.argument(args, count_out + i, "ptr") for i in range(count_in)]
    at = count_out + count_in
    sizes = [emitter.argument(args, at + d) for d in range(rank)]
    at += rank
    steps = rank if nest.out_period else rank - 1
    out_strides = [[emitter.argument(args, at + o * steps + d) for d in range(steps)] for o in range(count_out)]
    at += count_out * steps
    in_strides = [[emitter.argument(args, at + i * rank + d) for d in range(rank)] for i in range(count_in)]
    with split_rows(emitter, sizes) as (indices, start, stop):
        out_rows = [_row(emitter, p, indices, s, t) for p, s, (_, t) in zip(outputs, out_strides, nest.outputs)]
        in_rows = [_row(emitter, p, indices, s, i.dtype) for p, s, i in zip(inputs, in_strides, nest.inputs)]
        inner = [strides[-1] for strides in in_strides]
        pitches = [strides[-1] for strides in out_strides] if nest.out_period else []
        _inner_loops(emitter, nest, target, (out_rows, pitches), in_rows, inner, start, stop)
    return emitter


@contextmanager
def split_rows(
    emitter: Emitter, sizes: Sequence[IRValue], block: int = BLOCK
) -> Iterator[tuple[list[IRValue], IRValue, IRValue]]:
    """Loop over this thread's tasks; the body gets the outer indices and the bounds of the innermost loop."""
    inner = sizes[-1]
    blocks = emitter.udiv(emitter.add(inner, block - 1), block)
    tasks = blocks
    for size in sizes[:-1]:
        tasks = emitter.mul(tasks, size)
    first, last = share(emitter, tasks)
    with each_place(emitter, first, last, [*sizes[:-1], blocks], "task") as (_, (*indices, number)):
        start = emitter.mul(number, block)
        yield indices, start, emitter.minimum(emitter.add(start, block), inner)


def share(emitter: Emitter, tasks: IRValue) -> tuple[IRValue, IRValue]:
    """Return the bounds of this piece's share of ``tasks``: contiguous, sizes differing by at most one."""
    piece, pieces = emitter.parameter("piece"), emitter.parameter("pieces")
    first = emitter.udiv(emitter.mul(tasks, piece), pieces)
    last = emitter.udiv(emitter.mul(tasks, emitter.add(piece, 1)), pieces)
    return first, last


def _row(
    emitter: Emitter, base: IRValue, indices: Sequence[IRValue], strides: Sequence[IRValue], dtype: DataType
) -> IRValue:
    offset: IRValue = integer(0)
    for index, stride in zip(indices, strides):
        offset = emitter.add(offset, emitter.mul(index, stride))
    return emitter.element(base, offset, STORED[dtype])


def _inner_loops(
    emitter: Emitter,
    nest: ElementwiseNest,
    target: Target,
    stored: tuple[Sequence[IRValue], Sequence[IRValue]],
    in_rows: Sequence[IRValue],
    inner_strides: Sequence[IRValue],
    start: IRValue,
    stop: IRValue,
) -> None:
    fixed = {
        i: load_element(emitter, in_rows[i], integer(0), n.dtype, 1)
        for i, n in enumerate(nest.inputs)
        if n.inner == BROADCAST
    }

    widest = _lanes_of(nest, target)
    opened = {
        i: _open_row(emitter, in_rows[i], inner_strides[i], n.dtype, widest)
        for i, n in enumerate(nest.inputs) if n.inner == OPEN
    }  # fmt: skip

    def compute(j: IRValue, width: int, mask: IRValue | None = None) -> None:
        loaded = {i: emitter.splat(value, width) for i, value in fixed.items()}

        def read(index: int) -> IRValue:
            if index not in loaded:
                entry, row, at = nest.inputs[index], in_rows[index], j
                if index in opened:
                    row, at = opened[index], emitter.mul(j, inner_strides[index])
                if mask is not None:
                    loaded[index] = load_vector(emitter, emitter.element(row, at), width, mask)
                elif entry.inner in (DENSE, OPEN):
                    loaded[index] = load_element(emitter, row, at, entry.dtype, width)
                elif entry.inner in (REPEATED, PITCHED, TILED):
                    loaded[index] = _load_periodic(emitter, row, j, inner_strides[index], entry, width)
                elif entry.step and width > 1:
                    loaded[index] = _load_every(emitter, row, j, entry, width)
                else:
                    loaded[index] = gather_elements(emitter, row, j, inner_strides[index], entry.dtype, width)
            return loaded[index]

        printer = ScalarPrinter(emitter, width, read)
        values = [printer.print(expression) for expression, _ in nest.outputs]
        for number, (value, (_, dtype)) in enumerate(zip(values, nest.outputs, strict=True)):
            row = stored[0][number]
            if nest.out_period:
                _store_periodic(emitter, value, (row, stored[1][number]), j, dtype, (width, nest.out_period))
            elif mask is not None:
                store_vector(emitter, value, emitter.element(row, j), mask)
            else:
                store_element(emitter, value, row, j, dtype, width)

    skips = any(entry.step for entry in nest.inputs)
    end = emitter.sub(stop, 1) if skips else stop  # what is skipped behind an element lies in front of another one
    whole = emitter.sub(end, emitter.urem(emitter.sub(end, start), widest))
    with emitter.loop(start, whole, widest, hint="j") as j:
        compute(j, widest)
    if _is_copy(nest) or (not _is_masked(nest, target) and _has_halves(nest)):
        in_halves(emitter, whole, end, widest, compute)
        if skips:
            compute(end, 1)
    elif _is_masked(nest, target):
        with emitter.when(emitter.compare("slt", whole, stop)):
            compute(whole, widest, lane_mask(emitter, emitter.sub(stop, whole), widest))
    else:
        with emitter.loop(whole, stop, unroll=False, hint="j") as j:
            compute(j, 1)


def _open_row(emitter: Emitter, row: IRValue, stride: IRValue, dtype: DataType, width: int) -> IRValue:
    """Return where a vector is loaded of a row whose stride is 0 or 1: of the row, or of copies of its one element."""
    first = emitter.load(STORED[dtype], emitter.element(row, 0, STORED[dtype]), natural_alignment(dtype))
    copies = emitter.variable(vector_type(width, STORED[dtype]), emitter.splat(first, width), "copies")
    return emitter.select(emitter.compare("eq", stride, 0), copies, row)


def in_halves(
    emitter: Emitter, start: IRValue, stop: IRValue, width: int, compute: Callable[[IRValue, int], None]
) -> None:
    """Compute the rest of a row, fewer than ``width`` elements, by vectors of half the width, a quarter, and so on."""
    rest = emitter.sub(stop, start)
    while width > 1:
        width //= 2
        part = emitter.binary("and", rest, integer(width))
        with emitter.when(emitter.compare("ne", part, 0)):
            compute(start, width)
        start = emitter.add(start, part)


def in_quarters(
    emitter: Emitter, start: IRValue, stop: IRValue, width: int, compute: Callable[[IRValue, int], None]
) -> None:
    """Compute the rest of a row by vectors of a quarter of the width, and one by one: less code than by halves."""
    quarter = max(1, width // 4)
    whole = emitter.sub(stop, emitter.urem(emitter.sub(stop, start), quarter))
    for first, last, count in ((start, whole, quarter), (whole, stop, 1)):
        with emitter.loop(first, last, count, unroll=False, hint="j") as j:
            compute(j, count)


def _is_copy(nest: ElementwiseNest) -> bool:
    """Return whether elements that lie side by side or a step apart, or one of them all the time, are copied."""
    (expression, dtype), *others = nest.outputs
    if expression.operation != "input" or others:
        return False
    source = nest.inputs[expression.index]
    return source.dtype is dtype and (source.inner != STRIDED or source.step > 0)


def _is_vectorized(nest: ElementwiseNest, target: Target) -> bool:
    """Return whether every loop takes vectors alone, and nothing out of it: few passes do then.

    Of strided elements LLVM makes gathers, and of what is left of a row, where neither a mask nor halves take it,
    vectors.
    """
    fixed, pitched = (
        frozenset([number for number, entry in enumerate(nest.inputs) if entry.inner == inner])
        for inner in (BROADCAST, PITCHED)
    )
    takes_vectors = _is_masked(nest, target) or (_is_copy(nest) and not pitched)
    return takes_vectors and not repeats_work(tuple([expression for expression, _ in nest.outputs]), fixed)


def _lanes_of(nest: ElementwiseNest, target: Target) -> int:
    """Return the elements that a step takes: a vector of float32, or of smaller elements that are only copied."""
    bits = nest.outputs[0][1].bits
    is_wide = _is_copy(nest) and bits in (8, 16) and not any(entry.step for entry in nest.inputs)
    return target.lanes * 32 // bits if is_wide else target.lanes


def _has_halves(nest: ElementwiseNest) -> bool:
    """Return whether rows end in halves of a vector: each half is the expression once more, for LLVM to compile."""
    is_plain = all(entry.inner in _PLAIN and not entry.step for entry in nest.inputs) and not nest.out_period
    return is_plain and nest.rank > 1 and sum(operations(root) for root, _ in nest.outputs) <= _MOST_HALVED


def _is_masked(nest: ElementwiseNest, target: Target) -> bool:
    """Return whether a mask cuts off the last vector of a row."""
    dtypes = [dtype for _, dtype in nest.outputs]
    dtypes += [entry.dtype for entry in nest.inputs if entry.inner != BROADCAST]
    is_plain = all(entry.inner in (BROADCAST, DENSE, OPEN) for entry in nest.inputs) and not nest.out_period
    return is_plain and has_masks(target, dtypes)


def has_masks(target: Target, dtypes: Iterable[DataType]) -> bool:
    """Return whether the target loads and stores part of a vector of such elements, all of a type, by instructions."""
    return target.lanes >= _LEAST_MASKED and set(dtypes) in ({DataType.FLOAT}, {DataType.DOUBLE}, set())


def load_element(emitter: Emitter, row: IRValue, index: IRValue, dtype: DataType, width: int) -> IRValue:
    """Load ``width`` neighboring elements into registers (bool as i1)."""
    stored = vector_type(width, STORED[dtype])
    value = emitter.load(stored, emitter.element(row, index, STORED[dtype]), natural_alignment(dtype))
    if dtype is DataType.BOOL:
        zero = "zeroinitializer" if width > 1 else "0"
        return emitter.assign(vector_type(width, "i1"), f"icmp ne {value.typed}, {zero}")
    return value


def _load_every(emitter: Emitter, row: IRValue, index: IRValue, entry: NestInput, width: int) -> IRValue:
    """Load ``width`` elements that lie a few elements apart, and all that lies between them and behind the last."""
    all_of_them = load_element(emitter, row, emitter.mul(index, entry.step), entry.dtype, width * entry.step)
    return shuffle(emitter, all_of_them, all_of_them, range(0, width * entry.step, entry.step))


def _store_periodic(
    emitter: Emitter, value: IRValue, place: tuple[IRValue, IRValue], index: IRValue, dtype: DataType,
    sizes: tuple[int, int],
) -> None:  # fmt: skip
    """Store neighboring elements into short rows a stride apart; ``sizes`` are how many, and of a short row."""
    (row, stride), (width, period) = place, sizes
    first, within = emitter.udiv(index, period), emitter.urem(index, period)
    count = min(width, period)
    for start in range(0, width, count):
        at = emitter.add(emitter.mul(emitter.add(first, start // count), stride), within)
        part = value if count == width else shuffle(emitter, value, value, range(start, start + count))
        store_element(emitter, part, row, at, dtype, count)


def _load_periodic(
    emitter: Emitter, row: IRValue, index: IRValue, stride: IRValue, entry: NestInput, width: int
) -> IRValue:
    """Load the elements of short rows for ``width`` neighboring places, the first a multiple of both sizes."""
    period, is_tiled = entry.period, entry.inner == TILED
    first = emitter.urem(index, period) if is_tiled else emitter.udiv(index, period)
    count = min(width, period) if is_tiled else max(1, width // period)  # powers of two
    if entry.inner == PITCHED:
        value = gather_elements(emitter, row, first, stride, entry.dtype, count)
    else:
        value = load_element(emitter, row, first, entry.dtype, count)
    if count == width:
        return value
    if count == 1:
        return emitter.splat(value, width)
    return shuffle(emitter, value, value, [i % period if is_tiled else i // period for i in range(width)])


def gather_elements(
    emitter: Emitter, row: IRValue, index: IRValue, stride: IRValue, dtype: DataType, width: int
) -> IRValue:
    """Load ``width`` elements that lie ``stride`` apart."""
    if width == 1:
        return load_element(emitter, row, emitter.mul(index, stride), dtype, 1)
    type_ = vector_type(width, TYPES[dtype])
    vector = IRValue(type_, "poison")
    for lane in range(width):
        place = emitter.mul(emitter.add(index, lane), stride)
        value = load_element(emitter, row, place, dtype, 1)
        vector = emitter.assign(type_, f"insertelement {vector.typed}, {value.typed}, i32 {lane}")
    return vector


def store_element(emitter: Emitter, value: IRValue, row: IRValue, index: IRValue, dtype: DataType, width: int) -> None:
    """Store ``width`` neighboring elements (bool as a byte)."""
    if dtype is DataType.BOOL:
        stored = vector_type(width, "i8")
        value = emitter.assign(stored, f"zext {value.typed} to {stored}")
    emitter.store(value, emitter.element(row, index, STORED[dtype]), natural_alignment(dtype))


def natural_alignment(dtype: DataType) -> int:
    """Return the alignment in bytes that every element has, in whatever buffer."""
    return max(1, dtype.bits // 8)
