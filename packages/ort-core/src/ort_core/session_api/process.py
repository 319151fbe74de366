"""What concerns the whole process: logging, the seed, providers and devices at hand, and onnxruntime's other functions.

Functions of onnxruntime that mean nothing here do nothing and say so, or refuse with the reason.
"""

from __future__ import annotations

import logging
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import cast

from ort_core.arguments import a_path, an, or_none, strings, takes, text, whole
from ort_core.environment import default_environment
from ort_core.ep_context.nodes import compatibility_text
from ort_core.errors import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    InvalidValue,
    NoSuchFile,
    UnsupportedLibrary,
)  # fmt: skip
from ort_core.options import OrtCompiledModelCompatibility, OrtDeviceEpIncompatibilityReason
from ort_core.session_api import devices
from ort_core.session_api.devices import OrtEpDevice, OrtHardwareDevice
from ort_core.settings import IN_TURN, KNOWN_PROVIDERS
from ort_core.tensors.memory_facts import OrtArenaCfg, OrtHardwareDeviceType, OrtMemoryInfo

log = logging.getLogger("ort_core")
SEVERITIES = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
_ARENA_ONLY = "memory is planned per device and run; there is no allocator to register"


@takes(severity=whole)
def set_default_logger_severity(severity: int, /) -> None:
    """Set what the logger ``ort_core`` lets through: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal."""
    if not 0 <= severity < len(SEVERITIES):
        raise InvalidValue(f"Invalid logging severity {severity}. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal")
    log.setLevel(SEVERITIES[severity])


@takes(verbosity=whole)
def set_default_logger_verbosity(verbosity: int, /) -> None:
    """Accept onnxruntime's detail of verbose lines: above 0, the logger ``ort_core`` lets everything through."""
    if verbosity > 0 and log.level == logging.DEBUG:
        log.setLevel(1)


@takes(seed=whole)
def set_seed(seed: int, /) -> None:
    """Fix the random numbers of sessions that are made from now on."""
    default_environment().seed = seed


def get_available_providers() -> list[str]:
    """Return the providers that can run here, most preferred first; sessions that name none use only some of them."""
    return default_environment().available_providers()


def get_all_providers() -> list[str]:
    """Return every provider name that onnxruntime knows or a plugin brings, most preferred first."""
    installed = [name for name in default_environment().provider_classes() if name not in KNOWN_PROVIDERS]
    return [*KNOWN_PROVIDERS[:-1], *installed, KNOWN_PROVIDERS[-1]]


def get_ep_devices() -> list[OrtEpDevice]:
    """Return every available provider with its hardware."""
    return devices.ep_devices(default_environment())


def get_hardware_devices() -> list[OrtHardwareDevice]:
    """Return the hardware that available providers run on."""
    return devices.hardware_devices(default_environment())


def get_device() -> str:
    """Return the kind of the best device in one word: ``CPU``, ``GPU`` or ``NPU``."""
    found = get_ep_devices()
    return found[0].device.type.name if found else OrtHardwareDeviceType.CPU.name


def get_version_string() -> str:
    """Return the version of ort-core."""
    from ort_core import __version__

    return __version__


def get_build_info() -> str:
    """Return what this is and what it runs on, in one line that programs of onnxruntime know by its first words."""
    machine = f"{sys.platform} {platform.machine()}"
    return f"ORT Build Info: ort-core {get_version_string()}, Python {platform.python_version()}, {machine}"


def has_collective_ops() -> bool:
    """Return False: operators across processes are not part of ort-core."""
    return False


