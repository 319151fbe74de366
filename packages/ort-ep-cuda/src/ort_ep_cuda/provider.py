"""CudaExecutionProvider: claims regions of graphs and compiles each to kernels and library calls on a GPU."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from ort_core.plugin import (
    Available,
    Capability,
    CompiledPartition,
    CompileRequest,
    ExecutionProvider,
    GraphView,
    Pass,
    Rejection,
    Unavailable,
)
from ort_ep_cuda._sdk import CONVOLUTIONS, find_device, find_gpu, find_library
from ort_ep_cuda.options import CudaOptions

if TYPE_CHECKING:
    from ort_ep_cuda.gpu import Gpu  # with all of the lowering, which a process without a GPU does not need

PLUGIN_PREFIX = "ep.cuda."  # before options as onnxruntime's plugin takes them


class CudaExecutionProvider(ExecutionProvider):
    """Runs on NVIDIA GPUs through CuPy, NVRTC, cuBLAS and cuDNN."""

    name: ClassVar[str] = "CUDAExecutionProvider"
    options_type: ClassVar[type] = CudaOptions
    priority: ClassVar[int] = 200
    is_listed: ClassVar[bool] = True  # whoever installs it beside a GPU that works wants models to run there

    def __init__(self, options: Mapping[str, object] | None = None) -> None:
        super().__init__({name.removeprefix(PLUGIN_PREFIX): value for name, value in (options or {}).items()})
        self._lock = threading.Lock()
        self._gpu: Gpu | None = None

    @classmethod
    def check(cls) -> Available | Unavailable:
        """Return whether there is a GPU that the installed CuPy can use, and if not, what to install."""
        return find_device()

    def check_device(self) -> Available | Unavailable:
        """Return whether there is a GPU of the number ``device_id``, for which kernels can be compiled."""
        return find_gpu(cast(CudaOptions, self.options).device_id)

    @classmethod
    def device_text(cls) -> str:
        """Return ``cuda``."""
        return "cuda"

    @property
    def fusions(self) -> Sequence[Pass]:
        """Those whose operators are one kernel or one library call here; attention where the library has it."""
        from ort_ep_cuda.fusions import FUSIONS

        return FUSIONS

    def get_capability(self, view: GraphView) -> Capability:
        """Return claims, and a reason for every node that is left."""
        from ort_ep_cuda.capability import find_capability

        return find_capability(view, self.missing_library)

    def compile(self, request: CompileRequest) -> CompiledPartition:
        """Compile one claim; programs are built when shapes are known."""
        from ort_ep_cuda.compiled import CudaPartition

        return CudaPartition(request, self.gpu(), cast(CudaOptions, self.options))

    def build(self, request: CompileRequest) -> Rejection | None:
        """Compile the claim's kernels for a GPU that is not here; sizes that are not known are 2.

        Returns:
            Why nothing was built: NVRTC is not installed, or contents of inputs decide sizes.
        """
        from ort_ep_cuda.building import build_claim

        return build_claim(request)

    def missing_library(self, op_type: str) -> str | None:
        """Return why the library that runs an operator cannot be used here, ``None`` where it can or none is needed."""
        if op_type in CONVOLUTIONS and not cast(CudaOptions, self.options).enable_cudnn:
            return "cuDNN runs it, and the option enable_cudnn is 0"
        found = find_library(op_type)
        return None if found else str(found)

    def gpu(self) -> Gpu:
        """Return the device that the options name: one for all partitions, with one pool, limit and set of handles."""
        from ort_ep_cuda.cupy_gpu import CupyGpu

        with self._lock:
            if self._gpu is None:
                self._gpu = CupyGpu(cast(CudaOptions, self.options))
            return self._gpu
