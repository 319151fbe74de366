"""Kernels of operators for devices: what a provider of a device runs where a plain numpy kernel would run on the CPU.

Two forms. A function of the calling convention of ``kernels.kernel``, over arrays of the device's own library (CuPy for
``"cuda"``). Or ``CudaSource``: the text of a kernel in CUDA C++ with the rule for its launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ort_core.frozen import frozen
from ort_core.kernels.kernel import KernelFunction
from ort_core.ops.version_table import VersionTable

CUDA = "cuda"
Shape = tuple[int, ...]


@frozen
class LaunchRequest:
    """What is known when a kernel is launched. ``inputs`` has ``None`` where an optional input is absent."""

    inputs: tuple[Shape | None, ...]
    outputs: tuple[Shape, ...]
    attributes: Mapping[str, object]


@frozen
class Launch:
    """How a kernel is launched: blocks, threads of a block, and its arguments behind the pointers.

    Numpy scalars pass as their own type; a Python int as ``long long``, a float as ``double``, a bool as ``bool``.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[np.generic | int | float | bool, ...] = ()

    @classmethod
    def over(cls, count: int, *arguments: np.generic | int | float | bool, threads: int = 256) -> Launch:
        """Return a launch with one thread for each of ``count`` elements, at least one block."""
        return cls((max(1, -(-count // threads)), 1, 1), (threads, 1, 1), arguments)


@frozen
class CudaSource:
    """A kernel in CUDA C++.

    The parameters of ``entry`` (``extern "C" __global__``) are a pointer for each input (null where absent), a pointer
    for each output, then the arguments that ``launch`` gives. Tensors are dense. Needs the operator's shape rule.
    """

    source: str
    entry: str
    launch: Callable[[LaunchRequest], Launch]


DeviceKernel = KernelFunction | CudaSource
DeviceKernels = Mapping[str, VersionTable[DeviceKernel]]
