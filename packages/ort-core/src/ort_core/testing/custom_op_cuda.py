"""The CUDA forms of a user's operator run on the CPU, by emulation: the printed loop kernel, and a ``CudaSource``."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ort_core.custom_ops.definition import OpDefinition
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.kernels.device_kernel import CUDA, CudaSource, LaunchRequest
from ort_core.loops.cuda_printer import PREAMBLE, InputLayout, PrintedKernel, print_elementwise_kernel
from ort_core.loops.meanings import ElementMeaning
from ort_core.loops.rows import RowMeaning
from ort_core.loops.scalar import element
from ort_core.testing.cuda_emulation import emulate, find_compiler

LOOP, OWN = "loop kernel printed as CUDA C++ (emulated)", "CUDA kernel (emulated)"

_ROWS = "row formulas are compiled for the CPU only; a CUDA device runs op.cuda's kernel"


@dataclass(frozen=True)
class CudaCase:
    """Inputs (``None``: absent), all attributes as the user's functions take them, and the numpy kernel's outputs."""

    inputs: Sequence[np.ndarray | None]
    attributes: Mapping[str, object]
    expected: Sequence[np.ndarray]

    def dense_inputs(self) -> list[np.ndarray | None]:
        """Return the inputs as a device has them: without gaps."""
        return [None if array is None else np.asarray(array, order="C") for array in self.inputs]


Found = list[np.ndarray] | str


def run_emulated(definition: OpDefinition, cases: Sequence[CudaCase]) -> dict[str, list[Found]]:
    """Return, for each CUDA form of an operator, its outputs in each case, or why it was not run."""
    kernel = definition.device_kernels.get(CUDA)
    found: dict[str, list[Found]] = {}
    if definition.meaning is not None:
        meaning = definition.meaning
        found[LOOP] = [_ROWS for _ in cases] if isinstance(meaning, RowMeaning) else _run_loops(meaning, cases)
    if isinstance(kernel, CudaSource):
        found[OWN] = _run_source(kernel, cases)
    elif kernel is not None:
        found[OWN] = ["it is a function over CuPy arrays, which runs on a device only" for _ in cases]
    return found


def _run_loops(meaning: ElementMeaning, cases: Sequence[CudaCase]) -> list[Found]:
    printed = [_printed(meaning, case, number) for number, case in enumerate(cases)]
    kernels = [kernel for kernel in printed if isinstance(kernel, PrintedKernel)]
    if not kernels or find_compiler() is None:
        return [kernel if isinstance(kernel, str) else "no C++ compiler was found" for kernel in printed]
    found: list[Found] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # a loaded library stays locked on Windows
        source = PREAMBLE + "".join(kernel.source for kernel in kernels)
        compiled = emulate(source, [kernel.name for kernel in kernels], Path(folder))
        for kernel, case in zip(printed, cases, strict=True):
            if isinstance(kernel, str):
                found.append(kernel)
                continue
            out = np.empty(case.expected[0].shape, case.expected[0].dtype)
            present = [array for array in case.dense_inputs() if array is not None]
            compiled[kernel.name].launch((2, 1, 1), (32, 1, 1), [*present, out, *_numbers(present, out)])
            found.append([out])
    return found


def _printed(meaning: ElementMeaning, case: CudaCase, number: int) -> PrintedKernel | str:
    dtypes = [DataType.from_numpy(array.dtype) for array in case.inputs if array is not None]
    if any(array is None for array in case.inputs[: len(dtypes)]):
        return "an optional input in the middle is absent"
    root = meaning([element(index, dtype) for index, dtype in enumerate(dtypes)], case.attributes)
    if isinstance(root, Rejection):
        return root.reason
    rank = case.expected[0].ndim
    layout = InputLayout.STRIDED if rank else InputLayout.SCALAR
    return print_elementwise_kernel(root, [layout] * len(dtypes), rank, dtypes, f"loop_kernel_{number}")


def _numbers(inputs: Sequence[np.ndarray], out: np.ndarray) -> list[int]:
    """Return what a printed kernel is told behind the pointers: the count, the sizes, the strides."""
    spread = [np.broadcast_to(array, out.shape) for array in inputs]
    strides = [stride // array.itemsize for array in spread for stride in array.strides]
    return [out.size, *out.shape[1:], *strides]


def _run_source(kernel: CudaSource, cases: Sequence[CudaCase]) -> list[Found]:
    if find_compiler() is None:
        return ["no C++ compiler was found" for _ in cases]
    found: list[Found] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # as above
        compiled = emulate(kernel.source, [kernel.entry], Path(folder))[kernel.entry]
        for case in cases:
            dense = case.dense_inputs()
            outputs = [np.zeros(array.shape, array.dtype) for array in case.expected]
            shapes = tuple(None if array is None else array.shape for array in dense)
            request = LaunchRequest(shapes, tuple(array.shape for array in outputs), case.attributes)
            launch = kernel.launch(request)
            compiled.launch(launch.grid, launch.block, [*dense, *outputs, *launch.arguments])
            found.append(list(outputs))
    return found
