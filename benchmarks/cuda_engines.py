"""Engines that run a model on a GPU with inputs and outputs in its memory, and what a card reaches at best."""

from __future__ import annotations

import abc
import importlib.util
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import onnx
from workloads import Workload

import ort_core

COPIED_NBYTES = 1 << 30
PRODUCT_SIZE = 8192
TIMED_RUNS = 10
LAUNCHED_KERNELS = 100  # of the graph whose launch is timed


class EngineError(Exception):
    """An engine cannot run a model here; the text says why."""


@dataclass(frozen=True, slots=True)
class Run:
    """A loaded model.

    ``call`` runs it once and waits for it; its work goes through ``stream``, a ``cudaStream_t``. ``owner`` keeps the
    stream.
    """

    call: Callable[[], None]
    stream: int
    owner: object = None


class Card(Protocol):
    """The GPU, as far as its own rates count."""

    def facts(self) -> dict[str, Any]:  # Any: plain data for JSON
        """Return name, driver and libraries."""

    def copy_rate(self) -> float:
        """Return bytes read and written in a second by a copy within the device."""

    def product_rate(self, precision: str) -> float:
        """Return float operations in a second of a large product."""

    def launch_seconds(self) -> tuple[float, float]:
        """Return what the host takes to launch a captured graph, and what the graph takes for each of its kernels."""

    def seconds(self, run: Run) -> float:
        """Run a model once; return what passes on its stream between the events before and behind it."""


class CupyCard:
    """The GPU through CuPy, timed by events on the device."""

    def __init__(self) -> None:
        import cupy  # what this file measures needs it; its helpers do not

        self._cupy = cupy

    def facts(self) -> dict[str, Any]:  # Any: as above
        """Return name, driver and runtime."""
        runtime = self._cupy.cuda.runtime
        return {
            "name": runtime.getDeviceProperties(0)["name"].decode(), "driver": runtime.driverGetVersion(),
            "runtime": runtime.runtimeGetVersion(), "cupy": self._cupy.__version__,
        }  # fmt: skip

    def copy_rate(self) -> float:
        """Copy a gigabyte."""
        source = self._cupy.zeros(COPIED_NBYTES, self._cupy.uint8)
        target = self._cupy.empty_like(source)
        return 2 * COPIED_NBYTES / self._seconds(lambda: self._cupy.copyto(target, source))

    def product_rate(self, precision: str) -> float:
        """Multiply two square matrices."""
        cupy, size = self._cupy, PRODUCT_SIZE
        a = cupy.ones((size, size), cupy.float16 if precision == "float16" else cupy.float32)
        cublas = cupy.cuda.cublas
        mode = cublas.CUBLAS_TF32_TENSOR_OP_MATH if precision == "tf32" else cublas.CUBLAS_DEFAULT_MATH
        handle = cupy.cuda.get_cublas_handle()
        cublas.setMathMode(handle, mode)
        try:
            return 2 * size**3 / self._seconds(lambda: cupy.matmul(a, a))
        finally:
            cublas.setMathMode(handle, cublas.CUBLAS_DEFAULT_MATH)

    def launch_seconds(self) -> tuple[float, float]:
        """Capture kernels of one block, and replay them."""
        cupy = self._cupy
        stream, data = cupy.cuda.Stream(non_blocking=True), cupy.zeros(32, cupy.float32)
        with stream:
            cupy.add(data, 1, out=data)  # compiled before it is captured
            stream.synchronize()
            stream.begin_capture()
            for _ in range(LAUNCHED_KERNELS):
                cupy.add(data, 1, out=data)
            graph = stream.end_capture()
            graph.launch(stream)
            stream.synchronize()
            start = time.perf_counter()
            for _ in range(TIMED_RUNS):
                graph.launch(stream)
            enqueued = time.perf_counter() - start
            stream.synchronize()
            whole = time.perf_counter() - start
        return enqueued / TIMED_RUNS, whole / TIMED_RUNS / LAUNCHED_KERNELS

    def seconds(self, run: Run) -> float:
        """Time by events on the model's own stream."""
        stream = self._cupy.cuda.ExternalStream(run.stream)
        first, last = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        first.record(stream)
        run.call()
        last.record(stream)
        last.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(first, last)) / 1e3

    def _seconds(self, work: Callable[[], object]) -> float:
        work()
        first, last = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        first.record()
        for _ in range(TIMED_RUNS):
            work()
        last.record()
        last.synchronize()
        return self._cupy.cuda.get_elapsed_time(first, last) / 1e3 / TIMED_RUNS


class Engine(abc.ABC):
    """One engine."""

    name: ClassVar[str]

    @classmethod
    @abc.abstractmethod
    def load(cls, workload: Workload, batch: int, precision: str) -> Run:
        """Load a model; ``EngineError`` when this engine cannot run it."""


