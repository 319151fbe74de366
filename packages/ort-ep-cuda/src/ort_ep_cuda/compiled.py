"""CudaPartition: a compiled claim: a program per signature of shapes, and slots that run it. Safe from many threads."""

from __future__ import annotations

import itertools
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ort_core.plugin import (
    AllocationLimitExceeded,
    CompiledPartition,
    CompileRequest,
    EPFail,
    OutputPlan,
    PartitionPlan,
    RunState,
)
from ort_core.plugin.devices import Device, DeviceArray
from ort_core.plugin.ir import Node
from ort_core.plugin.kernels import RuntimeValue
from ort_ep_cuda.gpu import Function, Gpu, Memory
from ort_ep_cuda.growing_plans import MAXIMUM_PROGRAMS, GrowingPlans
from ort_ep_cuda.lowering.decomposition import in_parts
from ort_ep_cuda.lowering.lower_partition import host_inputs, lower_partition
from ort_ep_cuda.lowering.movement.random_numbers import draw_words
from ort_ep_cuda.lowering.program import Buffer, BufferKind, Program
from ort_ep_cuda.lowering.values.growing import grows
from ort_ep_cuda.lowering.values.shared_constants import SharedConstants
from ort_ep_cuda.lowering.values.views import Shape
from ort_ep_cuda.options import CudaOptions
from ort_ep_cuda.run_slot import RunSlotState

_FORKED = (
    "this session was made before the process forked, and CUDA works on in the parent alone: make the session in the "
    "child, or start children by multiprocessing's 'spawn'"
)
MAXIMUM_IDLE_SLOTS = 8  # each holds an arena: signatures beyond it allocate and capture anew when they come back


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaPlan(PartitionPlan):
    """The decisions for one signature: the program, its loaded kernels, the addresses of its constants.

    ``sizes`` are the words of its program. Where they grow, several plans share it, and ``alone`` plans it by itself.
    """

    program: Program
    functions: Mapping[str, Function]
    constants: Mapping[int, Memory]
    sizes: np.ndarray | None = None
    alone: Callable[[], CudaPlan] | None = None


