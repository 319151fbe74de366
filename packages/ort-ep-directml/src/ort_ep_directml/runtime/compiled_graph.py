"""CompiledGraph: a plan compiled and initialized on a device, and the slots that run it. Safe from many threads."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence

import numpy as np

from ort_ep_directml.abi import d3d12, dml
from ort_ep_directml.abi.com import ComObject
from ort_ep_directml.graph import describe
from ort_ep_directml.lowering.plan import GraphPlan
from ort_ep_directml.runtime.device import DmlDevice
from ort_ep_directml.runtime.memory import Buffer, build_buffer
from ort_ep_directml.runtime.recording import Bindings, CommandRecording, Span, binding_properties
from ort_ep_directml.runtime.run_slot import RunSlotState
from ort_ep_directml.runtime.uploading import uploaded

MAXIMUM_IDLE_SLOTS = 4  # of one graph; each holds the memory of one run in flight


class CompiledGraph:
    """One graph on one device.

    Args:
        device: where.
        plan: the graph.
        flags: ``EXECUTION_FLAG_*``.

    Raises:
        EPFail: DirectML does not take an operator.
        HResultError: it does not take the graph, or the device was lost.
    """

    def __init__(self, device: DmlDevice, plan: GraphPlan, flags: int) -> None:
        self.device, self._plan = device, plan
        self._idle: list[RunSlotState] = []
        self._lock = threading.Lock()
        with device.compiling:
            description = describe(plan, device.dml)
            try:
                self._operator = device.build(
                    device.dml, "CompileGraph", dml.COMPILED_OPERATOR, ctypes.byref(description.desc), flags
                )
                self._owned = len(description.owned)
                self._persistent = _initialized(device, self._operator, len(plan.inputs), description.owned)
            finally:
                description.close()

    def run(self, inputs: Mapping[int, np.ndarray], outputs: Mapping[int, np.ndarray], *, spins: bool = False) -> None:
        """Run once, in a slot of its own.

        Args:
            inputs: by their place among those of the claim, of the planned shapes.
            outputs: likewise; filled.
            spins: wait for the device in a loop.

        Raises:
            HResultError: the device was lost; the slot is not used again.
        """
        slot = self._take()
        slot.run(inputs, outputs, spins=spins)
        with self._lock:
            if len(self._idle) < MAXIMUM_IDLE_SLOTS:
                self._idle.append(slot)

    def _take(self) -> RunSlotState:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return RunSlotState(self.device, self._plan, self._operator, self._owned, self._persistent)


def _initialized(
    device: DmlDevice, operator: ComObject, open_inputs: int, owned: Sequence[np.ndarray]
) -> Buffer | None:
    """Initialize a compiled graph with the arrays that DirectML owns, and return its persistent resource."""
    keep = binding_properties(operator).PersistentResourceSize
    persistent = build_buffer(device, d3d12.HEAP_TYPE_DEFAULT, keep) if keep else None
    operators = ctypes.c_void_p(operator.address)
    initializer = device.build(
        device.dml, "CreateOperatorInitializer", dml.OPERATOR_INITIALIZER, 1, ctypes.byref(operators)
    )
    needed = binding_properties(initializer).TemporaryResourceSize
    temporary = build_buffer(device, d3d12.HEAP_TYPE_DEFAULT, needed) if needed else None
    weights = uploaded(device, owned)
    recording = CommandRecording(device)
    recording.dispatch(
        initializer,
        Bindings(
            inputs=[[*([None] * open_inputs), *weights]] if weights else (),
            outputs=[Span(persistent, 0, keep) if persistent else None],
            temporary=Span(temporary, 0, needed) if temporary else None,
        ),
    )
    recording.close()
    recording.execute()
    return persistent
