"""The plugin: what ort-core calls to learn of the provider and of CUDA devices. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ort_core.plugin import ExecutionProvider, hookimpl
from ort_core.plugin.devices import DeviceApi

ORT_PLUGIN_API = (2, 0)  # the version of the specification that this package was written for


@hookimpl
def ort_providers() -> list[type[ExecutionProvider]]:
    """Return the provider class."""
    from ort_ep_cuda.provider import CudaExecutionProvider

    return [CudaExecutionProvider]


@hookimpl
def ort_devices() -> Mapping[str, Callable[[int], DeviceApi]]:
    """Return what makes the DeviceApi of a CUDA device."""

    def cuda_device(index: int) -> DeviceApi:
        from ort_ep_cuda.device_api import CudaDeviceApi

        return CudaDeviceApi(index)

    return {"cuda": cuda_device}
