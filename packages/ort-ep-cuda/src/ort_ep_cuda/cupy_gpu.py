"""A GPU through CuPy: memory pool, streams, modules, graphs; NVIDIA's libraries on its streams."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ort_core.plugin import AllocationLimitExceeded, EPFail
from ort_core.plugin.kernels import RunGuard
from ort_ep_cuda import _sdk
from ort_ep_cuda.engines.device_libraries import DeviceLibraries
from ort_ep_cuda.gpu import Function, GpuFacts, GpuStream, Graph, Memory
from ort_ep_cuda.idle_memory import IdleMemory
from ort_ep_cuda.kernel_cache import KernelCache
from ort_ep_cuda.lowering.custom.function_calls import run_call
from ort_ep_cuda.lowering.libraries.library_steps import AnyLibraryStep
from ort_ep_cuda.lowering.program import FunctionCall, Kernel
from ort_ep_cuda.lowering.values.views import TensorView
from ort_ep_cuda.options import CudaOptions

_TO_DEVICE, _TO_HOST, _WITHIN = 1, 2, 3  # cudaMemcpyKind
log = logging.getLogger(__name__)


class CupyMemory:
    """Memory of CuPy's pool; it goes back to the pool with this object."""

    def __init__(self, pointer: Any, nbytes: int) -> None:  # Any: CuPy has no types
        self._pointer = pointer
        self.address = int(pointer.ptr)
        self.nbytes = nbytes


class CupyStream:
    """A CUDA stream."""

    def __init__(self, gpu: CupyGpu, stream: Any) -> None:  # Any: as above
        self._gpu, self._stream = gpu, stream
        self._runtime = gpu.library.cuda.runtime
        self._scratch: list[Memory] = []
        self._cudnn_handle: Any = None  # Any: cuDNN's handle

    def upload(self, source: np.ndarray, address: int) -> None:
        """Copy to the device."""
        with self._gpu.device:
            self._runtime.memcpyAsync(address, source.ctypes.data, source.nbytes, _TO_DEVICE, self._stream.ptr)

    def download(self, address: int, target: np.ndarray) -> None:
        """Copy from the device."""
        with self._gpu.device:
            self._runtime.memcpyAsync(target.ctypes.data, address, target.nbytes, _TO_HOST, self._stream.ptr)

    def copy(self, source: int, target: int, nbytes: int) -> None:
        """Copy within the device."""
        with self._gpu.device:
            self._runtime.memcpyAsync(target, source, nbytes, _WITHIN, self._stream.ptr)

    def clear(self, address: int, nbytes: int) -> None:
        """Set bytes to zero."""
        with self._gpu.device:
            self._runtime.memsetAsync(address, 0, nbytes, self._stream.ptr)

    def launch(
        self,
        function: Any,  # Any: CuPy's Function
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[np.generic],
    ) -> None:
        """Start a kernel."""
        with self._gpu.device, self._stream:
            function(grid, block, tuple(arguments))

    def run_library(
        self, step: AnyLibraryStep, addresses: Sequence[int], own: Callable[[], None] | None = None
    ) -> None:
        """Call cuBLASLt, cuBLAS or cuDNN, or what does the same where that is faster."""
        with self._gpu.device, self._stream:
            self._gpu.libraries.run(step, addresses, self, own)

    @property
    def handle(self) -> int:
        """The ``cudaStream_t``."""
        return int(self._stream.ptr)

    @property
    def cudnn_handle(self) -> Any:  # Any: cuDNN's handle
        """The handle of cuDNN, made when it is first asked for."""
        if self._cudnn_handle is None:
            self._cudnn_handle = _sdk.new_cudnn_handle(self)
            _sdk.cudnn().set_stream(handle=self._cudnn_handle, stream=self.handle)
        return self._cudnn_handle

    def scratch(self, nbytes: int) -> int:
        """Return memory that all calls of this stream share. Smaller blocks are kept: captured graphs write there."""
        if not self._scratch or self._scratch[-1].nbytes < nbytes:
            self._scratch.append(self._gpu.allocate(nbytes))
        return self._scratch[-1].address

    def seconds(self, call: Callable[[], None]) -> float:
        """Return what the device takes for a call, by events."""
        events = self._gpu.library.cuda
        first, last = events.Event(), events.Event()
        first.record(self._stream)
        call()
        last.record(self._stream)
        last.synchronize()
        return float(events.get_elapsed_time(first, last)) / 1e3

    def call(
        self, step: FunctionCall, inputs: Sequence[int | None], outs: Sequence[int | None], guard: RunGuard
    ) -> None:
        """Call a user's function on CuPy's arrays, this stream being the current one."""
        with self._gpu.device, self._stream:
            run_call(step, inputs, outs, self._gpu.array, guard)

    def begin_capture(self) -> None:
        """Record what follows."""
        try:
            with self._gpu.device:
                self._stream.begin_capture()
        except RuntimeError as error:
            raise EPFail(f"the capture of a CUDA graph cannot begin: {error}") from error

    def end_capture(self) -> Graph:
        """Return what was recorded."""
        try:
            with self._gpu.device:
                return self._stream.end_capture()
        except RuntimeError as error:
            raise EPFail(f"a CUDA graph cannot be captured: {error}") from error

    def abort_capture(self) -> None:
        """Record no longer.

        The stream is not asked first whether it records: CuPy answers that by an error where the capture is invalid,
        which is when it must end. Ending gives an error, too, there and where nothing is recorded.
        """
        with contextlib.suppress(RuntimeError), self._gpu.device:
            self._stream.end_capture()

    def replay(self, graph: Any) -> None:  # Any: CuPy's Graph
        """Enqueue recorded work."""
        with self._gpu.device:
            graph.launch(self._stream)

    def synchronize(self) -> None:
        """Wait; raises what went wrong on the device."""
        try:
            with self._gpu.device:  # the default stream is that of the current device
                self._stream.synchronize()
        except RuntimeError as error:
            raise EPFail(f"work on the GPU failed: {error}") from error

    def settle(self) -> None:
        """Wait, whatever went wrong: a device that failed has nothing under way."""
        with contextlib.suppress(RuntimeError), self._gpu.device:
            self._stream.synchronize()


