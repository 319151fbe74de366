"""Prints row formulas as CUDA C++: one kernel that walks each row as often as its schedule says.

    y = e / row_sum(e), e = exp(x - row_max(x))

    row1 = max over x;  out0 = e, row2 = sum over e;  out0 = out0 / row2

The threads of a block along x share a row: each reduces its own columns, shuffles join a warp, shared memory joins the
warps of a block. Every thread then has the row's values. A row that is stored and read back is by one thread.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

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
from ort_core.loops.rows import ROW_LENGTH, RowPass, RowReduction, RowSchedule, is_of_row, scheduled
from ort_core.loops.scalar import Scalar

WARP = 32
MAXIMUM_THREADS = 512  # of a row; at 4 columns a thread that is 2048 columns, longer rows are walked through
WARPS_PER_BLOCK = 4  # where a warp takes a row: fewer leave a multiprocessor short of warps
MAXIMUM_BLOCKS = 1 << 16  # more rows are walked through: far above what any device runs at once
_NEUTRAL = {"sum": 0, "max": -math.inf, "min": math.inf}
_JOIN = {"sum": "add", "max": "max", "min": "min"}
_REDUCED = frozenset({DataType.FLOAT, DataType.DOUBLE, DataType.INT32, DataType.INT64})  # what a shuffle takes as it is
_Dimensions = tuple[int, int, int]


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


@dataclass(frozen=True, slots=True)
class _RowPrinter:
    roots: Sequence[Scalar]
    layouts: Sequence[InputLayout]
    rank: int
    dtypes: Sequence[DataType]

    def kernel(self, name: str | None) -> PrintedKernel:
        schedule = scheduled(self.roots, len(self.dtypes))
        numbers = self._numbers()
        parameters = ", ".join([*self._pointers(), *(f"long long {number}" for number in numbers)])
        body = [
            *_shared(schedule),
            "const long long step = (long long)gridDim.x * blockDim.y;",
            "for (long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y; row < rows; row += step) {",
            *coordinates("row", self._strided(), self.rank - 1),
            *(line for each in schedule.passes for line in self._pass(each)),
            *self._stores(schedule),
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
        if index == len(self.dtypes):  # what an earlier pass kept in the place of the only output with elements
            return f"out{self._kept_in()}[row * columns + column]"
        layout = self.layouts[index]
        if layout is InputLayout.STRIDED:
            return f"in{index}[at{index} + column * stride{index}_{self.rank - 1}]"
        return f"in{index}[{'0' if layout is InputLayout.SCALAR else 'row * columns + column'}]"

    def _kept_in(self) -> int:
        return next(k for k, root in enumerate(self.roots) if not is_of_row(root))

    def _pass(self, each: RowPass) -> list[str]:
        lines = [f"{type_text(_reduced_type(r))} row{r.index} = {_neutral(r)};" for r in each.reductions]
        if each.reductions:
            lines += self._walk(each)
        for reduction in each.reductions:
            lines += _joined_by_threads(reduction)
        for index, expression in each.derived:
            statements, (value,) = print_expressions([expression], self._read, _row_text)
            lines += [f"{type_text(expression.dtype)} row{index};", "{", *statements, f"row{index} = {value};", "}"]
        return lines

    def _walk(self, each: RowPass) -> list[str]:
        roots = [*([] if each.kept is None else [each.kept]), *(r.expression for r in each.reductions)]
        statements, values = print_expressions(roots, self._read, _row_text)
        lines = list(statements)
        if each.kept is not None:
            lines.append(f"out{self._kept_in()}[row * columns + column] = {values[0]};")
        for reduction, value in zip(each.reductions, values[-len(each.reductions) :], strict=True):
            lines.append(f"row{reduction.index} = {_combined(reduction, f'row{reduction.index}', value)};")
        return _by_columns(lines)

    def _stores(self, schedule: RowSchedule) -> list[str]:
        lines: list[str] = []
        if schedule.elements:
            statements, values = print_expressions([root for _, root in schedule.elements], self._read, _row_text)
            targets = [k for k, _ in schedule.elements]
            stores = [f"out{k}[row * columns + column] = {v};" for k, v in zip(targets, values, strict=True)]
            lines = _by_columns([*statements, *stores])
        return [*lines, *(f"if (threadIdx.x == 0) out{k}[row] = row{index};" for k, index in schedule.scalars)]


def _row_text(index: int) -> str:
    return "columns" if index == ROW_LENGTH else f"row{index}"


def _by_columns(body: Sequence[str]) -> list[str]:
    return ["for (long long column = threadIdx.x; column < columns; column += blockDim.x) {", *body, "}"]


def _shared(schedule: RowSchedule) -> list[str]:
    reductions = [reduction for each in schedule.passes for reduction in each.reductions]
    return [f"__shared__ {type_text(_reduced_type(r))} parts{r.index}[{WARP}];" for r in reductions]


def _reduced_type(reduction: RowReduction) -> DataType:
    dtype = reduction.expression.dtype
    if dtype not in _REDUCED:
        raise ValueError(f"the {reduction.kind} of a row of {dtype.text} has no CUDA form")
    return dtype


def _neutral(reduction: RowReduction) -> str:
    return constant(_NEUTRAL[reduction.kind], reduction.expression.dtype)


def _combined(reduction: RowReduction, left: str, right: str) -> str:
    return binary_text(_JOIN[reduction.kind], reduction.expression.dtype, left, right)


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
