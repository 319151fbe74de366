"""The CUDA forms of a user's operator run on the CPU, by emulation: the printed formulas, and a ``CudaSource``.

Inputs are copies, results lie between guards: what a kernel writes beside its results is an error here, not a crash.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ort_core.custom_ops.cuda_launch import plan_launch
from ort_core.custom_ops.definition import OpDefinition
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.kernels.device_kernel import CUDA, CudaSource, LaunchRequest
from ort_core.loops.cuda_printer import PREAMBLE, InputLayout, PrintedKernel, print_elementwise_kernel
from ort_core.loops.cuda_row_printer import print_row_kernel, row_blocks
from ort_core.loops.rows import OpMeaning, RowMeaning
from ort_core.loops.scalar import element
from ort_core.testing.cuda_emulation import EmulatedKernel, Scalar, emulate, find_compiler

LOOP, OWN = "loop kernel printed as CUDA C++ (emulated)", "CUDA kernel (emulated)"
_NO_COMPILER = "no C++ compiler was found"
_GUARD_NBYTES, _FILL = 4096, 0xA5  # on both sides of a result; a byte that is not in zeros and small numbers


@dataclass(frozen=True)
class CudaCase:
    """Inputs (``None``: absent), all attributes as the user's functions take them, and the numpy kernel's outputs."""

    inputs: Sequence[np.ndarray | None]
    attributes: Mapping[str, object]
    expected: Sequence[np.ndarray]

    def dense_inputs(self) -> list[np.ndarray | None]:
        """Return copies of the inputs as a device has them: without gaps."""
        return [None if array is None else np.array(array, order="C") for array in self.inputs]


_NOTHING = ((0, 1, 1), (1, 1, 1), ())  # no blocks are launched
Found = list[np.ndarray] | str
Dimensions = tuple[int, int, int]


def run_emulated(definition: OpDefinition, cases: Sequence[CudaCase]) -> dict[str, list[Found]]:
    """Return, for each CUDA form of an operator, its outputs in each case, or why it was not run.

    Raises:
        AssertionError: a kernel wrote beside its results, or changed an input.
        RuntimeException: a launch does not fit its kernel.
    """
    kernel = definition.device_kernels.get(CUDA)
    found: dict[str, list[Found]] = {}
    if definition.meaning is not None:
        found[LOOP] = _run_loops(definition.meaning, cases)
    if isinstance(kernel, CudaSource):
        found[OWN] = _run_source(kernel, definition.qualified_name, cases)
    elif kernel is not None:
        found[OWN] = ["it is a function over CuPy arrays, which runs on a device only" for _ in cases]
    return found


def _run_loops(meaning: OpMeaning, cases: Sequence[CudaCase]) -> list[Found]:
    printed = [_printed(meaning, case, number) for number, case in enumerate(cases)]
    kernels = [kernel for kernel in printed if isinstance(kernel, PrintedKernel)]
    if not kernels or find_compiler() is None:
        return [kernel if isinstance(kernel, str) else _NO_COMPILER for kernel in printed]
    found: list[Found] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # a loaded library stays locked on Windows
        source = PREAMBLE + "".join(kernel.source for kernel in kernels)
        compiled = emulate(source, [kernel.name for kernel in kernels], Path(folder))
        for kernel, case in zip(printed, cases, strict=True):
            if isinstance(kernel, str):
                found.append(kernel)
                continue
            present = [array for array in case.dense_inputs() if array is not None]
            shape = np.broadcast_shapes(*(array.shape for array in present))
            grid, block, numbers = _loop_launch(isinstance(meaning, RowMeaning), shape, present)
            found.append(_launched(compiled[kernel.name], LOOP, grid, block, present, case, numbers))
    return found


def _printed(meaning: OpMeaning, case: CudaCase, number: int) -> PrintedKernel | str:
    dtypes = [DataType.from_numpy(array.dtype) for array in case.inputs if array is not None]
    if any(array is None for array in case.inputs[: len(dtypes)]):
        return "an optional input in the middle is absent"
    elements = [element(index, dtype) for index, dtype in enumerate(dtypes)]
    formula = meaning.formula if isinstance(meaning, RowMeaning) else meaning
    found = formula(elements, case.attributes)
    if isinstance(found, Rejection):
        return found.reason
    name, rank = f"loop_kernel_{number}", max(0 if a is None else a.ndim for a in case.inputs)
    layouts = [InputLayout.STRIDED if rank else InputLayout.SCALAR] * len(dtypes)
    try:
        if isinstance(found, tuple):
            return print_row_kernel(found, layouts, rank, dtypes, name)
        return print_elementwise_kernel(found, layouts, rank, dtypes, name)
    except ValueError as error:  # an element type has no CUDA form
        return str(error)


def _loop_launch(
    is_by_rows: bool, shape: tuple[int, ...], inputs: Sequence[np.ndarray]
) -> tuple[Dimensions, Dimensions, list[int]]:
    """Return the grid, the block, and what a printed kernel is told behind the pointers: counts, sizes, strides."""
    spread = [np.broadcast_to(array, shape) for array in inputs]
    strides = [stride // array.itemsize for array in spread for stride in array.strides]
    if not is_by_rows:
        return (2, 1, 1), (32, 1, 1), [math.prod(shape), *shape[1:], *strides]
    rows, columns = math.prod(shape[:-1]), shape[-1]
    _, block = row_blocks(rows, columns)
    return (2, 1, 1), block, [rows, columns, *shape[1:-1], *strides]


def _run_source(kernel: CudaSource, operator: str, cases: Sequence[CudaCase]) -> list[Found]:
    if find_compiler() is None:
        return [_NO_COMPILER for _ in cases]
    found: list[Found] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # as above
        compiled = emulate(kernel.source, [kernel.entry], Path(folder))[kernel.entry]
        for case in cases:
            shapes = tuple(None if array is None else array.shape for array in case.inputs)
            request = LaunchRequest(shapes, tuple(array.shape for array in case.expected), case.attributes)
            dtypes = [None if a is None else DataType.from_numpy(a.dtype) for a in (*case.inputs, *case.expected)]
            launch = plan_launch(kernel, operator, request, dtypes)
            grid, block, arguments = (launch.grid, launch.block, launch.arguments) if launch else _NOTHING
            found.append(_launched(compiled, OWN, grid, block, case.dense_inputs(), case, arguments))
    return found


def _launched(
    kernel: EmulatedKernel,
    what: str,
    grid: Dimensions,
    block: Dimensions,
    inputs: Sequence[np.ndarray | None],
    case: CudaCase,
    arguments: Sequence[Scalar],
) -> list[np.ndarray]:
    before = [None if array is None else array.tobytes() for array in inputs]
    zones = [np.full(array.nbytes + 2 * _GUARD_NBYTES, _FILL, np.uint8) for array in case.expected]
    outputs = [_inside(zone, array) for zone, array in zip(zones, case.expected, strict=True)]
    if all(grid):
        kernel.launch(grid, block, [*inputs, *outputs, *arguments])
    for index, (array, content) in enumerate(zip(inputs, before, strict=True)):
        assert array is None or array.tobytes() == content, f"{what} changed input {index}"
    for index, (zone, array) in enumerate(zip(zones, outputs, strict=True)):
        is_whole = np.all(zone[:_GUARD_NBYTES] == _FILL) and np.all(zone[-_GUARD_NBYTES:] == _FILL)
        assert is_whole, f"{what} wrote outside of output {index} ({array.dtype}{list(array.shape)})"
    return outputs


def _inside(zone: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return an array like another one, between the guards of a zone."""
    return zone[_GUARD_NBYTES : _GUARD_NBYTES + like.nbytes].view(like.dtype).reshape(like.shape)
