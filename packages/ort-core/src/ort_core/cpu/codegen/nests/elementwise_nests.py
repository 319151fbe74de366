"""Elementwise nests: fused scalar expressions over broadcast, strided and contiguous operands, for any sizes.

The iteration space has ``rank`` dimensions, the innermost one dense in every output. Rows (all outer dimensions
together) times blocks of the innermost dimension are the tasks that threads share. The innermost loop is printed for
vectors, its rest for single elements.
"""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.cpu.codegen.llvm_ir.deferred_kernel import DeferredKernel, deferred_kernel
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, vector_type
from ort_core.cpu.codegen.llvm_ir.scalar_printer import STORED, TYPES, ScalarPrinter
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, structure

KERNEL_PARAMETERS = (("ptr noalias readonly", "args"), ("i64", "piece"), ("i64", "pieces"), ("i64", "thread"))
BLOCK = 4096  # elements of the innermost dimension per task: 16 KiB of float32, half of a first-level cache
BROADCAST, DENSE, STRIDED = 0, 1, 2


@frozen
class NestInput:
    """An operand: its element type and how the innermost loop steps through it."""

    dtype: DataType
    inner: int


@frozen
class ElementwiseNest:
    """What to compute. ``outputs`` are (expression, element type); expressions read ``inputs`` by index.

    The argument table: output pointers, input pointers, ``rank`` sizes, then for each output ``rank - 1`` strides of
    the outer dimensions, then for each input ``rank`` strides (in elements; the innermost counts only if STRIDED).
    """

    rank: int
    inputs: tuple[NestInput, ...]
    outputs: tuple[tuple[Scalar, DataType], ...]

    @property
    def structure(self) -> str:
        """What is computed, as text: equal for equal nests."""
        types = [dtype.name for _, dtype in self.outputs]
        return f"{self.rank} {self.inputs} {types} {structure(*(expression for expression, _ in self.outputs))}"


def elementwise_kernel(nest: ElementwiseNest, target: Target) -> DeferredKernel:
    """Return the kernel, one function."""
    return deferred_kernel("nest", nest.structure, lambda name: [_function(nest, target, name)], is_joined=True)


def _function(nest: ElementwiseNest, target: Target, name: str) -> Emitter:
    emitter = Emitter(name, KERNEL_PARAMETERS)
    args, rank = emitter.parameter("args"), nest.rank
    count_out, count_in = len(nest.outputs), len(nest.inputs)
    outputs = [emitter.argument(args, i, "ptr") for i in range(count_out)]
    inputs = [emitter.argument(args, count_out + i, "ptr") for i in range(count_in)]
    at = count_out + count_in
    sizes = [emitter.argument(args, at + d) for d in range(rank)]
    at += rank
    out_strides = [[emitter.argument(args, at + o * (rank - 1) + d) for d in range(rank - 1)] for o in range(count_out)]
    at += count_out * (rank - 1)
    in_strides = [[emitter.argument(args, at + i * rank + d) for d in range(rank)] for i in range(count_in)]
    with split_rows(emitter, sizes) as (indices, start, stop):
        out_rows = [_row(emitter, p, indices, s, t) for p, s, (_, t) in zip(outputs, out_strides, nest.outputs)]
        in_rows = [_row(emitter, p, indices, s, i.dtype) for p, s, i in zip(inputs, in_strides, nest.inputs)]
        inner = [strides[-1] for strides in in_strides]
        _inner_loops(emitter, nest, target, out_rows, in_rows, inner, start, stop)
    return emitter


class split_rows:  # noqa: N801 - a context manager that reads as a statement
    """Open the loop over this thread's tasks; gives the outer indices and the bounds of the innermost loop."""

    def __init__(self, emitter: Emitter, sizes: Sequence[IRValue], block: int = BLOCK) -> None:
        self._emitter, self._sizes, self._block = emitter, sizes, block

    def __enter__(self) -> tuple[list[IRValue], IRValue, IRValue]:
        emitter, sizes = self._emitter, self._sizes
        outer: IRValue = integer(1)
        for size in sizes[:-1]:
            outer = emitter.mul(outer, size)
        inner = sizes[-1]
        blocks = emitter.udiv(emitter.add(inner, self._block - 1), self._block)
        tasks = emitter.mul(outer, blocks)
        first, last = share(emitter, tasks)
        self._loop = emitter.loop(first, last, unroll=False, hint="task")
        task = self._loop.__enter__()
        row = emitter.udiv(task, blocks)
        start = emitter.mul(emitter.urem(task, blocks), self._block)
        stop = emitter.minimum(emitter.add(start, self._block), inner)
        return unravel(emitter, row, sizes[:-1]), start, stop

    def __exit__(self, *details: object) -> None:
        self._loop.__exit__(*details)  # type: ignore[arg-type]  # contextmanager's own signature


