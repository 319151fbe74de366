"""The only module that imports NVIDIA's libraries: CuPy, its NVRTC and cuBLAS, and cuDNN's frontend."""

from __future__ import annotations

import functools
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from ort_core.plugin import Available, Unavailable

_INSTALL = "pip install ort-ep-cuda; with a driver for CUDA 12, ort-ep-cuda12 in its place"
_TOOLKIT = "pip install '{package}[toolkit]', or install the CUDA toolkit"
_EPILOGUES = "pip install nvmath-python, which {package} depends on"
_CUDNN = "pip install '{package}[cudnn]'"
_COMPILER_OPTIONS = (
    "-std=c++17", "-default-device",
    "-diag-suppress=177",  # variables that are declared and not read: the text of a loop is the same for all layouts
)  # fmt: skip
_PRODUCTS = frozenset({"MatMul", "Gemm", "Einsum", "Attention", "RNN", "GRU", "LSTM"})
CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
_FAILURES = (ImportError, OSError, RuntimeError)  # of loading a library, or of its first call


def cupy() -> Any:  # Any: CuPy has no types
    """Return CuPy."""
    import cupy  # here, and not above: loading it is for those who run on a GPU

    return cupy


def cupyx() -> Any:  # Any: as above
    """Return CuPy's extensions."""
    import cupyx

    return cupyx


def pinned(nbytes: int) -> np.ndarray:
    """Return page-locked bytes of the host."""
    return cupyx().empty_pinned(nbytes, np.uint8) if nbytes else np.zeros(0, np.uint8)


def cublas() -> Any:  # Any: as above
    """Return CuPy's binding of cuBLAS."""
    from cupy_backends.cuda.libs import cublas

    return cublas


def cudnn() -> Any:  # Any: as above
    """Return cuDNN's frontend."""
    import cudnn

    return cudnn


def new_cudnn_handle(owner: object) -> Any:  # Any: as above
    """Return a handle of cuDNN on the current device, destroyed with its owner, though not at the process's end.

    By then the driver may be gone.
    """
    library = cudnn()
    handle = library.create_handle()
    weakref.finalize(owner, library.destroy_handle, handle).atexit = False
    return handle


def cublas_lt() -> Any:  # Any: as above
    """Return nvmath-python's binding of cuBLASLt."""
    from nvmath.bindings import cublasLt

    return cublasLt


class _Handle:
    """A stream that somebody else made, as CUDA's protocol shows one: version, handle."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def adopted_stream(handle: int, device: int) -> Any:  # Any: as above
    """Return CuPy's stream over a ``cudaStream_t`` that the caller keeps alive; 0 is the default stream."""
    cuda = cupy().cuda
    if not handle:
        return cuda.Stream.null
    if hasattr(cuda.Stream, "from_external"):  # CuPy 14, where ExternalStream is deprecated
        return cuda.Stream.from_external(_Handle(handle))
    return cuda.ExternalStream(handle, device)


@functools.cache
def library_errors() -> tuple[type[Exception], ...]:
    """Return what the libraries that are installed raise for a call: some have errors of their own."""
    found: list[type[Exception]] = [RuntimeError, ValueError]  # ValueError: shapes that a library does not take
    for load, name in ((cublas_lt, "cuBLASLtError"), (cudnn, "cudnnGraphNotSupportedError")):
        try:
            found.append(getattr(load(), name))
        except (ImportError, OSError, RuntimeError, AttributeError):  # not there, or too old to have one
            continue
    return tuple(found)


def _remedy(text: str) -> str:
    """Return what to install, of the package that is installed: that for CUDA 12 has a name of its own."""
    from importlib import metadata  # here: a process that has all it needs loads none of it

    try:
        metadata.distribution("ort-ep-cuda12")
    except metadata.PackageNotFoundError:
        return text.format(package="ort-ep-cuda")
    return text.format(package="ort-ep-cuda12")


def find_device() -> Available | Unavailable:
    """Return the GPU that CuPy sees, or why there is none and what would help. Never raises."""
    try:
        library = cupy()
    except _FAILURES as error:
        return Unavailable(f"CuPy cannot be loaded: {error}", _INSTALL)
    runtime = library.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except RuntimeError as error:
        return _explained(runtime, error)
    if not count:
        return Unavailable("the driver sees no GPU", "make one visible: CUDA_VISIBLE_DEVICES may hide it")
    compiler = find_compiler()
    if isinstance(compiler, Unavailable):
        return compiler
    states = [find_gpu(index) for index in range(count)]
    if not any(states):
        return states[0]
    index = next(index for index, state in enumerate(states) if state)
    properties = runtime.getDeviceProperties(index)
    name, memory = properties["name"].decode(), properties["totalGlobalMem"] / 2**30
    return Available(
        f"{name}, {memory:.1f} GiB of memory; driver for CUDA {_version(runtime.driverGetVersion())}, "
        f"runtime {_version(runtime.runtimeGetVersion())}, {compiler.detail}, "
        f"CuPy {library.__version__}, {_fusions()}; {count} device(s)"
    )


