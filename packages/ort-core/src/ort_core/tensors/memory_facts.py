"""The facts that onnxruntime's API states about memory and devices: numbers with names, and what a value lies in.

Hardly any session asks for them, so nothing that a load imports does.
"""

from __future__ import annotations

import enum

from ort_core.arguments import an, size, takes, text, whole
from ort_core.errors import InvalidType, InvalidValue
from ort_core.frozen import frozen
from ort_core.options.choices import Choice
from ort_core.tensors.device import Device


class OrtDeviceVendorId(enum.IntEnum):
    """PCI vendor numbers; shown as numbers, as onnxruntime's, which is Python's own enumeration, too."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


class OrtAllocatorType(Choice):
    """How an allocator works."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(Choice):
    """What memory is used for."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceMemoryType(Choice):
    """Whether the host may read memory of a device directly."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtMemoryInfoDeviceType(Choice):
    """Kinds of devices that have memory."""

    CPU = 0
    GPU = 1
    FPGA = 2
    NPU = 3


class OrtHardwareDeviceType(Choice):
    """Kinds of hardware."""

    CPU = 0
    GPU = 1
    NPU = 2


class ArenaExtendStrategy(Choice):
    """How an arena grows."""

    kNextPowerOfTwo = 0  # noqa: N815 - onnxruntime's name
    kSameAsRequested = 1  # noqa: N815 - onnxruntime's name


@frozen
class OrtMemoryInfo:
    """Facts about the memory where a value lies or is wanted."""

    name: str
    allocator_type: OrtAllocatorType = OrtAllocatorType.ORT_DEVICE_ALLOCATOR
    device_id: int = 0
    mem_type: OrtMemType = OrtMemType.DEFAULT
    device_mem_type: OrtDeviceMemoryType = OrtDeviceMemoryType.DEFAULT
    device_vendor_id: int = 0

    def __post_init__(self) -> None:
        text(self.name, "OrtMemoryInfo: name")
        an(OrtAllocatorType)(self.allocator_type, "OrtMemoryInfo: allocator_type")
        whole(self.device_id, "OrtMemoryInfo: device_id")
        an(OrtMemType)(self.mem_type, "OrtMemoryInfo: mem_type")

    @staticmethod
    @takes(
        device_type=an(OrtMemoryInfoDeviceType), vendor_id=size, device_id=whole,
        device_mem_type=an(OrtDeviceMemoryType), alignment=size,
    )  # fmt: skip
    def create_v2(
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        device_mem_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
        /,
    ) -> OrtMemoryInfo:
        """Return memory facts with a vendor (``device_type`` and ``alignment`` are accepted and say nothing more)."""
        return OrtMemoryInfo(name, allocator_type, device_id, OrtMemType.DEFAULT, device_mem_type, vendor_id)

    @property
    def device(self) -> Device:
        """The device that the name means."""
        return Device("cpu" if self.name.lower().startswith("cpu") else self.name.lower(), self.device_id)


class OrtArenaCfg:
    """How an arena grows, as onnxruntime takes it: five numbers, or a mapping with their names."""

    _NAMES = (
        "max_mem", "arena_extend_strategy", "initial_chunk_size_bytes", "max_dead_bytes_per_chunk",
        "initial_growth_chunk_size_bytes", "max_power_of_two_extend_bytes",
    )  # fmt: skip

    def __init__(self, *numbers: int | dict[str, int]) -> None:
        if len(numbers) == 1 and isinstance(numbers[0], dict):
            given = {name: whole(number, f"OrtArenaCfg: {name}") for name, number in numbers[0].items()}
        elif len(numbers) in (0, 1, 4, len(self._NAMES)) and not any(isinstance(n, dict) for n in numbers):
            given = {name: whole(n, f"OrtArenaCfg: {name}") for name, n in zip(self._NAMES, numbers, strict=False)}
        else:
            raise InvalidType(f"OrtArenaCfg takes a mapping, or four numbers; found {numbers!r}")
        unknown = sorted(set(given) - set(self._NAMES))
        if unknown:
            raise InvalidValue(f"Invalid OrtArenaCfg option: {unknown[0]}; known: {', '.join(self._NAMES)}")
        self.max_mem = given.get("max_mem", 0)
        self.arena_extend_strategy = given.get("arena_extend_strategy", -1)
        self.initial_chunk_size_bytes = given.get("initial_chunk_size_bytes", -1)
        self.max_dead_bytes_per_chunk = given.get("max_dead_bytes_per_chunk", -1)
        self.initial_growth_chunk_size_bytes = given.get("initial_growth_chunk_size_bytes", -1)
        self.max_power_of_two_extend_bytes = given.get("max_power_of_two_extend_bytes", -1)
