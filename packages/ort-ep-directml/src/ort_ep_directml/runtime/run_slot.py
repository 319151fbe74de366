"""RunSlot: the memory and the recorded commands of one run in flight: upload, execute, read back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_ep_directml.abi import d3d12
from ort_ep_directml.abi.com import ComObject
from ort_ep_directml.lowering.plan import GraphPlan
from ort_ep_directml.runtime.device import DmlDevice
from ort_ep_directml.runtime.memory import Buffer, build_buffer, offsets
from ort_ep_directml.runtime.recording import Bindings, CommandRecording, Span, binding_properties


class RunSlotState:
    """What one run needs; its commands are recorded once.

    Inputs lie behind each other at the front of one buffer on the device, outputs behind them: one copy in, one out.

    Args:
        device: where.
        plan: the graph.
        operator: compiled.
        owned: how many inputs DirectML owns; they are bound to nothing.
        persistent: what initializing wrote.

    Raises:
        HResultError: there is not enough memory, or the device was lost.
    """

    def __init__(
        self, device: DmlDevice, plan: GraphPlan, operator: ComObject, owned: int, persistent: Buffer | None
    ) -> None:
        self._plan = plan
        tensors = [*(port.tensor for port in plan.inputs), *(port.tensor for port in plan.outputs)]
        places = offsets([tensor.nbytes for tensor in tensors])
        count = len(plan.inputs)
        self._inputs, self._outputs = places[:count], [place - places[count] for place in places[count:-1]]
        sent, received = places[count], places[-1] - places[count]
        self._upload = build_buffer(device, d3d12.HEAP_TYPE_UPLOAD, sent) if sent else None
        self._readback = build_buffer(device, d3d12.HEAP_TYPE_READBACK, received)
        memory = build_buffer(device, d3d12.HEAP_TYPE_DEFAULT, places[-1])
        scratch = binding_properties(operator).TemporaryResourceSize
        self._scratch = build_buffer(device, d3d12.HEAP_TYPE_DEFAULT, scratch) if scratch else None
        bound = [Span(memory, place, tensor.nbytes) for place, tensor in zip(places, tensors)]
        bindings = Bindings(
            inputs=[*bound[:count], *([None] * owned)],
            outputs=bound[count:],
            temporary=Span(self._scratch, 0, scratch) if self._scratch else None,
            persistent=Span(persistent, 0, persistent.nbytes) if persistent else None,
        )
        self._memory, self._persistent = memory, persistent  # the list keeps nothing alive
        self._recording = self._recorded(device, operator, bindings, sent, received)

    def _recorded(
        self, device: DmlDevice, operator: ComObject, bindings: Bindings, sent: int, received: int
    ) -> CommandRecording:
        recording = CommandRecording(device)
        before = d3d12.RESOURCE_STATE_COMMON  # buffers are that again when a list has run
        if self._upload is not None:
            recording.copy(Span(self._upload, 0, sent), Span(self._memory, 0, sent))
            before = d3d12.RESOURCE_STATE_COPY_DEST
        recording.transition(self._memory, before, d3d12.RESOURCE_STATE_UNORDERED_ACCESS)
        recording.dispatch(operator, bindings)
        recording.transition(self._memory, d3d12.RESOURCE_STATE_UNORDERED_ACCESS, d3d12.RESOURCE_STATE_COPY_SOURCE)
        recording.copy(Span(self._memory, sent, received), Span(self._readback, 0, received))
        recording.close()
        return recording

    def run(self, inputs: Mapping[int, np.ndarray], outputs: Mapping[int, np.ndarray], *, spins: bool) -> None:
        """Send the inputs, execute, and fill the outputs; both are by their place in the claim.

        Raises:
            HResultError: the device was lost.
        """
        if self._upload is not None:
            with self._upload.written() as memory:
                for place, given in zip(self._inputs, self._plan.inputs):
                    array = inputs[given.index]
                    np.copyto(np.ndarray(array.shape, array.dtype, memory, place), array, casting="no")
        self._recording.execute(spins=spins)
        with self._readback.read() as memory:
            for place, port in zip(self._outputs, self._plan.outputs):
                target = outputs[port.index]
                found = np.ndarray(target.shape, target.dtype, memory, place)
                np.copyto(target, found, casting="no")
