"""The provider's options: onnxruntime's names for its DirectML provider, its session keys among them, and two more.

An option that is taken has an effect, or says what is so anyway; what has none is refused with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ort_ep_directml.abi import dml

PerformancePreference = Literal["default", "high_performance", "minimum_power"]
DeviceFilter = Literal["gpu", "npu", "any"]
FIRST = -1  # no adapter was named


@dataclass(frozen=True, slots=True)
class DmlOptions:
    """Options of a session's provider; the last two are this provider's own.

    Attributes:
        device_id: which adapter, as Windows counts them; by default the preference and the filter choose.
        performance_preference: which adapter comes first where there are several.
        device_filter: kinds of adapters that are considered.
        disable_metacommands: use DirectML's own shaders instead of those of the display driver.
        disable_graph_fusion: compile each node on its own, to find out which one misbehaves.
        enable_graph_capture: accepted; commands are recorded once for each signature of shapes.
        enable_cpu_sync_spinning: wait for the device in a loop, which answers sooner and keeps a core busy.
        disable_memory_arena: accepted; each run in flight has one buffer of the size that it needs.
        enable_graph_serialization: refused: `ort extract` writes any part of a model.
        directml_path: the DirectML library to use: a file.
        allow_half_precision: let the device compute float32 operators in float16.
    """

    device_id: int = FIRST
    performance_preference: PerformancePreference = "default"
    device_filter: DeviceFilter = "gpu"
    disable_metacommands: bool = False
    disable_graph_fusion: bool = False
    enable_graph_capture: bool = False
    enable_cpu_sync_spinning: bool = False
    disable_memory_arena: bool = False
    enable_graph_serialization: bool = False
    directml_path: str = ""
    allow_half_precision: bool = False

    def __post_init__(self) -> None:
        """Refuse what has no effect here, and what contradicts itself (``ValueError``)."""
        if self.enable_graph_serialization:
            raise ValueError(
                "option 'enable_graph_serialization' is not supported: `ort extract` writes any part of a model"
            )
        if self.device_id < FIRST:
            raise ValueError(f"option 'device_id' is {self.device_id}, expected 0 or more")
        if self.device_id != FIRST and (self.performance_preference != "default" or self.device_filter != "gpu"):
            raise ValueError(
                "option 'device_id' names one adapter, and performance_preference and device_filter choose among "
                "several: give either"
            )

    @property
    def execution_flags(self) -> int:
        """Flags that graphs are compiled with."""
        flags = dml.EXECUTION_FLAG_DISABLE_META_COMMANDS if self.disable_metacommands else dml.EXECUTION_FLAG_NONE
        if self.allow_half_precision:
            flags |= dml.EXECUTION_FLAG_ALLOW_HALF_PRECISION_COMPUTATION
        return flags
