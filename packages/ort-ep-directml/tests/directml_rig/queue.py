"""The queue and its fences: work happens when somebody waits for it, not before.

That is the strictest reading of a GPU's promise: who reads a result without waiting reads old memory, and who
overwrites what commands still need spoils them.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from typing import TYPE_CHECKING

from directml_rig.commands import CommandList
from directml_rig.errors import RuleBrokenError
from directml_rig.memory import DeviceChild
from directml_rig.served import OK, implements
from ort_ep_directml.abi import d3d12

if TYPE_CHECKING:
    from collections.abc import Callable

    from directml_rig.device import Device


class Fence(DeviceChild):
    """A number that the queue, or the host, raises."""

    interface = d3d12.FENCE
    answers = (d3d12.OBJECT, d3d12.DEVICE_CHILD, d3d12.PAGEABLE, d3d12.FENCE)

    def __init__(self, device: Device, value: int) -> None:
        super().__init__(device)
        self.value = value

    @implements("GetCompletedValue")
    def get_completed_value(self) -> int:
        if self.device.removed:
            return d3d12.FENCE_REMOVED
        told = self.value
        self.device.make_progress()
        return told

    @implements("SetEventOnCompletion")
    def set_event_on_completion(self, value: int, event: int) -> int:
        """Do all work up to the value; an event is a file descriptor here, as DXCore's Linux header has it."""
        while self.value < value and not self.device.removed:
            if not self.device.make_progress():
                raise RuleBrokenError(f"somebody waits for a fence to reach {value}, and nothing will raise it")
        if event:
            os.eventfd_write(event, 1)
        return OK

    @implements("Signal")
    def signal(self, value: int) -> int:
        self.value = value
        return OK


class CommandQueue(DeviceChild):
    """A queue: what is put into it is done in order."""

    interface = d3d12.COMMAND_QUEUE
    answers = (d3d12.OBJECT, d3d12.DEVICE_CHILD, d3d12.PAGEABLE, d3d12.COMMAND_QUEUE)

    def __init__(self, device: Device, kind: int) -> None:
        super().__init__(device)
        self.kind = kind
        self.work: deque[Callable[[], None]] = deque()
        device.queues.append(self)

    @implements("ExecuteCommandLists")
    def execute_command_lists(self, count: int, lists: int) -> None:
        for address in (ctypes.c_void_p * count).from_address(lists):
            commands = self.ledger.found(address, CommandList)
            if commands.open:
                raise RuleBrokenError("a command list is executed while it is open")
            if commands.kind != self.kind:
                raise RuleBrokenError(f"a command list of type {commands.kind} on a queue of type {self.kind}")
            commands.allocator.in_flight += 1
            self.work.append(self._execution(commands))

    def _execution(self, commands: CommandList) -> Callable[[], None]:
        recorded = commands.commands

        def work() -> None:
            commands.allocator.in_flight -= 1
            self.device.counts.executions += 1
            if recorded is not commands.commands:
                commands.commands, later = recorded, commands.commands
                try:
                    commands.execute()
                finally:
                    commands.commands = later
            else:
                commands.execute()

        return work

    @implements("Signal")
    def signal(self, fence: int, value: int) -> int:
        found = self.ledger.found(fence, Fence)

        def work() -> None:
            found.value = value

        self.work.append(work)
        return OK

    @implements("Wait")
    def wait(self, fence: int, value: int) -> int:
        found = self.ledger.found(fence, Fence)

        def work() -> None:
            if found.value < value:
                raise RuleBrokenError(f"a queue waits for a fence to reach {value}; the rig does work in order")

        self.work.append(work)
        return OK

    def destroyed(self) -> None:
        self.device.queues.remove(self)
        if self.work and not self.device.removed:  # a lost device does nothing more
            self.ledger.faults.append(RuleBrokenError("a command queue is released with work that nobody waited for"))
        super().destroyed()
