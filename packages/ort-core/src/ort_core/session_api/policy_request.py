"""Requests by policy: the kind of device that is preferred, or a delegate that chooses devices, names the providers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ort_core.errors import DelegateFailed
from ort_core.interruptions import raise_interruption
from ort_core.options import OrtExecutionProviderDevicePolicy, SessionOptions
from ort_core.session_api.devices import OrtEpDevice, ep_devices
from ort_core.tensors.memory_facts import OrtHardwareDeviceType

if TYPE_CHECKING:
    from ort_core.environment import Environment
    from ort_core.session_api.provider_request import Request

MAX_SELECTIONS = 8  # how many devices onnxruntime lets a delegate choose

_PREFERRED = {
    OrtExecutionProviderDevicePolicy.PREFER_CPU: OrtHardwareDeviceType.CPU,
    OrtExecutionProviderDevicePolicy.PREFER_NPU: OrtHardwareDeviceType.NPU,
    OrtExecutionProviderDevicePolicy.PREFER_GPU: OrtHardwareDeviceType.GPU,
    OrtExecutionProviderDevicePolicy.MAX_EFFICIENCY: OrtHardwareDeviceType.NPU,
    OrtExecutionProviderDevicePolicy.MIN_OVERALL_POWER: OrtHardwareDeviceType.NPU,
}


def _asked(
    delegate: Callable[..., Iterable[object]], devices: list[OrtEpDevice], metadata: Mapping[str, str]
) -> list[object]:
    """Return what a delegate returns."""
    try:
        return list(delegate(devices, dict(metadata), {}, MAX_SELECTIONS))
    except Exception as error:  # a function of the caller
        raise_interruption(error)
        raise DelegateFailed(f"EP selection delegate failed: {type(error).__name__}: {error}") from error


def request_by_policy(options: SessionOptions, environment: Environment, metadata: Mapping[str, str]) -> Request:
    """Return the providers of the devices that the options' policy prefers, or that its delegate chooses.

    Raises:
        DelegateFailed: a delegate failed, or returned what is none of the devices that it was given, or nothing.
    """
    devices = ep_devices(environment)
    policy = options.provider_policy
    if callable(policy):
        returned = _asked(policy, devices, metadata)
        chosen = [device for device in returned if isinstance(device, OrtEpDevice)]
        if not chosen or len(chosen) < len(returned):
            raise DelegateFailed(
                "EP selection delegate did not select anything. " * (not returned)
                + f"The delegate returned {returned!r}, expected some of the given OrtEpDevices"
            )
        return [(name, {}) for name in dict.fromkeys(device.ep_name for device in chosen)]
    preferred = _PREFERRED.get(policy)  # type: ignore[arg-type]  # a policy: the other form is callable
    ordered = (
        sorted(devices, key=lambda device: device.device.type is not preferred) if preferred is not None else devices
    )
    if preferred is not None and not any(device.device.type is preferred for device in devices):
        names = ", ".join(dict.fromkeys(device.ep_name for device in devices))
        warnings.warn(
            f"the policy {policy!r} prefers {preferred.name}, but no provider here runs on one; using {names}",
            stacklevel=5,
        )
    return [(name, {}) for name in dict.fromkeys(device.ep_name for device in ordered)]