def feeds_of(workload: Workload, batch: int) -> dict[str, np.ndarray]:
    """Return inputs of a model for a batch, the same for every engine: small numbers, and ones for integers."""
    sizes = {**workload.dims, "batch": batch}
    generator = np.random.default_rng(7)
    feeds = {}
    for value in onnx.load(workload.path, load_external_data=False).graph.input:
        tensor = value.type.tensor_type
        shape = [dim.dim_value or sizes.get(dim.dim_param, 1) for dim in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        drawn = generator.standard_normal(shape) if dtype.kind == "f" else np.ones(shape)
        feeds[value.name] = drawn.astype(dtype)
    return feeds


def _bound_run(module: Any, workload: Workload, batch: int, options: dict[str, str]) -> Run:
    """Return a run with bindings on the device, by ort-core or onnxruntime: they have one API."""
    stream = _new_stream()
    options = {**options, "has_user_compute_stream": "1", "user_compute_stream": str(int(stream.ptr))}
    try:
        providers = [("CUDAExecutionProvider", options), "CPUExecutionProvider"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a provider that is absent: asked in the next line
            session = module.InferenceSession(str(workload.path), providers=providers)
        if session.get_providers()[0] != "CUDAExecutionProvider":
            raise EngineError("the CUDA provider of this engine is not available here")
        bound = session.io_binding()
        for name, array in feeds_of(workload, batch).items():
            bound.bind_ortvalue_input(name, module.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
        for output in session.get_outputs():
            bound.bind_output(output.name, "cuda", 0)
    except (RuntimeError, ValueError) as error:
        raise EngineError(f"{type(error).__name__}: {str(error).splitlines()[0]}") from error

    def call() -> None:
        session.run_with_iobinding(bound)
        bound.synchronize_outputs()

    return Run(call, int(stream.ptr), stream)


def _new_stream() -> Any:  # Any: of CuPy
    """Return a stream that does not wait for the default one."""
    if importlib.util.find_spec("cupy") is None:
        raise EngineError("cupy is not installed")
    import cupy

    if not cupy.cuda.is_available():
        raise EngineError("CuPy sees no GPU")
    return cupy.cuda.Stream(non_blocking=True)


class OrtCore(Engine):
    """This project."""

    name = "ort-core"

    @classmethod
    def load(cls, workload: Workload, batch: int, precision: str) -> Run:
        """Load with captured graphs, as by default."""
        return _bound_run(ort_core, workload, batch, {"use_tf32": str(int(precision == "tf32"))})


class Onnxruntime(Engine):
    """onnxruntime's CUDA provider, in a build that has it."""

    name = "onnxruntime"

    @classmethod
    def load(cls, workload: Workload, batch: int, precision: str) -> Run:
        """Load with captured graphs where the model allows them."""
        if importlib.util.find_spec("onnxruntime") is None:
            raise EngineError("onnxruntime is not installed")
        import onnxruntime

        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            raise EngineError("this build of onnxruntime has no CUDA provider; pip install onnxruntime-gpu")
        return _bound_run(onnxruntime, workload, batch, {"use_tf32": str(int(precision == "tf32"))})


class Eager(Engine):
    """PyTorch, operator by operator."""

    name = "torch"
    is_compiled: ClassVar[bool] = False

    @classmethod
    def load(cls, workload: Workload, batch: int, precision: str) -> Run:
        """Convert the model to a module, and hold its inputs on the device."""
        for package in ("torch", "onnx2torch"):
            if importlib.util.find_spec(package) is None:
                raise EngineError(f"{package} is not installed")
        import onnx2torch
        import torch

        if not torch.cuda.is_available():
            raise EngineError("PyTorch sees no GPU")
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
        try:
            module = onnx2torch.convert(str(workload.path)).eval().cuda()
        except (NotImplementedError, RuntimeError, ValueError) as error:
            raise EngineError(f"onnx2torch does not convert it: {str(error).splitlines()[0]}") from error
        module = torch.compile(module, mode="max-autotune") if cls.is_compiled else module
        inputs = [torch.from_numpy(array).cuda() for array in feeds_of(workload, batch).values()]

        def call() -> None:
            with torch.inference_mode():
                module(*inputs)
            torch.cuda.synchronize()

        return Run(call, torch.cuda.current_stream().cuda_stream)


class CompiledTorch(Eager):
    """PyTorch by torch.compile, tuned as far as it goes."""

    name = "torch.compile"
    is_compiled = True


ENGINES: tuple[type[Engine], ...] = (OrtCore, Eager, CompiledTorch, Onnxruntime)
"""Ours first."""
