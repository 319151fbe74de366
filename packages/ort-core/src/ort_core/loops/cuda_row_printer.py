"""Prints row formulas as CUDA C++: one kernel that walks each row as often as its schedule says.

    y = e / row_sum(e), e = exp(x - row_max(x))

    row1 = max over x;  row2 = sum over exp(x - row1);  out0 = exp(x - row1) / row2

The threads of a block along x share a row: each reduces its own columns, shuffles join a warp, shared memory joins the
warps of a block. Every thread then has the row's values. What is needed again is computed again: a device does some
hundred operations in the time that an element takes to memory and back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from ort_core.frozen import frozen
from ort_core.ir.types import DataType
from ort_core.loops.cuda_printer import (
    InputLayout,
    PrintedKernel,
    binary_text,
    constant,
    coordinates,
    print_expressions,
    type_text,
)
from ort_core.loops.rows import ROW_LENGTH, RowPass, RowReduction, RowSchedule, is_of_row, neutral_value, scheduled
from ort_core.loops.scalar import Scalar

WARP = 32
MAXIMUM_THREADS = 512  # of a row; at 4 columns a thread that is 2048 columns, longer rows are walked through
WARPS_PER_BLOCK = 4  # where a warp takes a row: fewer leave a multiprocessor short of warps
MAXIMUM_BLOCKS = 1 << 16  # more rows are walked through: far above what any device runs at once
_JOIN = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "peak": "max"}
_REDUCED = frozenset({DataType.FLOAT, DataType.DOUBLE, DataType.INT32, DataType.INT64})  # what a shuffle takes as it is
_REDUCED_AS_INT = frozenset({DataType.INT8, DataType.UINT8, DataType.BOOL})
_Dimensions = tuple[int, int, int]


@frozen
class RowAccess:
    """How a kernel gets at the elements of a row: its texts, in the loop over rows.

    Attributes:
        read: the element of an input at the current column.
        store: the statement that stores a value as the element of an output (of those with elements) there.
        store_of_row: the statement that stores a value as the row's element of an output (of those of a row).
        columns: a loop over the columns that a thread takes, around the lines of its body.
        is_by_thread: whether one thread takes a row, and nothing is to be joined.
    """

    read: Callable[[int], str]
    store: Callable[[int, str], str]
    store_of_row: Callable[[int, str], str]
    columns: Callable[[Sequence[str]], list[str]]
    is_by_thread: bool = False


def print_rows(schedule: RowSchedule, access: RowAccess) -> tuple[list[str], list[str]]:
    """Return the declarations in front of the loop over rows, and what the loop does of each.

    Raises:
        ValueError: an element type or operation has no CUDA form.
    """
    return _shared(schedule, access), [
        *(line for each in schedule.passes for line in _pass(each, access)),
        *_stores_of_row(schedule, access),
    ]


def cuda_schedule(roots: Sequence[Scalar], num_inputs: int) -> RowSchedule:
    """Return the schedule that ``print_rows`` takes: nothing is read back from memory."""
    return scheduled(roots, num_inputs, reads_back=False)


def row_blocks(rows: int, columns: int) -> tuple[_Dimensions, _Dimensions]:
    """Return the grid and the block for a kernel of ``print_row_kernel`` over so many rows of so many columns.

    Up to 128 columns a warp takes a row, four columns a thread; longer rows get a block of up to 512 threads.
    """
    if columns <= 4 * WARP:
        return (min(max(1, -(-rows // WARPS_PER_BLOCK)), MAXIMUM_BLOCKS), 1, 1), (WARP, WARPS_PER_BLOCK, 1)
    threads = min(MAXIMUM_THREADS, 1 << (-(-columns // 4) - 1).bit_length())
    return (min(max(1, rows), MAXIMUM_BLOCKS), 1, 1), (threads, 1, 1)


def print_row_kernel(
    roots: Sequence[Scalar],
    layouts: Sequence[InputLayout],
    rank: int,
    dtypes: Sequence[DataType],
    name: str | None = None,
) -> PrintedKernel:
    """Return a kernel that computes row formulas into dense results, one for each formula.

    The parameters: a pointer for each input, a pointer for each result, ``rows``, ``columns``; where an input is
    strided also the sizes of axes 1 to rank - 2, and for each strided input the strides (in elements) of all axes. All
    but pointers are ``long long``. A formula of the row alone has a result of ``rows`` elements, others one of ``rows *
    columns``. ``blockDim.x`` is a multiple of 32, and ``blockDim.y`` is 1 where it is more than 32; any grid computes
    all rows. ``row_blocks`` gives both.

    Args:
        roots: the formulas over inputs 0 to ``len(layouts) - 1``.
        layouts: how each input is read: all of its elements in order, the only one, or by strides.
        rank: the rank of the results, at least 1; it counts only where an input is strided.
        dtypes: the element type of each input.
        name: the kernel's name; by default one made of its content.

    Raises:
        ValueError: an element type or operation has no CUDA form.
    """
    return _RowPrinter(roots, layouts, rank, dtypes).kernel(name)


@frozen
class _RowPrinter:
    roots: Sequence[Scalar]
    layouts: Sequence[InputLayout]
    rank: int
    dtypes: Sequence[DataType]

    def kernel(self, name: str | None) -> PrintedKernel:
        numbers = self._numbers()
        parameters = ", ".join([*self._pointers(), *(f"long long {number}" for number in numbers)])
        elements, of_row = ([k for k, r in enumerate(self.roots) if is_of_row(r) is which] for which in (False, True))
        access = RowAccess(
            self._read, lambda k, value: f"out{elements[k]}[row * columns + column] = {value};",
            lambda k, value: f"out{of_row[k]}[row] = {value};", _by_columns,
        )  # fmt: skip
        declared, lines = print_rows(cuda_schedule(self.roots, len(self.dtypes)), access)
        body = [
            *declared,
            "const long long step = (long long)gridDim.x * blockDim.y;",
            "for (long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y; row < rows; row += step) {",
            *coordinates("row", self._strided(), self.rank - 1),
            *lines,
            "}",
        ]
        name = name or f"rows_{hashlib.sha256('|'.join([parameters, *body]).encode()).hexdigest()[:16]}"
        text = "\n".join(f"  {line}" for line in body)
        pointers = [*(f"in{k}" for k in range(len(self.dtypes))), *(f"out{k}" for k in range(len(self.roots)))]
        source = f'extern "C" __global__ void {name}({parameters}) {{\n{text}\n}}\n'
        return PrintedKernel(name, source, (*pointers, *numbers))

    def _strided(self) -> list[int]:
        return [index for index, layout in enumerate(self.layouts) if layout is InputLayout.STRIDED]

    def _pointers(self) -> list[str]:
        inputs = [f"const {type_text(dtype)}* __restrict__ in{k}" for k, dtype in enumerate(self.dtypes)]
        return [*inputs, *(f"{type_text(root.dtype)}* __restrict__ out{k}" for k, root in enumerate(self.roots))]

    def _numbers(self) -> list[str]:
        strided = self._strided()
        sizes = [f"size{axis}" for axis in range(1, self.rank - 1)] if strided else []
        return ["rows", "columns", *sizes, *(f"stride{k}_{axis}" for k in strided for axis in range(self.rank))]

    def _read(self, index: int) -> str:
        layout = self.layouts[index]
        if layout is InputLayout.STRIDED:
            return f"in{index}[at{index} + column * stride{index}_{self.rank - 1}]"
        return f"in{index}[{'0' if layout is InputLayout.SCALAR else 'row * columns + column'}]"


def _by_columns(body: Sequence[str]) -> list[str]:
    return ["for (long long column = threadIdx.x; column < columns; column += blockDim.x) {", *body, "}"]


def _pass(each: RowPass, access: RowAccess) -> list[str]:
    lines = [f"{type_text(_reduced_type(r))} row{r.index} = {_neutral(r)};" for r in each.reductions]
    if each.stores or each.reductions:
        lines += access.columns(_walk(each, access))
    if not access.is_by_thread:
        lines += [line for reduction in each.reductions for line in _joined_by_threads(reduction)]
    for index, expression in each.derived:
        statements, (value,) = print_expressions([expression], access.read, _row_text)
        lines += [f"{type_text(expression.dtype)} row{index};", "{", *statements, f"row{index} = {value};", "}"]
    return lines


def _walk(each: RowPass, access: RowAccess) -> list[str]:
    roots = [*(root for _, root in each.stores), *(r.expression for r in each.reductions)]
    statements, values = print_expressions(roots, access.read, _row_text)
    lines = [*statements, *(access.store(k, value) for (k, _), value in zip(each.stores, values, strict=False))]
    for reduction, value in zip(each.reductions, values[len(each.stores) :], strict=True):
        lines.append(f"row{reduction.index} = {_combined(reduction, f'row{reduction.index}', value)};")
    return lines


def _stores_of_row(schedule: RowSchedule, access: RowAccess) -> list[str]:
    stores = [access.store_of_row(k, _row_text(index)) for k, index in enumerate(schedule.scalars)]
    if not stores or access.is_by_thread:
        return stores
    return ["if (threadIdx.x == 0) {", *stores, "}"]


def _row_text(index: int) -> str:
    return "columns" if index == ROW_LENGTH else f"row{index}"


def _shared(schedule: RowSchedule, access: RowAccess) -> list[str]:
    if access.is_by_thread:
        return []
    reductions = [reduction for each in schedule.passes for reduction in each.reductions]
    return [f"__shared__ {type_text(_reduced_type(r))} parts{r.index}[{WARP}];" for r in reductions]


def _reduced_type(reduction: RowReduction) -> DataType:
    """Return the type that reduces a row's elements; numbers of 8 bits are reduced as int."""
    dtype = reduction.expression.dtype
    if dtype in _REDUCED_AS_INT:
        return DataType.INT32
    if dtype not in _REDUCED:
        raise ValueError(f"the {reduction.kind} of a row of {dtype.text} has no CUDA form")
    return dtype


