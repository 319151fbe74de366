"""What onnxruntime-genai tells of the machine, its log and its telemetry, under its names."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import cast

import numpy as np

import ort_core
from ort_core.errors import did_you_mean
from ort_genai.arguments import demand
from ort_genai.errors import InvalidGeneration, raised_as

log = logging.getLogger("ort_genai")
_SWITCHES = (
    "enabled", "ansi_tags", "warning", "generate_next_token", "append_next_tokens", "hit_eos", "hit_max_length",
    "model_input_values", "model_output_shapes", "model_output_values", "model_logits", "ort_lib", "value_stats",
    "append_tokens",
)  # fmt: skip
_TEXTS = ("filename",)


class _CallbackHandler(logging.Handler):
    def __init__(self, callback: Callable[[str, int], None]) -> None:
        super().__init__()
        self._callback = callback

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        self._callback(text, len(text))


class _LogState:
    """Handlers that were added to the package's logger; one a process, as the logger is."""

    def __init__(self) -> None:
        self.callback: logging.Handler | None = None
        self.file: logging.Handler | None = None


_log_state = _LogState()


def set_log_callback(callback: Callable[[str, int], None] | None) -> None:
    """Let a function have each line of the package's log, with its length; ``None`` ends that."""
    if callback is not None and not callable(callback):
        raise TypeError(f"set_log_callback() takes a function, not {type(callback).__name__}")
    if _log_state.callback is not None:
        log.removeHandler(_log_state.callback)
    _log_state.callback = None if callback is None else _CallbackHandler(callback)
    if _log_state.callback is not None:
        log.addHandler(_log_state.callback)


def set_log_options(**options: bool | str) -> None:
    """Let the package's log speak (``enabled``), into a file (``filename``); the library ``logging`` does the rest.

    The switches of onnxruntime-genai's kinds of lines are taken, to no effect.

    Raises:
        InvalidGeneration: there is no such option.
    """
    for name, value in options.items():
        known = _TEXTS if isinstance(value, str) else _SWITCHES if isinstance(value, bool) else ()
        if name not in known:
            hint = did_you_mean(name, [*_SWITCHES, *_TEXTS])
            raise InvalidGeneration(f"Unknown log option type, can be bool/string:{name}.{hint}")
    if "enabled" in options:
        log.setLevel(logging.DEBUG if options["enabled"] else logging.NOTSET)
    if "filename" in options:
        _log_to(str(options["filename"]))


def _log_to(path: str) -> None:
    if _log_state.file is not None:
        log.removeHandler(_log_state.file)
        _log_state.file.close()
    _log_state.file = logging.FileHandler(path, encoding="utf-8") if path else None
    if _log_state.file is not None:
        log.addHandler(_log_state.file)


def enable_telemetry_events() -> None:
    """Do nothing: this package sends nothing anywhere."""


def disable_telemetry_events() -> None:
    """Do nothing: this package sends nothing anywhere."""


def is_cuda_available() -> bool:
    """Return whether CUDA's provider can run here."""
    return _is_available("CUDAExecutionProvider")


def is_dml_available() -> bool:
    """Return whether DirectML's provider can run here."""
    return _is_available("DmlExecutionProvider")


def is_openvino_available() -> bool:
    """Return whether OpenVINO's provider can run here."""
    return _is_available("OpenVINOExecutionProvider")


def is_qnn_available() -> bool:
    """Return whether QNN's provider can run here."""
    return _is_available("QNNExecutionProvider")


def is_webgpu_available() -> bool:
    """Return whether WebGPU's provider can run here."""
    return _is_available("WebGpuExecutionProvider")


def _is_available(provider: str) -> bool:
    return provider in ort_core.get_available_providers()


class _DeviceState:
    """The GPU that new models use where their folder names none."""

    def __init__(self) -> None:
        self.number = 0


_device_state = _DeviceState()


def set_current_gpu_device_id(device_id: int) -> None:
    """Let models that are loaded from now on use this GPU, where their configuration names none.

    Raises:
        InvalidGeneration: the number is negative.
    """
    demand("set_current_gpu_device_id()", "device_id", device_id, int, np.integer)
    if device_id < 0:
        raise InvalidGeneration(f"device {device_id}; expected a number from 0 on")
    _device_state.number = int(device_id)


def get_current_gpu_device_id() -> int:
    """Return the GPU that new models use."""
    return _device_state.number


def register_execution_provider_library(registration_name: str, library_path: str) -> None:
    """Load a provider from a library.

    Raises:
        InvalidGeneration: it cannot be loaded: providers of ort-core are Python packages.
    """
    load = cast(Callable[[str, str], None], ort_core.register_execution_provider_library)
    with raised_as(InvalidGeneration):
        load(registration_name, library_path)


def unregister_execution_provider_library(registration_name: str) -> None:
    """Forget a provider that was loaded from a library.

    Raises:
        InvalidGeneration: there is none of this name.
    """
    forget = cast(Callable[[str], None], ort_core.unregister_execution_provider_library)
    with raised_as(InvalidGeneration):
        forget(registration_name)