def share(emitter: Emitter, tasks: IRValue) -> tuple[IRValue, IRValue]:
    """Return the bounds of this piece's share of ``tasks``: contiguous, sizes differing by at most one."""
    piece, pieces = emitter.parameter("piece"), emitter.parameter("pieces")
    first = emitter.udiv(emitter.mul(tasks, piece), pieces)
    last = emitter.udiv(emitter.mul(tasks, emitter.add(piece, 1)), pieces)
    return first, last


def unravel(emitter: Emitter, row: IRValue, sizes: Sequence[IRValue]) -> list[IRValue]:
    """Return the index of each outer dimension of row number ``row``."""
    indices: list[IRValue] = []
    for size in reversed(sizes[1:]):
        indices.append(emitter.urem(row, size))
        row = emitter.udiv(row, size)
    if sizes:
        indices.append(row)
    return indices[::-1]


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
    out_rows: Sequence[IRValue],
    in_rows: Sequence[IRValue],
    inner_strides: Sequence[IRValue],
    start: IRValue,
    stop: IRValue,
) -> None:
    lanes, widest = target.lanes, _lanes_of(nest, target)
    fixed = {
        i: load_element(emitter, in_rows[i], integer(0), n.dtype, 1)
        for i, n in enumerate(nest.inputs)
        if n.inner == BROADCAST
    }
    whole = emitter.sub(stop, emitter.urem(emitter.sub(stop, start), lanes))
    loops = [(lanes, start, whole), (1, whole, stop)]
    if widest > lanes:
        first = emitter.sub(stop, emitter.urem(emitter.sub(stop, start), widest))
        loops[:1] = [(widest, start, first), (lanes, first, whole)]
    for width, low, high in loops:
        splats = {i: emitter.splat(value, width) for i, value in fixed.items()}
        with emitter.loop(low, high, width, unroll=width > 1, hint="j") as j:
            loaded: dict[int, IRValue] = dict(splats)

            def read(index: int, width: int = width, j: IRValue = j, loaded: dict[int, IRValue] = loaded) -> IRValue:
                if index not in loaded:
                    entry = nest.inputs[index]
                    if entry.inner == DENSE:
                        loaded[index] = load_element(emitter, in_rows[index], j, entry.dtype, width)
                    else:
                        stride = inner_strides[index]
                        loaded[index] = gather_elements(emitter, in_rows[index], j, stride, entry.dtype, width)
                return loaded[index]

            printer = ScalarPrinter(emitter, width, read)
            values = [printer.print(expression) for expression, _ in nest.outputs]
            for row, value, (_, dtype) in zip(out_rows, values, nest.outputs):
                store_element(emitter, value, row, j, dtype, width)


def _lanes_of(nest: ElementwiseNest, target: Target) -> int:
    """Return the elements that a step takes: a vector of float32, or of smaller elements that are only copied."""
    (expression, dtype), *others = nest.outputs
    is_copy = expression.operation == "input" and not others and nest.inputs[expression.index].dtype is dtype
    if not is_copy or dtype.bits not in (8, 16) or nest.inputs[expression.index].inner == STRIDED:
        return target.lanes
    return target.lanes * 32 // dtype.bits


def load_element(emitter: Emitter, row: IRValue, index: IRValue, dtype: DataType, width: int) -> IRValue:
    """Load ``width`` neighboring elements into registers (bool as i1)."""
    stored = vector_type(width, STORED[dtype])
    value = emitter.load(stored, emitter.element(row, index, STORED[dtype]), natural_alignment(dtype))
    if dtype is DataType.BOOL:
        zero = "zeroinitializer" if width > 1 else "0"
        return emitter.assign(vector_type(width, "i1"), f"icmp ne {value.typed}, {zero}")
    return value


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