def set_global_thread_pool_sizes(intra_op_num_threads: int = 0, inter_op_num_threads: int = 0) -> None:
    """Check the numbers and keep the first for sessions that leave theirs at 0; the second has no effect."""
    for name, value in (("intra_op_num_threads", intra_op_num_threads), ("inter_op_num_threads", inter_op_num_threads)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidValue(f"{name} is {value!r}, expected an integer from 0")
    default_environment().intra_op_num_threads = intra_op_num_threads
    if inter_op_num_threads:
        log.info("inter_op_num_threads has no effect here: %s", IN_TURN)


def enable_telemetry_events() -> None:
    """Do nothing: ort-core sends nothing anywhere, and cannot be told to."""


def disable_telemetry_events() -> None:
    """Do nothing: there is no telemetry."""


@takes(memory_info=an(OrtMemoryInfo), arena_cfg=or_none(an(OrtArenaCfg)))
def create_and_register_allocator(memory_info: OrtMemoryInfo, arena_cfg: OrtArenaCfg | None = None, /) -> None:
    """Check the arguments; they have no effect."""
    log.info("create_and_register_allocator has no effect: %s", _ARENA_ONLY)


@takes(provider=text, options=strings)
def create_and_register_allocator_v2(
    provider: str, memory_info: OrtMemoryInfo, options: Mapping[str, str], arena_cfg: OrtArenaCfg | None = None, /
) -> None:
    """Check the arguments; they have no effect."""
    create_and_register_allocator(memory_info, arena_cfg)


@takes(registration_name=text, path=a_path)
def register_execution_provider_library(registration_name: str, path: str, /) -> None:
    """Refuse: providers are Python packages here.

    Raises:
        Fail: always.
    """
    raise UnsupportedLibrary(
        f"Failed to load library {path}: execution providers are not loaded from shared libraries (registration name "
        f"{registration_name!r}). Install the plugin package of your hardware with pip; it is found by itself. "
        "`ort providers` lists what is installed."
    )


@takes(registration_name=text)
def unregister_execution_provider_library(registration_name: str, /) -> None:
    """Refuse: nothing was registered. Raises ``Fail`` always."""
    raise Fail(
        f"Execution provider library: {registration_name} was not registered. Providers are Python packages here; "
        "uninstall the package to get rid of one"
    )


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None) -> None:
    """Do nothing: each plugin package finds its own libraries."""


def print_debug_info() -> None:
    """Log what is installed and what each provider says about this machine (level info; ``ort doctor`` prints it)."""
    environment = default_environment()
    log.info("%s", get_build_info())
    for name in environment.provider_classes():
        log.info("%s: %s", name, environment.check(name))


def get_hardware_device_ep_incompatibility_details(
    ep_name: str, hardware: OrtHardwareDevice, /
) -> dict[str, int | str | None]:
    """Return why a provider cannot run on a piece of hardware: ``reasons_bitmask`` is 0 where it can.

    Raises:
        InvalidArgument: no provider has the name.
    """
    environment = default_environment()
    if ep_name not in environment.provider_classes():
        known = ", ".join(environment.provider_classes())
        raise InvalidArgument(f"No valid factory found for execution provider '{ep_name}'. Installed: {known}")
    runs = any(each.ep_name == ep_name and each.device == hardware for each in get_ep_devices())
    reason = OrtDeviceEpIncompatibilityReason.NONE if runs else OrtDeviceEpIncompatibilityReason.DEVICE_INCOMPATIBLE
    notes = None if runs else f"{ep_name} runs on no {hardware.type.name} of this machine: {environment.check(ep_name)}"
    return {"reasons_bitmask": reason.value, "notes": notes, "error_code": 0}


@takes(compatibility_info=text)
def get_model_compatibility_for_ep_devices(
    ep_devices: Sequence[OrtEpDevice], compatibility_info: str, /
) -> OrtCompiledModelCompatibility:
    """Return whether what a compiled model says (``get_compatibility_info_from_model``) fits a device's provider.

    It fits exactly or not at all. Providers are taken with their default options.

    Raises:
        InvalidValue: there are no devices.
    """
    if not ep_devices:
        raise InvalidValue("Invalid argument provided to GetModelCompatibilityForEpDevices: there are no devices")
    environment = default_environment()
    for name in dict.fromkeys(device.ep_name for device in ep_devices):
        if not compatibility_info.startswith("ort-core ") or f"|{name}|" not in compatibility_info:
            continue
        fits = compatibility_info == compatibility_text(environment.get_provider(name)({}).cache_key())
        return (
            OrtCompiledModelCompatibility.EP_SUPPORTED_OPTIMAL if fits else OrtCompiledModelCompatibility.EP_UNSUPPORTED
        )
    return OrtCompiledModelCompatibility.EP_NOT_APPLICABLE


def get_compatibility_info_from_model(path: str, ep_type: str, /) -> str | None:
    """Return what a compiled model says about the provider it was compiled for, ``None`` when it says nothing.

    Raises:
        InvalidValue: the model or the name of the provider is empty, or the model cannot be read.
    """
    if not path or not ep_type:
        raise InvalidValue("Invalid argument provided to GetCompatibilityInfoFromModel: the model or the name is empty")
    from ort_core.onnx_io.load import load_model

    try:
        return load_model(path).metadata.get(f"ep_compatibility_info.{ep_type}")
    except (Fail, NoSuchFile, InvalidProtobuf, InvalidGraph) as error:
        raise InvalidValue(f"the model cannot be read: {Exception.__str__(error)}") from error


def get_compatibility_info_from_model_bytes(content: bytes, ep_type: str, /) -> str | None:
    """Return as ``get_compatibility_info_from_model``, from bytes."""
    return get_compatibility_info_from_model(cast(str, content), ep_type)
