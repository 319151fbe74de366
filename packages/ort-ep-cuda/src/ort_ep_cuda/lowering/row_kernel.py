"""Row kernels: reductions, softmax and normalizations: stages that each reduce the row, then what is stored of it.

    softmax:  r0 = max(x);  r1 = sum(exp(x - r0));  out = exp(x - r0) / r1

Rows and columns are any axes of the operands. A block (or a warp of it) takes a row where its columns lie side by side,
a thread takes one where the rows do: in both cases neighbouring threads read neighbouring addresses. Sums of 16-bit
floats accumulate in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, lift, print_expression
from ort_ep_cuda.lowering.map_kernel import reach
from ort_ep_cuda.lowering.preamble import STORAGE
from ort_ep_cuda.lowering.program import Kernel, Launch
from ort_ep_cuda.lowering.views import Shape, TensorView, collapse
from ort_ep_cuda.lowering.writer import (
    Worker,
    blocks_for,
    coordinates,
    index_type,
    launched,
    named,
    numbers,
    pointers,
    walk,
)

ROW_LENGTH = 1000
"""The index of ``row_value`` that stands for the number of columns, in the type that is asked for."""

THREADS_PER_ROW = 512  # at most; longer rows are walked through
ROWS_PER_BLOCK = 4  # where a warp takes a row
_COMBINE = {"add": "{0} + {1}", "mul": "{0} * {1}", "max": "ort_max({0}, {1})", "min": "ort_min({0}, {1})"}
_LIMITS = {DataType.INT32: (-(2**31), 2**31 - 1), DataType.INT64: (-(2**63), 2**63 - 1)}


@dataclass(frozen=True, slots=True)
class RowStage:
    """A reduction of an expression over the row, by ``add``, ``mul``, ``max`` or ``min``.

    The expression may read elements (``input``) and what earlier stages gave (``row_value(k)``).
    """

    combine: str
    value: Scalar


def launch_rows(
    stages: Sequence[RowStage], result: Scalar, operands: Sequence[TensorView], out: TensorView, row_rank: int
) -> Launch:
    """Return the launch of a row kernel.

    Args:
        stages: the reductions, in order.
        result: of the stages alone where ``out`` has one element per row, else of the elements, too.
        operands: views of one shape: ``row_rank`` axes of rows, then those of columns.
        out: a view with the axes of rows only (a reduction), or with all.
        row_rank: how many leading axes are rows.
    """
    shape = operands[0].shape
    is_reduction = len(out.shape) == row_rank and len(shape) != row_rank
    views = [*operands, out]
    row_sizes, row_strides = collapse(shape[:row_rank], [view.strides[:row_rank] for view in views])
    wide = operands if is_reduction else views
    column_sizes, column_strides = collapse(shape[row_rank:], [view.strides[row_rank:] for view in wide])
    rows, columns = math.prod(row_sizes), math.prod(column_sizes)
    is_by_thread = _rows_lie_side_by_side(row_strides[0], column_strides[0]) and rows >= 32
    kernel = _RowPrinter(stages, result, views, len(row_sizes), len(column_sizes), is_reduction, is_by_thread).kernel()
    sizes = [rows, columns, *row_sizes[1:], *column_sizes[1:]]
    sizes += [s for strides in (*row_strides, *column_strides) for s in strides]
    grid, block = _shape_of_launch(rows, columns, is_by_thread)
    return launched(kernel, grid, block, (*pointers(*views), *numbers(*sizes)), operands, [out])


def _rows_lie_side_by_side(row_strides: Shape, column_strides: Shape) -> bool:
    return bool(row_strides) and abs(row_strides[-1]) == 1 and bool(column_strides) and abs(column_strides[-1]) != 1


def _shape_of_launch(rows: int, columns: int, is_by_thread: bool) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    if is_by_thread:
        return blocks_for(rows, 128), (128, 1, 1)
    if columns <= 128:
        return blocks_for(rows, ROWS_PER_BLOCK), (32, ROWS_PER_BLOCK, 1)
    threads = min(THREADS_PER_ROW, max(64, 1 << (-(-columns // 4) - 1).bit_length()))
    return blocks_for(rows), (threads, 1, 1)


def identity_of(combine: str, dtype: DataType) -> Scalar:
    """Return the value that a reduction starts with."""
    if combine in ("add", "mul"):
        return lift(0 if combine == "add" else 1, dtype)
    if dtype.is_float:
        return lift(-math.inf if combine == "max" else math.inf, dtype)
    return lift(_LIMITS[dtype][0 if combine == "max" else 1], dtype)


@dataclass(frozen=True, slots=True)
class _RowPrinter:
    stages: Sequence[RowStage]
    result: Scalar
    views: Sequence[TensorView]
    row_rank: int
    column_rank: int
    is_reduction: bool
    is_by_thread: bool

    def kernel(self) -> Kernel:
        body = [
            f"typedef {index_type(any(reach(view) >= 2**31 for view in self.views))} Index;",
            *(
                f"__shared__ {STORAGE[stage.value.dtype]} partial{k}[32];"
                for k, stage in enumerate(self.stages)
                if not self.is_by_thread
            ),
            walk(Worker.THREAD if self.is_by_thread else Worker.WARP, "row", "rows"),
            *(f"  Index row_{name} = 0;" for name in self._names()),
            f"  {self._locate('(Index)row', 'row', self.row_rank, self._names())}",
            *(line for k, stage in enumerate(self.stages) for line in self._stage(k, stage)),
            *self._final(),
            "}",
        ]
        prefix = "reduce" if self.is_reduction else "rows"
        return named(prefix, self._parameters(), body)

    def _names(self) -> list[str]:
        return [*(f"in{k}" for k in range(len(self.views) - 1)), "out"]

    def _wide_names(self) -> list[str]:
        return self._names()[:-1] if self.is_reduction else self._names()

    def _parameters(self) -> list[str]:
        storage = [STORAGE[view.dtype] for view in self.views]
        pointers = [f"const {text}* in{k}" for k, text in enumerate(storage[:-1])]
        numbers = ["rows", "columns", *(f"row_size{a}" for a in range(1, self.row_rank))]
        numbers += [f"column_size{a}" for a in range(1, self.column_rank)]
        numbers += [f"row_stride_{name}_{a}" for name in self._names() for a in range(self.row_rank)]
        numbers += [f"column_stride_{name}_{a}" for name in self._wide_names() for a in range(self.column_rank)]
        return [*pointers, f"{storage[-1]}* out", *(f"long long {number}" for number in numbers)]

    def _locate(self, position: str, kind: str, rank: int, names: Sequence[str]) -> str:
        if not rank:
            return ""
        sizes = [f"(Index){kind}_size{axis}" for axis in range(rank)]
        strides = [[f"(Index){kind}_stride_{name}_{axis}" for axis in range(rank)] for name in names]
        return coordinates(position, sizes, strides, [f"{kind}_{name}" for name in names])

    def _columns(self, body: Sequence[str]) -> list[str]:
        names = self._wide_names()
        first, step = ("0", "1") if self.is_by_thread else ("threadIdx.x", "blockDim.x")
        starts = " ".join(f"Index column_{name} = row_{name};" for name in names)
        return [
            f"  for (long long column = {first}; column < columns; column += {step}) {{",
            f"    {starts}",
            f"    {self._locate('(Index)column', 'column', self.column_rank, names)}",
            *(f"    {line}" for line in body),
            "  }",
        ]

    def _printed(self, root: Scalar) -> tuple[list[str], str]:
        printed = print_expression(
            root,
            lambda k: f"ort_load(in{k}[column_in{k}])",
            lambda index: "columns" if index == ROW_LENGTH else f"stage{index}",
        )
        return list(printed.statements), printed.result

    def _stage(self, number: int, stage: RowStage) -> list[str]:
        dtype = stage.value.dtype
        statements, value = self._printed(stage.value)
        start = print_expression(identity_of(stage.combine, dtype), lambda k: "").result
        combine, name = _COMBINE[stage.combine], f"stage{number}"
        lines = [f"  {STORAGE[dtype]} {name} = {start};"]
        lines += self._columns([*statements, f"{name} = {combine.format(name, value)};"])
        if self.is_by_thread:
            return lines
        shuffled = combine.format(name, f"__shfl_xor_sync(0xffffffffu, {name}, lane)")
        joined = combine.format(name, f"partial{number}[warp]")
        return [
            *lines,
            f"  for (int lane = 16; lane > 0; lane >>= 1) {name} = {shuffled};",
            "  if (blockDim.x > 32) {",
            f"    if (threadIdx.x % 32 == 0) partial{number}[threadIdx.x / 32] = {name};",
            f"    __syncthreads(); {name} = partial{number}[0];",
            f"    for (int warp = 1; warp < (int)blockDim.x / 32; ++warp) {name} = {joined};",
            "    __syncthreads();",
            "  }",
        ]

    def _final(self) -> list[str]:
        statements, value = self._printed(self.result)
        store = f"ort_store<{STORAGE[self.views[-1].dtype]}>::of({value})"
        if not self.is_reduction:
            return self._columns([*statements, f"out[column_out] = {store};"])
        condition = "" if self.is_by_thread else "if (threadIdx.x == 0) "
        return [f"  {condition}{{", *(f"    {line}" for line in statements), f"    out[row_out] = {store};", "  }"]
