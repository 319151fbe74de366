"""Program: what a partition does on the device for one signature of shapes: buffers, and steps in order. Immutable."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ort_core.plugin.ir import DataType
from ort_core.plugin.kernels import KernelContext
from ort_core.plugin.memory import ArenaLayout, StepUse, assign_offsets, live_intervals
from ort_ep_cuda.lowering.libraries.library_steps import AnyLibraryStep, Normalization, shown
from ort_ep_cuda.lowering.values.views import Shape, TensorView

KernelFunction = Callable[..., Any]  # Any: kernels differ in arity, results are arrays of the device
MAXIMUM_THREADS = 512  # of a block of any generated kernel
ARENA_ALIGNMENT = 256  # bytes: what cudaMalloc itself gives, and all that vector loads and libraries ask for


class BufferKind(enum.Enum):
    """Who owns a buffer."""

    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"
    TEMPORARY = "temporary"
    STATUS = "status"
    DRAW = "draw"
    SIZES = "sizes"


@dataclass(frozen=True, slots=True)
class Buffer:
    """A piece of device memory.

    ``index``: which input or output; ``name``: which constant, ``order``: its axes as they lie in memory, the slowest
    first (empty: as they are); ``content``: of a constant that the lowering computed.
    """

    kind: BufferKind
    nbytes: int
    index: int = 0
    name: str = ""
    content: np.ndarray | None = field(default=None, compare=False)
    order: Shape = ()


@dataclass(frozen=True, slots=True)
class Kernel:
    """One ``extern "C" __global__`` function, without the preamble.

    A user's own is compiled by itself, as it is: ``entry`` is what its source calls it (``name`` is made of the
    content), ``operator`` whose it is. Both are empty for generated kernels.
    """

    name: str
    source: str
    entry: str = ""
    operator: str = ""


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address that the run fills in: a buffer and bytes behind its start."""

    buffer: int
    offset_nbytes: int = 0

    @classmethod
    def of(cls, view: TensorView) -> Pointer:
        """Return the address of a view's first element."""
        return cls(view.buffer, view.offset * view.dtype.numpy.itemsize)


Argument = Pointer | np.generic


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel with its grid, its block and its arguments."""

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a user's function over arrays of the device; its results are copied to ``outs``.

    ``function`` has the calling convention of kernels, and checks what it is given and returns. ``None`` stands for
    an absent input, or an output that nobody reads. It may do anything: it is never part of a captured graph.
    """

    function: KernelFunction
    attributes: Mapping[str, object]
    context: KernelContext
    inputs: tuple[TensorView | None, ...]
    outs: tuple[TensorView | None, ...]

    @property
    def operator(self) -> str:
        """The operator's name, for messages."""
        return f"{self.context.domain}::{self.context.op_type}"

    @property
    def reads(self) -> tuple[int, ...]:
        """Buffers that are read."""
        return tuple(view.buffer for view in self.inputs if view is not None)

    @property
    def writes(self) -> tuple[int, ...]:
        """Buffers that are written."""
        return tuple(view.buffer for view in self.outs if view is not None)


Step = Launch | AnyLibraryStep | FunctionCall


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """Element type, shape and buffer of an output."""

    dtype: DataType
    shape: Shape
    buffer: int


@dataclass(frozen=True, slots=True)
class Program:
    """Everything that a run needs: buffers, steps, where temporaries lie in the arena, which nodes check indices.

    ``words`` are the sizes that each run sends to the device, where some grow; ``starts`` says which of them is the
    address of which buffer, that lies wherever a run has it; ``nbytes`` how much of each buffer a run uses, which is
    then less than the buffer has. ``continued`` names, of a result that goes on with an input, that input's buffer: a
    caller may have both in the same place.
    """

    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    arena: ArenaLayout[int]
    outputs: tuple[OutputFacts, ...]
    checks: Mapping[int, str]
    words: tuple[int, ...] = ()
    starts: Mapping[int, int] = field(default_factory=dict)
    nbytes: tuple[int, ...] = ()
    continued: Mapping[int, int] = field(default_factory=dict)

    def kernels(self) -> tuple[Kernel, ...]:
        """Return the distinct kernels in the order of their first launch."""
        launches = (step.own if isinstance(step, Normalization) else step for step in self.steps)
        return tuple(dict.fromkeys(step.kernel for step in launches if isinstance(step, Launch)))

    @property
    def can_be_captured(self) -> bool:
        """Whether the steps can be recorded once and replayed: calls of users' functions cannot."""
        return not any(isinstance(step, FunctionCall) for step in self.steps)

    def describe(self) -> str:
        """Return the program as text, a line per buffer and step: what goldens hold."""
        lines = [f"%{n} = {b.kind.value} {b.name or b.index} {b.nbytes} bytes" for n, b in enumerate(self.buffers)]
        lines += [_line(step, self.arena) for step in self.steps]
        return "\n".join([*lines, f"arena {self.arena.nbytes} bytes"]) + "\n"


def plan_arena(buffers: tuple[Buffer, ...], steps: tuple[Step, ...]) -> ArenaLayout[int]:
    """Place the temporaries in one arena: those that are alive together never overlap."""
    intervals = live_intervals([StepUse(step.reads, step.writes) for step in steps])
    temporary = {n: b.nbytes for n, b in enumerate(buffers) if b.kind is BufferKind.TEMPORARY and n in intervals}
    return assign_offsets(temporary, {n: intervals[n] for n in temporary}, ARENA_ALIGNMENT)


def _line(step: Step, arena: ArenaLayout[int]) -> str:
    if isinstance(step, Launch):
        arguments = ", ".join(_argument(a) for a in step.arguments)
        return f"{step.kernel.name}<<<{step.grid}, {step.block}>>>({arguments})"
    if isinstance(step, FunctionCall):
        inputs, outs = (", ".join("-" if v is None else shown(v) for v in views) for views in (step.inputs, step.outs))
        return f"call {outs} = {step.operator}({inputs})"
    return str(step)


def _argument(argument: Argument) -> str:
    if isinstance(argument, Pointer):
        return f"%{argument.buffer}" + (f"+{argument.offset_nbytes}" if argument.offset_nbytes else "")
    return str(argument)