class CupyGpu:
    """One device of a session, as its options say."""

    def __init__(self, options: CudaOptions) -> None:
        self.library = _sdk.cupy()
        self.device = self.library.cuda.Device(options.device_id)
        self.idle = IdleMemory()
        self._options = options
        self._of_thread = threading.local()
        with self.device:
            self._pool = self.library.cuda.MemoryPool()
            self._pool.set_limit(size=options.gpu_mem_limit)
            properties = self.library.cuda.runtime.getDeviceProperties(options.device_id)
        architecture = f"sm_{self.device.compute_capability}"
        compiler = f"nvrtc {_sdk.nvrtc_version()}"
        self.facts = GpuFacts(properties["name"].decode(), architecture, (("compiler", compiler),))
        self.libraries = DeviceLibraries(
            options,
            tuple(self._device_versions(properties)),
            lambda: self.device.cublas_handle,
            self._cudnn_handle_of_thread,
            self.device,
        )
        self._cache = KernelCache(architecture, compiler, _sdk.machine_code)
        self._functions: dict[str, Any] = {}  # Any: CuPy's Function
        self._lock = threading.Lock()

    def _device_versions(self, properties: Mapping[str, Any]) -> Iterator[tuple[str, str]]:  # Any: of CuPy
        yield ("device", f"{self.facts.name} {self.facts.architecture} {properties.get('multiProcessorCount', '')}")
        yield ("driver", str(self.library.cuda.runtime.driverGetVersion()))

    def _cudnn_handle_of_thread(self) -> Any:  # Any: cuDNN's handle
        """Return the handle by which this thread asks cuDNN: no two threads may use one at a time."""
        if not hasattr(self._of_thread, "cudnn"):
            with self.device:
                self._of_thread.cudnn = _sdk.new_cudnn_handle(self)
        return self._of_thread.cudnn

    def allocate(self, nbytes: int) -> Memory:
        """Return memory; what the pool keeps unused is given back first where there is not enough."""
        out_of_memory = self.library.cuda.memory.OutOfMemoryError
        with self.device:
            try:
                return CupyMemory(self._pool.malloc(nbytes), nbytes)
            except out_of_memory:
                self._pool.free_all_blocks()
            try:
                return CupyMemory(self._pool.malloc(nbytes), nbytes)
            except out_of_memory as error:
                free, total = self.device.mem_info
                limit = self._options.gpu_mem_limit or "none"
                raise AllocationLimitExceeded(
                    f"the GPU has no {nbytes} bytes left: this session holds {self._pool.used_bytes()}, its limit "
                    f"(gpu_mem_limit) is {limit}, the device has {free} of {total} free; smaller batches "
                    "need less, other sessions and processes hold the rest"
                ) from error

    def array(self, view: TensorView, address: int) -> Any:  # Any: CuPy's array
        """Return dense memory as an array; its memory is that of a partition, which outlives the call."""
        cuda = self.library.cuda
        owned = cuda.UnownedMemory(address, view.size * view.dtype.numpy.itemsize, self, self.device.id)
        return self.library.ndarray(view.shape, view.dtype.numpy, cuda.MemoryPointer(owned, 0))

    def pinned(self, nbytes: int) -> np.ndarray:
        """Return page-locked bytes; ordinary ones where the system locks no more: copies take longer, and are right."""
        try:
            with self.device:  # else a context is made on the first device
                return _sdk.pinned(nbytes)
        except RuntimeError as error:
            log.info("%d bytes of the host are not page-locked: %s", nbytes, error)
            return np.empty(nbytes, np.uint8)

    def stream(self) -> GpuStream:
        """Return a stream that does not wait for the default one, or the caller's."""
        with self.device:
            given = self._options.callers_stream
            if given is not None:
                return CupyStream(self, _sdk.adopted_stream(given, self._options.device_id))
            return CupyStream(self, self.library.cuda.Stream(non_blocking=True))

    def functions(self, kernels: Sequence[Kernel]) -> Mapping[str, Function]:
        """Return kernels ready to launch."""
        with self._lock:
            missing = [kernel for kernel in kernels if kernel.name not in self._functions]
            if missing:
                self._load(missing)
            return {kernel.name: self._functions[kernel.name] for kernel in kernels}

    def _load(self, kernels: Sequence[Kernel]) -> None:
        generated = [kernel for kernel in kernels if not kernel.entry]
        with self.device:
            if generated:
                module = self._module(self._cache.code_of(generated))
                self._functions.update({kernel.name: module.get_function(kernel.name) for kernel in generated})
            for kernel in kernels:
                if kernel.entry:
                    self._functions[kernel.name] = self._load_own(kernel)

    def _load_own(self, kernel: Kernel) -> Any:  # Any: CuPy's Function
        """Return a user's kernel; its names are its own, so it is a module by itself."""
        try:
            code = self._cache.code_of_source(kernel.source)
        except RuntimeError as error:
            raise EPFail(f"the CUDA kernel {kernel.entry!r} of {kernel.operator} does not compile: {error}") from error
        return self._module(code).get_function(kernel.entry)

    def _module(self, code: bytes) -> Any:  # Any: CuPy's Module
        module = self.library.cuda.function.Module()
        module.load(code)
        return module
