"""The only module that imports TensorRT or TensorRT-RTX: which of them is there, its loggers and allocators.

Both have one API but for a few names; ``Sdk`` is what the rest of the package knows of either. Types of the SDK are
``Any`` here: its stubs do not cover both.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Literal

from ort_core.plugin import Available, Unavailable
from ort_ep_tensorrt.recording import ListenersState, RecordState, SdkError

Kind = Literal["tensorrt", "tensorrt_rtx"]
TITLES: dict[Kind, str] = {"tensorrt": "TensorRT", "tensorrt_rtx": "TensorRT-RTX"}
OTHER: dict[Kind, Kind] = {"tensorrt": "tensorrt_rtx", "tensorrt_rtx": "tensorrt"}
OLDEST = {"tensorrt": (10, 13), "tensorrt_rtx": (1, 2)}  # the first whose parsers read weights in place
_INSTALL = {
    "tensorrt": "pip install ort-ep-tensorrt[tensorrt]; its libraries come from NVIDIA's own index",
    "tensorrt_rtx": "pip install ort-ep-tensorrt[rtx]",
}
_NO_DEVICE = ("cudaError", "CUDA initialization failure", "CUDA error")


class Sdk:
    """One of the two SDKs.

    Args:
        module: the imported package.
        kind: which one it is.
    """

    def __init__(self, module: Any, kind: Kind) -> None:
        self.module, self.kind = module, kind

    @property
    def version(self) -> str:
        """Name and full version."""
        return f"{TITLES[self.kind]} {self.module.__version__}"

    @property
    def is_rtx(self) -> bool:
        """Whether engines are finished on the GPU, when they are loaded."""
        return self.kind == "tensorrt_rtx"

    def logger(self, record: RecordState) -> Any:
        """Return the SDK's logger; what it says to this thread from now on goes to ``record``.

        There is one for each SDK and process, because the SDK keeps the first that it is given and ignores all others.
        """
        found = _logger_of(self.module)
        found.listeners.add(record)
        found.listeners.listen(record)
        return found

    def listen(self, record: RecordState) -> None:
        """Let what the SDK says to this thread go to a record that has a logger already."""
        _logger_of(self.module).listeners.listen(record)

    def load_plugins(self, paths: tuple[str, ...]) -> None:
        """Load TensorRT's own plugins, and libraries with more of them; each once in a process.

        Raises:
            SdkError: a library does not load.
        """
        record = RecordState()
        logger = self.logger(record)
        if not self.is_rtx:  # which has none
            record.expect(_own_plugins(self.module, logger), "load its own plugins")
        for path in paths:
            record.expect(_plugin_library(self.module, path), f"load the plugins of {path!r}")

    def output_allocator(
        self, allocate: Callable[[str, int], int], note: Callable[[str, tuple[int, ...]], None]
    ) -> Any:
        """Return an allocator of outputs whose shapes are only known when they are computed.

        Args:
            allocate: returns the address of that many bytes for an output; must not raise.
            note: is told an output's final shape.
        """
        return _allocator_type(self.module)(allocate, note)


def load_sdk(kind: Kind) -> Sdk | Unavailable:
    """Return an installed SDK, or why there is none. Never raises."""
    try:
        module = importlib.import_module(kind)
    except (ImportError, OSError, RuntimeError) as error:  # OSError: libraries that its bindings do not find
        return Unavailable(f"{TITLES[kind]} cannot be loaded: {error}", _INSTALL[kind])
    found = tuple(int(part) for part in str(module.__version__).split(".")[:2])
    if found < OLDEST[kind]:
        oldest = ".".join(map(str, OLDEST[kind]))
        return Unavailable(
            f"{TITLES[kind]} {module.__version__} is too old, expected {oldest} or newer", _INSTALL[kind]
        )
    return Sdk(module, kind)


def find_device(kind: Kind) -> Available | Unavailable:
    """Return whether engines of an SDK can be loaded here, and if not, why. Never raises."""
    sdk = load_sdk(kind)
    return sdk if isinstance(sdk, Unavailable) else device_of(sdk)


def device_of(sdk: Sdk) -> Available | Unavailable:
    """Ask an SDK to load an engine that is none: without a driver it says that before it says what is wrong with it."""
    record = RecordState()
    try:
        runtime = sdk.module.Runtime(sdk.logger(record))
        runtime.deserialize_cuda_engine(b"no engine")
    except (RuntimeError, TypeError) as error:  # pybind11's answer to a constructor that failed
        record.note(str(error), is_error=True)
    said = [part for part in record.take().split("; ") if any(sign in part for sign in _NO_DEVICE)]
    if said:
        return Unavailable(
            f"{sdk.version} finds no usable GPU: {said[0]}", "run on a machine with an NVIDIA GPU and its driver"
        )
    return Available(sdk.version)


@functools.cache
def _own_plugins(module: Any, logger: Any) -> bool:
    return bool(module.init_libnvinfer_plugins(logger, ""))


@functools.cache
def _plugin_library(module: Any, path: str) -> Any:
    try:
        return module.get_plugin_registry().load_library(path)
    except (RuntimeError, TypeError, ValueError) as error:  # pybind11's: the library is not one of plugins
        raise SdkError(f"load the plugins of {path!r}", str(error)) from error


@functools.cache
def _logger_of(module: Any) -> Any:
    severities = module.ILogger.Severity

    class RecordingLogger(module.ILogger):  # type: ignore[misc]  # a base known at run time
        """Hands warnings and errors to the record of the thread that they were said to."""

        def __init__(self) -> None:
            module.ILogger.__init__(self)
            self.listeners = ListenersState()

        def log(self, severity: Any, text: str) -> None:
            """Keep what may explain a failure."""
            if severity in (severities.INTERNAL_ERROR, severities.ERROR, severities.WARNING):
                self.listeners.note(text, is_error=severity != severities.WARNING)

    return RecordingLogger()


@functools.cache
def _allocator_type(module: Any) -> type:
    class OutputAllocator(module.IOutputAllocator):  # type: ignore[misc]  # a base known at run time
        """Takes memory when a size is known."""

        def __init__(self, allocate: Callable[[str, int], int], note: Callable[[str, tuple[int, ...]], None]) -> None:
            module.IOutputAllocator.__init__(self)
            self._allocate, self._note = allocate, note

        def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
            """Return an address for ``size`` bytes; 0 says that there is not enough memory."""
            return self._allocate(tensor_name, size)

        def reallocate_output_async(self, tensor_name: str, memory: int, size: int, alignment: int, stream: int) -> int:
            """As above: the memory is nobody else's, so no order on the stream is needed."""
            return self._allocate(tensor_name, size)

        def notify_shape(self, tensor_name: str, shape: Any) -> None:
            """Take note of the shape."""
            self._note(tensor_name, tuple(int(size) for size in shape))

    return OutputAllocator