def find_gpu(index: int) -> Available | Unavailable:
    """Return whether the GPU of a number is there, and of an architecture that the installed NVRTC compiles for."""
    library = cupy()
    runtime = library.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except RuntimeError as error:
        return _explained(runtime, error)
    if index >= count:
        return Unavailable(f"there is no GPU {index}: the driver sees {count}", "device_id counts from 0")
    properties = runtime.getDeviceProperties(index)
    own = properties["major"] * 10 + properties["minor"]
    compiled = _architectures(library)
    if not compiled or own in compiled:
        return Available()
    what = f"GPU {index} ({properties['name'].decode()}) is of sm_{own}, and NVRTC {nvrtc_version()} compiles for sm_"
    if own < min(compiled):
        return Unavailable(f"{what}{min(compiled)} and newer", "install ort-ep-cuda12 in place of ort-ep-cuda")
    return Unavailable(f"{what}{max(compiled)} at the latest", "update CuPy and NVRTC")


def _architectures(library: Any) -> tuple[int, ...]:  # Any: as above
    """Return what NVRTC compiles for (90: sm_90), nothing where the installed CuPy cannot tell."""
    supported = getattr(library.cuda.nvrtc, "getSupportedArchs", None)
    return () if supported is None else tuple(int(each) for each in supported())


def find_compiler() -> Available | Unavailable:
    """Return whether NVRTC can be loaded; it compiles where there is no device, too."""
    try:
        return Available(f"NVRTC {nvrtc_version()}")
    except _FAILURES as error:
        return Unavailable(
            f"NVRTC, which compiles kernels, cannot be loaded: {str(error).splitlines()[0]}", _remedy(_TOOLKIT)
        )


def _fusions() -> str:
    """Say by which libraries products and convolutions run, and why not by those that would be faster."""
    products, convolutions = find_cublas_lt(), find_cudnn()
    told = [products.detail if isinstance(products, Available) else f"products without fused epilogues: {products}"]
    told.append(convolutions.detail if isinstance(convolutions, Available) else f"no convolutions: {convolutions}")
    return ", ".join(told)


def _explained(runtime: Any, error: RuntimeError) -> Unavailable:  # Any: CuPy has no types
    """Say what a failure to count devices means: no driver, one that is too old, or something else."""
    try:
        driver, wanted = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    except RuntimeError:
        driver, wanted = 0, 0
    if not driver:
        return Unavailable("there is no NVIDIA driver on this machine", "install the driver of your GPU")
    if driver // 1000 < wanted // 1000:
        remedy = (
            "update the driver, or install ort-ep-cuda12 in place of ort-ep-cuda"
            if wanted >= 13000
            else "update the driver"
        )
        return Unavailable(
            f"the driver supports CUDA {_version(driver)}, older than CUDA {_version(wanted)} of the installed CuPy",
            remedy,
        )
    return Unavailable(f"the driver reports: {error}", "nvidia-smi shows the state of driver and devices")


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def find_library(op_type: str) -> Available | Unavailable:
    """Return whether the library that an operator needs is there; operators of generated kernels need none."""
    if op_type in _PRODUCTS:
        return find_cublas()
    return find_cudnn() if op_type in CONVOLUTIONS else Available()


@functools.cache
def find_cublas() -> Available | Unavailable:
    """Return whether cuBLAS can be loaded."""
    try:
        cublas()
    except _FAILURES as error:
        return Unavailable(f"cuBLAS cannot be loaded: {str(error).splitlines()[0]}", _remedy(_TOOLKIT))
    return Available("cuBLAS")


@functools.cache
def find_cudnn() -> Available | Unavailable:
    """Return whether cuDNN and its frontend can be loaded."""
    try:
        version = cudnn().backend_version()
    except _FAILURES as error:
        return Unavailable(f"cuDNN cannot be loaded: {str(error).splitlines()[0]}", _remedy(_CUDNN))
    return Available(f"cuDNN {version}")


@functools.cache
def find_cublas_lt() -> Available | Unavailable:
    """Return whether cuBLASLt can be used: nvmath-python binds it."""
    try:
        version = cublas_lt().get_version()
    except _FAILURES as error:
        return Unavailable(f"cuBLASLt cannot be used: {str(error).splitlines()[0]}", _remedy(_EPILOGUES))
    return Available(f"cuBLASLt {version}")


@dataclass(frozen=True, slots=True)
class Compiled:
    """Machine code, and what the compiler said of it."""

    code: bytes
    log: str


def compile_cubin(source: str, architecture: str, *options: str) -> Compiled:
    """Compile CUDA C++ to machine code of one architecture (``sm_90``); never to PTX, which older drivers may reject.

    Args:
        source: the text.
        architecture: whose machine code.
        options: more options of NVRTC; ``--ptxas-options=-v`` lets the log tell registers and spills.

    Raises:
        RuntimeError: the source does not compile; the message has the compiler's words.
    """
    nvrtc = cupy().cuda.nvrtc
    program = nvrtc.createProgram(source, "ort_ep_cuda.cu", (), ())
    try:
        nvrtc.compileProgram(program, (f"-arch={architecture}", *_COMPILER_OPTIONS, *options))
        return Compiled(bytes(nvrtc.getCUBIN(program)), str(nvrtc.getProgramLog(program)))
    except nvrtc.NVRTCError as error:
        raise RuntimeError(f"NVRTC does not compile a kernel: {nvrtc.getProgramLog(program)}") from error
    finally:
        nvrtc.destroyProgram(program)


def machine_code(source: str, architecture: str, *options: str) -> bytes:
    """Return what ``compile_cubin`` makes, without the compiler's words."""
    return compile_cubin(source, architecture, *options).code


def nvrtc_version() -> str:
    """Return the compiler's version."""
    major, minor = cupy().cuda.nvrtc.getVersion()
    return f"{major}.{minor}"