class CudaPartition(CompiledPartition):
    """One partition on one device.

    Args:
        request: the partition.
        gpu: the device.
        options: of the session's provider.
    """

    def __init__(self, request: CompileRequest, gpu: Gpu, options: CudaOptions) -> None:
        self._graph, self._wholes = in_parts(request.graph, request.context)
        self._context = request.context
        self._gpu, self._options = gpu, options
        self._shared_constants = SharedConstants.of(self._graph)
        self._constants: dict[tuple[str, Shape], Memory] = {}
        self._states: dict[Node, dict[str, object]] = {}
        self._idle: OrderedDict[int, tuple[Program, RunSlotState]] = OrderedDict()
        self._lock = threading.Lock()
        self._tickets = 0
        given = request.seed
        self._shared: OrderedDict[int, CudaPlan] = (
            OrderedDict()
        )  # of growing programs, by their identity, which the plan keeps
        self._growing = GrowingPlans(self._lowered)
        self._seed = secrets.randbits(63) if given is None else given
        self._draws = itertools.count()
        self.device = Device("cuda", options.device_id)
        self.value_inputs = host_inputs(self._graph)
        self._process = os.getpid()
        gpu.idle.register(self.give_back_idle)
        self.runs_at_once = None if options.callers_stream is None else 1

    def plan(self, shapes: Sequence[tuple[int, ...] | None], known_values: Mapping[int, np.ndarray]) -> PartitionPlan:
        """Lower the partition for these shapes, and compile the kernels that no other signature has needed.

        A program that grew to such sizes before is taken as it is.
        """
        sizes = [shape if shape is not None else () for shape in shapes]
        bound = self._growing.bind(sizes, known_values)
        if bound is None:
            return self._alone(sizes, known_values)
        plan = self._shared_plan(bound.program)
        facts = zip(plan.outputs, bound.shapes, strict=True)
        outputs = tuple(OutputPlan(output.dtype, shape) for output, shape in facts)
        return replace(plan, outputs=outputs, sizes=bound.words, alone=lambda: self._alone(sizes, known_values))

    def _alone(self, sizes: Sequence[Shape], known_values: Mapping[int, np.ndarray]) -> CudaPlan:
        return self._prepared(self._lowered(sizes, known_values))

    def _shared_plan(self, program: Program) -> CudaPlan:
        """Return the plan that all sizes of a growing program begin with; those of programs long left are dropped."""
        with self._lock:
            plan = self._shared.get(id(program))
        if plan is None:
            plan = self._prepared(program)
            with self._lock:
                self._shared[id(program)] = plan
                if len(self._shared) > MAXIMUM_PROGRAMS:
                    self._shared.popitem(last=False)
        return plan

    def _prepared(self, program: Program) -> CudaPlan:
        """Return a program with its kernels loaded and its constants on the device."""
        return CudaPlan(
            outputs=tuple(OutputPlan(facts.dtype, facts.shape) for facts in program.outputs),
            program=program,
            functions=self._gpu.functions(program.kernels()),
            constants=self._uploaded(program),
            sizes=None if any(grows(word) for word in program.words) else np.array(program.words, np.int64),
        )

    def _lowered(self, sizes: Sequence[Shape], known_values: Mapping[int, np.ndarray]) -> Program:
        known = {self._graph.inputs[index]: content for index, content in known_values.items()}
        turned, libraries = self._shared_constants.turned, self._gpu.libraries
        return lower_partition(self._graph, self._context, sizes, known, self._states, libraries, turned, self._wholes)

    def run(
        self,
        plan: PartitionPlan,
        inputs: Sequence[RuntimeValue],
        outputs: list[RuntimeValue],
        run_state: RunState,
    ) -> None:
        """Compute the outputs; buffers that were handed in are filled."""
        assert isinstance(plan, CudaPlan)
        if os.getpid() != self._process:
            raise EPFail(_FORKED)
        run_state.guard.check()
        targets = [_target(buffer, run_state, planned) for buffer, planned in zip(outputs, plan.outputs, strict=True)]
        try:
            slot = self._take(plan)
        except AllocationLimitExceeded:
            if plan.alone is None:
                raise
            self._growing.forget(plan.program)  # its buffers have room for more than this run needs
            plan = plan.alone()
            slot = self._take(plan)
        draw = draw_words(next(self._draws), self._seed)
        try:
            slot.run(inputs, targets, draw, run_state.guard, plan.sizes)
        finally:
            if slot.is_sound:  # else it is not used again: its stream may be broken
                self._give_back(plan, slot)
        outputs[:] = targets

    def close(self) -> None:
        """Give back device memory."""
        with self._lock:
            self._idle.clear()
            self._constants.clear()

    def _take(self, plan: CudaPlan) -> RunSlotState:
        """Return a slot that is idle, or a new one. A name for another one here would keep its memory."""
        idle = self._taken_from_idle(plan)
        if idle is not None:
            return idle
        # libraries choose engines and take memory in a first run, which nothing may do within a capture
        before_capture = max(1, self._options.min_num_runs_before_cuda_graph_capture)
        # A stream of the caller's holds the caller's work, too, and is never put into the state of capturing.
        captures = self._options.enable_cuda_graph and self._options.callers_stream is None
        constants = {number: memory.address for number, memory in plan.constants.items()}
        return self._gpu.idle.make(
            lambda: RunSlotState(
                self._gpu,
                plan.program,
                plan.functions,
                constants,
                before_capture if captures and plan.program.can_be_captured else None,
            )
        )

    def _taken_from_idle(self, plan: CudaPlan) -> RunSlotState | None:
        with self._lock:
            for ticket, (owner, slot) in reversed(self._idle.items()):
                if owner is plan.program:
                    del self._idle[ticket]
                    return slot
        return None

    def give_back_idle(self) -> bool:
        """Give back the memory of slots that run nothing; return whether there were any."""
        with self._lock:
            found = [slot for _, slot in self._idle.values()]
            self._idle.clear()
        for slot in found:
            slot.close()
        return bool(found)

    def _give_back(self, plan: CudaPlan, slot: RunSlotState) -> None:
        with self._lock:
            self._tickets += 1
            self._idle[self._tickets] = (plan.program, slot)
            if len(self._idle) > MAXIMUM_IDLE_SLOTS:
                _, (_, oldest) = self._idle.popitem(last=False)
                oldest.close()

    def _uploaded(self, program: Program) -> dict[int, Memory]:
        """Return the constants that the program reads, each sent to the device once for all signatures."""
        read = {number for step in program.steps for number in step.reads}
        found: dict[int, Memory] = {}
        for number in sorted(read):
            buffer = program.buffers[number]
            if buffer.kind is not BufferKind.CONSTANT:
                continue
            if buffer.content is not None:
                found[number] = self._sent(buffer.content)
                continue
            with self._lock:
                equal = {} if buffer.order else self._shared_constants.equal  # in order of their axes they differ
                key = (equal.get(buffer.name, buffer.name), buffer.order)
                if key not in self._constants:
                    self._constants[key] = self._sent(self._content_of(buffer))
                found[number] = self._constants[key]
        return found

    def _content_of(self, buffer: Buffer) -> np.ndarray:
        value = self._graph.find_initializer(buffer.name)
        assert value is not None
        assert value.constant is not None
        content = value.constant.array()
        return content.transpose(buffer.order) if buffer.order else content

    def _sent(self, content: np.ndarray) -> Memory:
        memory = self._gpu.idle.make(lambda: self._gpu.allocate(max(content.nbytes, 1)))
        stream = self._gpu.stream()
        source = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        if source.size:
            stream.upload(source, memory.address)
            stream.synchronize()
        return memory


def _target(buffer: RuntimeValue | DeviceArray, run_state: RunState, planned: OutputPlan) -> np.ndarray | DeviceArray:
    if isinstance(buffer, DeviceArray):
        return buffer  # of the planned shape and type: the runtime hands in no other
    if isinstance(buffer, np.ndarray) and buffer.shape == planned.shape and buffer.flags.c_contiguous:
        return buffer
    assert planned.shape is not None, "a program knows its shapes"
    assert planned.dtype is not None, "and its types"
    return run_state.allocate(planned.shape, planned.dtype.numpy)
