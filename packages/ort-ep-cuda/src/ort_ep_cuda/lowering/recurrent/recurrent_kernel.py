"""One kernel that walks a recurrent layer through time: a block for each row and direction, a thread for each unit.

The input's share of every step is there; the state stays in shared memory, recurrent weights are read from the caches
of the device in each step. That is right while they are small; beyond, each step is a product of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, element, print_expression
from ort_ep_cuda.lowering.program import Argument, Kernel, Launch, Pointer
from ort_ep_cuda.lowering.recurrent.recurrent_cells import Cell, CellInputs
from ort_ep_cuda.lowering.values.views import TensorView
from ort_ep_cuda.lowering.writing.preamble import STORAGE, compute_type
from ort_ep_cuda.lowering.writing.writer import launched, numbers, template

WEIGHTS_NBYTES = 512 << 10  # of one direction: read in each step by each block, from L2 at some hundreds of GB/s
UNITS = 512  # a thread for each; weights of that size bound them before
_NULL = np.uint64(0)
_SHARE, _SUM, _INPUT_BIAS, _STATE_BIAS, _HIDDEN, _MEMORY, _PEEPHOLE, _NEW_MEMORY = 0, 4, 8, 12, 16, 17, 18, 21
_HEAD = """
typedef @C@ Real;
__shared__ Real state[2][@UNITS@];
__shared__ Real reset[@UNITS@];
const int unit = threadIdx.x;
const bool is_unit = unit < @UNITS@;
const long long row = blockIdx.x, direction = first + blockIdx.y;
const bool walks_back = is_reverse || direction == 1;
const long long place = row * state_row + direction * state_direction + unit;
const @T@* weights_of = weights + direction * @UNITS@ * @COLUMNS@ + unit;
const @T@* bias = biases + direction * 2 * @COLUMNS@ + unit;
const @T@* peephole = peepholes + direction * 3 * @UNITS@ + unit;
const long long length = lengths ? lengths[row] : steps;
Real memory = is_unit && first_memory ? ort_load(first_memory[place]) : (Real)0;
if (is_unit) state[0][unit] = first_state ? ort_load(first_state[place]) : (Real)0;
int now = 0;
__syncthreads();
for (long long step = 0; step < steps; ++step) {
  const long long time = walks_back ? steps - 1 - step : step;
  @T@* result = y + time * y_step + row * y_row + direction * y_direction + unit;
  if (time >= length) {
    if (y && is_unit) *result = ort_store<@T@>::of((Real)0);
    continue;
  }
  const @T@* share = shares + ((direction * steps + time) * batch + row) * @COLUMNS@ + unit;
"""
_TAIL = """
  now = 1 - now;
  __syncthreads();
}
if (is_unit) {
  const bool is_empty = lengths && length <= 0;
  if (last_state) last_state[place] = ort_store<@T@>::of(is_empty ? (Real)0 : state[now][unit]);
  if (last_memory) last_memory[place] = ort_store<@T@>::of(is_empty ? (Real)0 : memory);
}
"""
_TENSORS = (
    "const @T@* shares, const @T@* weights, const @T@* biases, const @T@* peepholes, const int* lengths,"
    " const @T@* first_state, const @T@* first_memory, @T@* y, @T@* last_state, @T@* last_memory"
)
_NUMBERS = ("steps", "batch", "y_step", "y_row", "y_direction", "state_row", "state_direction", "first", "is_reverse")


@dataclass(frozen=True, slots=True)
class Walk:
    """The tensors of a layer: ``None`` is absent.

    ``shares`` ``[directions, steps, batch, gates * units]`` and ``weights`` ``[directions, units, gates * units]`` are
    dense, so are ``biases`` and ``peepholes``. ``y`` has the axes ``[steps, directions, batch, units]``, states have
    ``[directions, batch, units]``, in any order but the last; all states are laid out alike.
    """

    shares: TensorView
    weights: TensorView
    biases: TensorView | None
    peepholes: TensorView | None
    lengths: TensorView | None
    first_state: TensorView | None
    first_memory: TensorView | None
    y: TensorView | None
    last_state: TensorView | None
    last_memory: TensorView | None

    @property
    def reads(self) -> tuple[TensorView, ...]:
        """What is read."""
        given = (self.shares, self.weights, self.biases, self.peepholes, self.lengths, self.first_state)
        return tuple(view for view in (*given, self.first_memory) if view is not None)

    @property
    def writes(self) -> tuple[TensorView, ...]:
        """What is written."""
        return tuple(view for view in (self.y, self.last_state, self.last_memory) if view is not None)


def launch_walk(cell: Cell, walk: Walk, directions: range, *, is_reverse: bool) -> Launch:
    """Return the launch for some neighboring directions, which have one cell."""
    steps, batch = walk.shares.shape[1:3]
    units = walk.weights.shape[1]
    states = [view for view in (walk.first_state, walk.first_memory, walk.last_state, walk.last_memory) if view]
    state = states[0].strides if states else (0, 0, 1)
    y = walk.y.strides if walk.y is not None else (0, 0, 0, 1)
    tensors = (
        walk.shares, walk.weights, walk.biases, walk.peepholes, walk.lengths, walk.first_state, walk.first_memory,
        walk.y, walk.last_state, walk.last_memory,
    )  # fmt: skip
    arguments: tuple[Argument, ...] = (
        *(_NULL if view is None else Pointer.of(view) for view in tensors),
        *numbers(steps, batch, y[0], y[2], y[1], state[1], state[0], directions.start, int(is_reverse)),
    )
    kernel = print_walk(cell, walk.shares.dtype, units, walk.biases is not None, walk.peepholes is not None)
    block = (-(-units // 32) * 32, 1, 1)
    return launched(kernel, (batch, len(directions), 1), block, arguments, walk.reads, walk.writes)


def print_walk(cell: Cell, dtype: DataType, units: int, has_bias: bool, has_peepholes: bool) -> Kernel:
    """Return the kernel of a cell with so many units."""
    lines = _HEAD.strip("\n").splitlines()
    added_first = range(2) if cell.is_reset_first else range(cell.gates)
    lines += _sums(added_first, cell, "state[now]")
    printer = _StepPrinter(cell, compute_type(dtype), has_bias, has_peepholes)
    if cell.is_reset_first:
        lines += [*printer.reset(), "  __syncthreads();", *_sums(range(2, 3), cell, "reset")]
    lines += [*printer.hidden(), *_TAIL.strip("\n").splitlines()]
    texts = {
        "T": STORAGE[dtype], "C": STORAGE[compute_type(dtype)], "UNITS": str(units), "COLUMNS": str(cell.gates * units),
    }  # fmt: skip
    parameters = ", ".join((_TENSORS, *(f"long long {name}" for name in _NUMBERS)))
    return template("recurrent", parameters, "\n".join(lines), texts)


def _sums(gates: Sequence[int], cell: Cell, source: str) -> list[str]:
    """Return the products of a state with the columns of some gates."""
    declared = ", ".join(f"sum{gate} = 0" for gate in gates)
    terms = [f"sum{gate} += s * ort_load(w[{gate} * @UNITS@]);" for gate in gates]
    return [
        f"  Real {declared};",
        "  if (is_unit) for (int k = 0; k < @UNITS@; ++k) {",
        f"    const Real s = {source}[k];",
        "    const @T@* w = weights_of + (long long)k * @COLUMNS@;",
        *(f"    {term}" for term in terms),
        "  }",
    ]


@dataclass(frozen=True, slots=True)
class _StepPrinter:
    cell: Cell
    dtype: DataType
    has_bias: bool
    has_peepholes: bool

    def reset(self) -> list[str]:
        printed = print_expression(self.cell.reset(self._given(_MEMORY)), self._text)
        lines = [*printed.statements, f"reset[unit] = {printed.result};"]
        return ["  if (is_unit) {", *(f"    {line}" for line in lines), "  }"]

    def hidden(self) -> list[str]:
        lines = ["  if (is_unit) {"]
        if self.cell.op_type == "LSTM":
            memory = print_expression(self.cell.memory(self._given(_MEMORY)), self._text)
            lines += [
                "    {",
                *(f"      {line}" for line in memory.statements),
                f"      memory = {memory.result};",
                "    }",
            ]
        hidden = print_expression(self.cell.hidden(self._given(_NEW_MEMORY)), self._text)
        lines += [*(f"    {line}" for line in hidden.statements), f"    const Real hidden = {hidden.result};"]
        return [*lines, "    state[1 - now][unit] = hidden;", "    if (y) *result = ort_store<@T@>::of(hidden);", "  }"]

    def _given(self, memory: int) -> CellInputs:
        def gates(start: int, count: int = self.cell.gates) -> list[Scalar]:
            return [element(start + index, self.dtype) for index in range(count)]

        return CellInputs(
            gates(_SHARE), gates(_SUM), gates(_INPUT_BIAS) if self.has_bias else (),
            gates(_STATE_BIAS) if self.has_bias else (), element(_HIDDEN, self.dtype), element(memory, self.dtype),
            gates(_PEEPHOLE, 3) if self.has_peepholes else (),
        )  # fmt: skip

    def _text(self, index: int) -> str:
        if index in (_MEMORY, _NEW_MEMORY):
            return "memory"
        if index == _HIDDEN:
            return "state[now][unit]"
        if index >= _PEEPHOLE:
            return f"ort_load(peephole[{index - _PEEPHOLE} * @UNITS@])"
        if index >= _INPUT_BIAS:
            behind = "@COLUMNS@ + " if index >= _STATE_BIAS else ""
            return f"ort_load(bias[{behind}{index % 4} * @UNITS@])"
        return f"sum{index - _SUM}" if index >= _SUM else f"ort_load(share[{index} * @UNITS@])"