def _neutral(reduction: RowReduction) -> str:
    dtype = reduction.expression.dtype
    return constant(neutral_value(reduction.kind, dtype), dtype)


def _combined(reduction: RowReduction, left: str, right: str) -> str:
    dtype = _reduced_type(reduction)
    given = right if reduction.expression.dtype is dtype else f"({type_text(dtype)}){right}"
    return binary_text(_JOIN[reduction.kind], dtype, left, given)


def _joined_by_threads(reduction: RowReduction) -> list[str]:
    """Return statements that give every thread of a row what all of them reduced.

    The last barrier keeps a fast warp from the next row's parts while a slow one reads these.
    """
    name, parts = f"row{reduction.index}", f"parts{reduction.index}"
    shuffled = _combined(reduction, name, f"__shfl_xor_sync(0xffffffffu, {name}, lane)")
    return [
        f"for (int lane = {WARP // 2}; lane > 0; lane >>= 1) {name} = {shuffled};",
        f"if (blockDim.x > {WARP}) {{",
        f"  if (threadIdx.x % {WARP} == 0) {parts}[threadIdx.x / {WARP}] = {name};",
        "  __syncthreads();",
        f"  {name} = {parts}[0];",
        f"  for (int warp = 1; warp < (int)blockDim.x / {WARP}; ++warp) {name} = "
        f"{_combined(reduction, name, f'{parts}[warp]')};",
        "  __syncthreads();",
        "}",
    ]
