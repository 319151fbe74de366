"""The CUDA forms of a user's operator run on the CPU, by emulation: the printed loop kernel, and a ``CudaSource``."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ort_core.custom_ops.definition import OpDefinition
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.kernels.device_kernel import CUDA, CudaSource, LaunchRequest
from ort_core.loops.cuda_printer import PREAMBLE, InputLayout, print_elementwise_kernel
from ort_core.loops.scalar import element
from ort_core.testing.cuda_emulation import emulate, find_compiler

LOOP, OWN = "loop kernel printed as CUDA C++ (emulated)", "CUDA kernel (emulated)"
Inputs = Sequence[np.ndarray | None]


def check_cuda(
    definition: OpDefinition, inputs: Inputs, attributes: Mapping[str, object], expected: Sequence[np.ndarray]
) -> dict[str, list[np.ndarray] | str]:
    """Return, for each CUDA form of an operator, its outputs on the inputs, or why it was not run.

    Args:
        definition: the operator.
        inputs: its inputs, ``None`` where absent.
        attributes: every attribute, defaults included, as the user's functions take them.
        expected: outputs of the numpy kernel; the emulated kernels write arrays of these shapes.
    """
    found: dict[str, list[np.ndarray] | str] = {}
    if definition.meaning is not None:
        found[LOOP] = _loop(definition, inputs, attributes, expected)
    kernel = definition.device_kernels.get(CUDA)
    if isinstance(kernel, CudaSource):
        found[OWN] = _source(kernel, inputs, attributes, expected)
    elif kernel is not None:
        found[OWN] = "it is a function over CuPy arrays, which runs on a device only"
    return found


def _loop(
    definition: OpDefinition, inputs: Inputs, attributes: Mapping[str, object], expected: Sequence[np.ndarray]
) -> list[np.ndarray] | str:
    assert definition.meaning is not None
    present = [np.ascontiguousarray(array) for array in inputs if array is not None]
    dtypes = [DataType.from_numpy(array.dtype) for array in present]
    root = definition.meaning([element(index, dtype) for index, dtype in enumerate(dtypes)], attributes)
    if isinstance(root, Rejection):
        return root.reason
    if find_compiler() is None:
        return "no C++ compiler was found"
    out = np.empty(expected[0].shape, root.dtype.numpy)
    numbers = [out.size, *out.shape[1:]]
    for array in present:
        spread = np.broadcast_to(array, out.shape)
        numbers += [stride // array.itemsize for stride in spread.strides]
    if not out.ndim:
        numbers = [out.size]
    layout = InputLayout.STRIDED if out.ndim else InputLayout.SCALAR
    kernel = print_elementwise_kernel(root, [layout] * len(present), out.ndim, dtypes, "loop_kernel")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        compiled = emulate(PREAMBLE + kernel.source, [kernel.name], Path(folder))[kernel.name]
        compiled.launch((2, 1, 1), (32, 1, 1), [*present, out, *numbers])
    return [out]


def _source(
    kernel: CudaSource, inputs: Inputs, attributes: Mapping[str, object], expected: Sequence[np.ndarray]
) -> list[np.ndarray] | str:
    if find_compiler() is None:
        return "no C++ compiler was found"
    dense = [None if array is None else np.ascontiguousarray(array) for array in inputs]
    outputs = [np.zeros_like(array, order="C") for array in expected]
    request = LaunchRequest(
        tuple(None if array is None else array.shape for array in dense),
        tuple(array.shape for array in outputs),
        attributes,
    )
    launch = kernel.launch(request)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # a loaded library stays locked on Windows
        compiled = emulate(kernel.source, [kernel.entry], Path(folder))[kernel.entry]
        compiled.launch(launch.grid, launch.block, [*dense, *outputs, *launch.arguments])
    return outputs
