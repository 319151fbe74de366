"""Row kernels: reductions, softmax and normalizations: formulas over rows of views, as ``ort_core.loops`` prints them.

Rows and columns are any axes of the operands. A block (or a warp of it) takes a row where its columns lie side by side,
a thread takes one where the rows do: in both cases neighboring threads read neighboring addresses. Sums of 16-bit
floats accumulate in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ort_core.plugin.loops import RowAccess, Scalar, cast, cuda_schedule, is_of_row, print_rows, row_blocks
from ort_ep_cuda.lowering.program import Kernel, Launch
from ort_ep_cuda.lowering.values.growing import largest, today
from ort_ep_cuda.lowering.values.views import Shape, TensorView, collapse
from ort_ep_cuda.lowering.writing.map_kernel import reach
from ort_ep_cuda.lowering.writing.preamble import STORAGE, compute_type
from ort_ep_cuda.lowering.writing.writer import (
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


def launch_rows(
    roots: Sequence[Scalar], operands: Sequence[TensorView], outs: Sequence[TensorView], row_rank: int
) -> Launch:
    """Return the launch of a row kernel.

    Args:
        roots: the formulas; input ``k`` is an element of ``operands[k]``.
        operands: views of one shape: ``row_rank`` axes of rows, then those of columns.
        outs: where each formula goes: a view with the axes of rows only where it is one of a row, else with all.
        row_rank: how many leading axes are rows.
    """
    shape = operands[0].shape
    wanted = [cast(root, compute_type(out.dtype)) for root, out in zip(roots, outs, strict=True)]
    names = [*(f"in{k}" for k in range(len(operands))), *(f"out{k}" for k in range(len(outs)))]
    views = dict(zip(names, (*operands, *outs), strict=True))
    of_row = [f"out{k}" for k, root in enumerate(wanted) if is_of_row(root)]
    wide = [name for name in names if name not in of_row]
    row_sizes, row_strides = collapse(shape[:row_rank], [view.strides[:row_rank] for view in views.values()])
    column_sizes, column_strides = collapse(shape[row_rank:], [views[name].strides[row_rank:] for name in wide])
    rows, columns = math.prod(row_sizes), math.prod(column_sizes)
    is_by_thread = _rows_lie_side_by_side(row_strides[0], column_strides[0]) and today(rows) >= 32
    kernel = _RowPrinter(wanted, views, of_row, len(row_sizes), len(column_sizes), is_by_thread).kernel()
    sizes = [rows, columns, *row_sizes[1:], *column_sizes[1:]]
    sizes += [s for strides in (*row_strides, *column_strides) for s in strides]
    grid, block = (blocks_for(rows, 128), (128, 1, 1)) if is_by_thread else row_blocks(largest(rows), largest(columns))
    return launched(kernel, grid, block, (*pointers(*views.values()), *numbers(*sizes)), operands, outs)


def _rows_lie_side_by_side(row_strides: Shape, column_strides: Shape) -> bool:
    return bool(row_strides) and abs(row_strides[-1]) == 1 and bool(column_strides) and abs(column_strides[-1]) != 1


@dataclass(frozen=True, slots=True)
class _RowPrinter:
    roots: Sequence[Scalar]
    views: dict[str, TensorView]
    of_row: Sequence[str]
    row_rank: int
    column_rank: int
    is_by_thread: bool

    def kernel(self) -> Kernel:
        num_inputs = len(self.views) - len(self.roots)
        declared, lines = print_rows(cuda_schedule(self.roots, num_inputs), self._access())
        body = [
            f"typedef {index_type(any(reach(view) >= 2**31 for view in self.views.values()))} Index;",
            *declared,
            walk(Worker.THREAD if self.is_by_thread else Worker.WARP, "row", "rows"),
            *(f"  Index row_{name} = 0;" for name in self.views),
            f"  {self._locate('(Index)row', 'row', self.row_rank, list(self.views))}",
            *(f"  {line}" for line in lines),
            "}",
        ]
        return named("rows" if len(self.of_row) < len(self.roots) else "reduce", self._parameters(), body)

    def _access(self) -> RowAccess:
        outs = [name for name in self._wide() if name.startswith("out")]
        return RowAccess(
            lambda k: f"ort_load(in{k}[column_in{k}])",
            lambda k, value: self._stored(outs[k], f"column_{outs[k]}", value),
            lambda k, value: self._stored(self.of_row[k], f"row_{self.of_row[k]}", value),
            self._columns, self.is_by_thread,
        )  # fmt: skip

    def _stored(self, name: str, place: str, value: str) -> str:
        return f"{name}[{place}] = ort_store<{STORAGE[self.views[name].dtype]}>::of({value});"

    def _wide(self) -> list[str]:
        return [name for name in self.views if name not in self.of_row]

    def _parameters(self) -> list[str]:
        texts = {name: STORAGE[view.dtype] for name, view in self.views.items()}
        pointers = [f"{'const ' if name.startswith('in') else ''}{text}* {name}" for name, text in texts.items()]
        numbers = ["rows", "columns", *(f"row_size{a}" for a in range(1, self.row_rank))]
        numbers += [f"column_size{a}" for a in range(1, self.column_rank)]
        numbers += [f"row_stride_{name}_{a}" for name in self.views for a in range(self.row_rank)]
        numbers += [f"column_stride_{name}_{a}" for name in self._wide() for a in range(self.column_rank)]
        return [*pointers, *(f"long long {number}" for number in numbers)]

    def _locate(self, position: str, kind: str, rank: int, names: Sequence[str]) -> str:
        if not rank:
            return ""
        sizes = [f"(Index){kind}_size{axis}" for axis in range(rank)]
        strides = [[f"(Index){kind}_stride_{name}_{axis}" for axis in range(rank)] for name in names]
        return coordinates(position, sizes, strides, [f"{kind}_{name}" for name in names])

    def _columns(self, body: Sequence[str]) -> list[str]:
        names = self._wide()
        first, step = ("0", "1") if self.is_by_thread else ("threadIdx.x", "blockDim.x")
        starts = " ".join(f"Index column_{name} = row_{name};" for name in names)
        return [
            f"for (long long column = {first}; column < columns; column += {step}) {{",
            f"  {starts}",
            f"  {self._locate('(Index)column', 'column', self.column_rank, names)}",
            *(f"  {line}" for line in body),
            "}",
        ]
