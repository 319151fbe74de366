"""RunSlotState: what one run at a time of one plan owns: arena, buffers, pinned staging, stream, captured graph.

A slot's addresses never change, so that its launches can be captured once and replayed. Runs at the same time use
different slots.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ort_core.plugin import EPFail, InvalidArgument
from ort_core.plugin.devices import DeviceArray
from ort_core.plugin.kernels import RunGuard, Unguarded
from ort_ep_cuda.gpu import Function, Gpu, Graph, Memory
from ort_ep_cuda.lowering.libraries.library_steps import AnyLibraryStep, Normalization
from ort_ep_cuda.lowering.program import (
    BufferKind,
    FunctionCall,
    Launch,
    Pointer,
    Program,
    Step,
)
from ort_ep_cuda.lowering.values.views import TensorView

Tensor = np.ndarray | DeviceArray
log = logging.getLogger(__name__)
CHUNK_NBYTES = 16  # the most that one instruction reads; its address is a multiple of it


class RunSlotState:
    """Memory and stream for one run of a program.

    Args:
        gpu: the device.
        program: what is run.
        functions: its kernels by name.
        constants: addresses of its constants, by number of their buffer.
        runs_before_capture: runs before the launches are captured; ``None``: never.
    """

    def __init__(
        self,
        gpu: Gpu,
        program: Program,
        functions: Mapping[str, Function],
        constants: Mapping[int, int],
        runs_before_capture: int | None,
    ) -> None:
        self._program, self._functions = program, functions
        self.stream = gpu.stream()
        self._gpu = gpu
        self._arena: Sequence[Memory] = ()
        self._memory: dict[int, Memory] = {}
        self._staging: dict[int, np.ndarray] = {}
        self._addresses = {**self._placed(), **constants}
        for number, buffer in enumerate(program.buffers):
            if buffer.kind in _OWN and number not in program.starts:
                self._own(number)
        self._words = next((n for n, b in enumerate(program.buffers) if b.kind is BufferKind.SIZES), None)
        self._read = {n for step in program.steps for n in step.reads}
        self._calls = [self._call(step) for step in program.steps]
        self._before_capture = runs_before_capture
        self._graph: Graph | None = None
        self._runs = 0
        self._guard: RunGuard = Unguarded()
        self.is_sound = True

    def _placed(self) -> dict[int, int]:
        """Return the addresses of temporaries: places of one arena."""
        self._arena = (self._gpu.allocate(max(self._program.arena.nbytes, 1)),)
        return {number: self._arena[0].address + at for number, at in self._program.arena.offsets.items()}

    def run(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        draw: np.ndarray,
        guard: RunGuard,
        sizes: np.ndarray | None = None,
    ) -> None:
        """Copy inputs over, compute, copy outputs back; returns when they are there.

        However it ends, nothing is under way behind it: memory of a slot that is dropped is given to others. The slot
        ``is_sound`` behind it unless the device or a library failed.

        Args:
            inputs: arrays on the host or on this device, in the order of the partition.
            outputs: arrays that are filled, there or here.
            draw: the words that tell this run's random numbers from others'.
            guard: what users' functions ask whether the run must stop.
            sizes: the program's words for this run, where its sizes grow.

        Raises:
            InvalidArgument: an index in the data was out of range, a divisor zero; the message names the node.
        """
        self._guard, self.is_sound = guard, False
        try:
            status = self._enqueue_run(inputs, outputs, draw, sizes)
            self.stream.synchronize()
        except BaseException:
            self.stream.settle()
            raise
        self.is_sound = True
        if status is not None and status[0]:
            raise InvalidArgument(self._program.checks[int(status[0])])
        for facts, target in zip(self._program.outputs, outputs, strict=True):
            if isinstance(target, np.ndarray) and target.nbytes:
                _bytes_of(target)[:] = self._staging[facts.buffer][: target.nbytes]

    def close(self) -> None:
        """Give up all memory: steps that call a user's function know the slot, and would keep it until collected."""
        self._calls.clear()

    def _enqueue_run(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], draw: np.ndarray, sizes: np.ndarray | None
    ) -> np.ndarray | None:
        """Enqueue copies and launches; return where the number of a failed check will stand, if there are any."""
        status: np.ndarray | None = None
        places = {facts.buffer: target for facts, target in zip(self._program.outputs, outputs, strict=True)}
        bound = self._bound(inputs, places)
        self._send_words(sizes, bound)
        for number, buffer in enumerate(self._program.buffers):
            if buffer.kind is BufferKind.INPUT and number in self._read and number not in bound:
                self._bring(inputs[buffer.index], number)
            elif buffer.kind is BufferKind.STATUS and self._program.checks:
                self.stream.clear(self._addresses[number], buffer.nbytes)
            elif buffer.kind is BufferKind.DRAW:
                self._upload(draw.view(np.uint8), number)
        self._compute()
        for number, buffer in enumerate(self._program.buffers):
            if buffer.kind is BufferKind.OUTPUT and number not in bound:
                self._fetch(number, places[number])
            elif buffer.kind is BufferKind.STATUS and self._program.checks:
                status = self._staging[number][:4].view(np.int32)
                self.stream.download(self._addresses[number], status.view(np.uint8))
        return status

    def _send_words(self, sizes: np.ndarray | None, bound: Mapping[int, int]) -> None:
        """Send sizes that grow, and where buffers lie that a run may have elsewhere."""
        if self._words is None:
            return
        assert sizes is not None, "a program with words is planned with sizes"
        words = sizes.copy()
        for number, word in self._program.starts.items():
            words[word] = bound[number] if number in bound else self._own(number)
        self._upload(_bytes_of(words), self._words)

    def _own(self, number: int) -> int:
        """Return the address of the slot's own memory for a buffer, taken when it is first asked for."""
        if number not in self._memory:
            nbytes = self._program.buffers[number].nbytes
            self._memory[number] = self._gpu.idle.make(lambda: self._gpu.allocate(max(nbytes, 1)))
            self._staging[number] = self._gpu.pinned(nbytes)
            self._addresses[number] = self._memory[number].address
        return self._addresses[number]

    def _bound(self, inputs: Sequence[Tensor], places: Mapping[int, Tensor]) -> dict[int, int]:
        """Return the addresses of what is read and written where the caller has it.

        A result that lies where something else is read or written is computed elsewhere and copied, unless it goes on
        with what is read there. What lies at an odd address is copied, too: kernels read in chunks.
        """
        found: dict[int, int] = {}
        if not self._program.starts:
            return found
        lying = [value for value in (*inputs, *places.values()) if isinstance(value, DeviceArray)]
        for number in self._program.starts:
            buffer = self._program.buffers[number]
            value = inputs[buffer.index] if buffer.kind is BufferKind.INPUT else places[number]
            if not isinstance(value, DeviceArray) or value.buffer.address % CHUNK_NBYTES:
                continue
            is_result = buffer.kind is BufferKind.OUTPUT
            shared = 1 + self._lies_at_its_past(number, value, inputs)
            if not is_result or sum(_overlap(value, other) for other in lying) == shared:
                found[number] = value.buffer.address
        return found

    def _lies_at_its_past(self, number: int, value: DeviceArray, inputs: Sequence[Tensor]) -> bool:
        past = self._program.continued.get(number)
        before = None if past is None else inputs[self._program.buffers[past].index]
        return isinstance(before, DeviceArray) and before.buffer.address == value.buffer.address

    def _bring(self, value: Tensor, number: int) -> None:
        """Copy an input into the slot's own memory: captured launches read it there."""
        if not value.nbytes:
            return
        if isinstance(value, DeviceArray):
            self.stream.copy(value.buffer.address, self._addresses[number], value.nbytes)
            return
        self._upload(_bytes_of(value), number)

    def _upload(self, content: np.ndarray, number: int) -> None:
        """Send bytes to the start of a buffer, which may be larger."""
        staging = self._staging[number][: content.nbytes]
        staging[:] = content
        self.stream.upload(staging, self._addresses[number])

    def _fetch(self, number: int, target: Tensor) -> None:
        if not target.nbytes:
            return
        if isinstance(target, DeviceArray):
            self.stream.copy(self._addresses[number], target.buffer.address, target.nbytes)
        else:
            self.stream.download(self._addresses[number], self._staging[number][: target.nbytes])

    def _compute(self) -> None:
        if self._graph is not None:
            self.stream.replay(self._graph)
            return
        if self._before_capture is not None and self._runs >= self._before_capture and len(self._calls) > 1:
            self._capture()
            return
        self._runs += 1
        self._enqueue()

    def _enqueue(self) -> None:
        for call in self._calls:
            call()

    def _capture(self) -> None:
        """Capture the launches and replay them; where that fails, go on without, and say so.

        However it ends, the stream does not capture behind it: whatever fails within a capture may fail because of it.
        """
        self.stream.synchronize()
        try:
            self.stream.begin_capture()
            try:
                self._enqueue()
                self._graph = self.stream.end_capture()
            except BaseException:
                self.stream.abort_capture()
                raise
        except Exception as error:  # noqa: BLE001 - drivers, CuPy and libraries each have errors of their own
            log.warning("this partition runs without a CUDA graph: %s: %s", type(error).__name__, error)
            self._before_capture = None
            self._enqueue()
        else:
            self.stream.replay(self._graph)

    def _call(self, step: Step) -> Callable[[], None]:
        """Return a step with its addresses filled in."""
        stream = self.stream
        if isinstance(step, Launch):
            function = self._functions[step.kernel.name]
            arguments = [self._argument(argument) for argument in step.arguments]
            return lambda: stream.launch(function, step.grid, step.block, arguments)
        if isinstance(step, AnyLibraryStep):
            addresses = tuple(self._address(view) for view in step.operands)
            own = self._call(step.own) if isinstance(step, Normalization) and step.own is not None else None
            return lambda: stream.run_library(step, addresses, own)
        if isinstance(step, FunctionCall):
            sources = [None if view is None else self._address(view) for view in step.inputs]
            targets = [None if view is None else self._address(view) for view in step.outs]
            return lambda: stream.call(step, sources, targets, self._guard)
        raise EPFail(f"a program holds a step of unknown kind: {step!r}")

    def _address(self, view: TensorView) -> int:
        pointer = Pointer.of(view)
        return self._addresses[pointer.buffer] + pointer.offset_nbytes

    def _argument(self, argument: Pointer | np.generic) -> np.generic:
        if isinstance(argument, Pointer):
            return np.uint64(self._addresses[argument.buffer] + argument.offset_nbytes)
        return argument


_OWN = (BufferKind.INPUT, BufferKind.OUTPUT, BufferKind.STATUS, BufferKind.DRAW, BufferKind.SIZES)


def _overlap(a: DeviceArray, b: DeviceArray) -> bool:
    first, second = a.buffer.address, b.buffer.address
    return first < second + max(b.nbytes, 1) and second < first + max(a.nbytes, 1)


def _bytes_of(array: np.ndarray) -> np.ndarray:
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    return array.reshape(-1).view(np.uint8)
