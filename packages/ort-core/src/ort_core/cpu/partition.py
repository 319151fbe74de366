"""CpuPartition: native programs and reference kernels, in one order, over numbered slots.

Nodes that lower form the largest convex groups; the rest runs by the numpy kernels. A group whose inputs are not as
declared, or whose data is out of bounds, runs by the kernels, too: they give the precise result or error.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ort_core.cpu.codegen.jit import Target
from ort_core.cpu.codegen.scalar_printer import converts_halves
from ort_core.cpu.lowering.lowering import Lowering, computed_type, stored_type, tensor_type
from ort_core.cpu.lowering.rule_table import NARROW, RULES
from ort_core.cpu.lowering.steps import NotLowered, step_node
from ort_core.cpu.program import DataError, NativeProgram, SizesDiffer, StepObserver, check_bound
from ort_core.cpu.sizes import evaluate
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.plugin import CompiledPartition, CompileRequest, OutputPlan, PartitionPlan, RunState, convex_groups
from ort_core.plugin.ir import DataType, Node, TensorType, Value, border_of, extract
from ort_core.plugin.kernels import BoundGraph, RuntimeValue

log = logging.getLogger(__name__)
MIN_NODES = 2  # a single cheap node is not worth a program of its own
HEAVY = frozenset(
    {
        "InstanceNormalization",
        "Conv",
        "MatMul",
        "Gemm",
        "Softmax",
        "LayerNormalization",
        "FusedMatMul",
        "Gelu",
        "Erf",
        "Exp",
        "Tanh",
        "Sigmoid",
        "QuantizeLinear",
        "QLinearConv",
        "ConvInteger",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "QLinearMatMul",
        "QGemm",
        "DynamicQuantizeLinear",
        "MatMulNBits",
        "QLinearAdd",
        "QLinearMul",
        "QLinearSigmoid",
        "QLinearLeakyRelu",
        "QLinearConcat",
    }
)
WIDE_TYPES = frozenset({DataType.FLOAT, DataType.INT64, DataType.INT32, DataType.BOOL})
NARROW_TYPES = WIDE_TYPES | {DataType.UINT8, DataType.INT8, DataType.UINT16, DataType.INT16}


@dataclass(frozen=True, slots=True)
class _Step:
    """A native program (``program``) with kernels to fall back on, or kernels alone."""

    kernels: _LazyKernels
    program: NativeProgram | None
    reads: tuple[int, ...]  # of the kernels
    native_reads: tuple[int, ...]
    writes: tuple[int, ...]
    frees: tuple[int, ...]


class _LazyKernels:
    """The reference kernels of a group, bound when they are first needed."""

    def __init__(self, nodes: Sequence[Node], request: CompileRequest) -> None:
        self._graph, self.border = extract(nodes)
        self._request = request
        self._bound: BoundGraph | None = None

    def run(self, arguments: Sequence[RuntimeValue], run_state: RunState) -> tuple[RuntimeValue, ...]:
        if self._bound is None:
            self._bound = BoundGraph(self._graph, self._request.context)
        return self._bound.run(arguments, {}, run_state.guard, run_state.observer)

    def bind(self) -> None:
        """Bind now, so that a missing kernel is an error at load."""
        self._bound = BoundGraph(self._graph, self._request.context)


class CpuPartition(CompiledPartition):
    """A partition compiled for the CPU."""

    plans_by_shape = False

    def __init__(self, request: CompileRequest, target: Target, pool: ThreadPool) -> None:
        self._request = request
        self.refusals: dict[Node, str] = {}
        self._step_nodes: dict[tuple[NativeProgram, int], Node] = {}
        groups = self._native_groups(target, pool)
        self._build(groups)
        self._plan = PartitionPlan(tuple(OutputPlan() for _ in request.graph.outputs))

    @property
    def native_programs(self) -> tuple[NativeProgram, ...]:
        """The compiled programs, in order."""
        return tuple(step.program for step in self._steps if step.program is not None)

    def plan(self, shapes: Sequence[tuple[int, ...] | None], known_values: Mapping[int, np.ndarray]) -> PartitionPlan:
        """Return the one plan: native programs plan for each signature themselves."""
        return self._plan

    def run(
        self,
        plan: PartitionPlan,
        inputs: Sequence[RuntimeValue],
        outputs: list[RuntimeValue],
        workspace: Mapping[str, object],
        run_state: RunState,
    ) -> None:
        """Run all steps in order."""
        values = self._template.copy()
        values[: len(inputs)] = inputs
        check, observed = run_state.guard.check, run_state.observer is not None
        for step in self._steps:
            check()
            results = self._run_step(step, values, run_state, observed)
            for slot, result in zip(step.writes, results):
                values[slot] = result
            for slot in step.frees:
                values[slot] = None
        for index, slot in enumerate(self._outputs):
            buffer, result = outputs[index], values[slot]
            if isinstance(buffer, np.ndarray) and isinstance(result, np.ndarray) and buffer.shape == result.shape:
                np.copyto(buffer, result, casting="no")
            else:
                outputs[index] = result

    def _run_step(
        self, step: _Step, values: list[RuntimeValue], run_state: RunState, observed: bool
    ) -> Sequence[RuntimeValue]:
        if step.program is not None:
            arrays = [values[slot] for slot in step.native_reads]
            observe = self._step_observer(step.program, run_state) if observed else None
            try:
                contiguous = [a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in arrays]
                return step.program.run(contiguous, run_state.guard, observe)
            except (SizesDiffer, DataError) as reason:
                log.debug("a native program of %s gives way to kernels: %s", self._request.name, reason)
        return step.kernels.run([values[slot] for slot in step.reads], run_state)

    def _step_observer(self, program: NativeProgram, run_state: RunState) -> StepObserver:
        """Report native steps to a run's observer: each as a node named for the operators that it computes."""

        def observe(number: int, start: int, sizes: Mapping[str, int]) -> None:
            node = self._step_nodes.get((program, number))
            if node is None:
                node = step_node(program.steps[number], f"{self._request.name}/native-{number}")
                self._step_nodes[program, number] = node
            assert run_state.observer is not None
            work = program.steps[number].work_at(sizes)
            run_state.observer(node, start, _stand_ins(node.inputs, sizes), _stand_ins(node.outputs, sizes), work)

        return observe

    def _native_groups(self, target: Target, pool: ThreadPool) -> list[tuple[tuple[Node, ...], NativeProgram]]:
        graph = self._request.graph
        for node in graph:
            reason = _unsupported(node, target)
            if reason is not None:
                self.refusals[node] = reason
        done: list[tuple[tuple[Node, ...], NativeProgram]] = []
        built: dict[tuple[Node, ...], NativeProgram] = {}
        while True:
            groups = convex_groups(graph.nodes, lambda node: node not in self.refusals)
            failed = False
            for group in groups:
                if group in built or not _pays(group):
                    continue
                program = self._lower(group, target, pool)
                if program is None:
                    failed = True
                else:
                    built[group] = program
            if not failed:
                done = [(group, built[group]) for group in groups if group in built]
                return done

    def _lower(self, group: tuple[Node, ...], target: Target, pool: ThreadPool) -> NativeProgram | None:
        """Lower a group; on refusal note the node that refused and return ``None``."""
        outputs = border_of(group).outputs
        lowering = Lowering(group, outputs, target, self._request.context.opset_imports)
        node = group[0]
        try:
            for node in group:
                lowering.node = node
                RULES[node.domain, node.op_type](lowering, node)
            lowering.node = None
            lowering.finish()
            check_bound(lowering)
        except NotLowered as refusal:
            blamed = refusal.node if refusal.node in group else node
            self.refusals[blamed] = str(refusal)
            return None
        return NativeProgram(lowering, pool)

    def _build(self, groups: Sequence[tuple[tuple[Node, ...], NativeProgram]]) -> None:
        graph = self._request.graph
        program_of = {node: (group, program) for group, program in groups for node in group}
        units: list[tuple[tuple[Node, ...], NativeProgram | None]] = []
        seen: set[tuple[Node, ...]] = set()
        for node in graph:
            if node in program_of:
                group, program = program_of[node]
                if group not in seen:
                    seen.add(group)
                    units.append((group, program))
            else:
                units.append(((node,), None))
        self._lay_out(_ordered(units, graph.nodes))

    def _lay_out(self, units: Sequence[tuple[tuple[Node, ...], NativeProgram | None]]) -> None:
        graph = self._request.graph
        slots: dict[Value, int] = {value: index for index, value in enumerate(graph.inputs)}
        self._template: list[RuntimeValue] = [
            value.constant.array() if value.constant is not None else None for value in graph.inputs
        ]

        def slot(value: Value) -> int:
            if value not in slots:
                slots[value] = len(self._template)
                self._template.append(value.constant.array() if value.constant is not None else None)
            return slots[value]

        steps = []
        for nodes, program in units:
            kernels = _LazyKernels(nodes, self._request)
            if program is None:
                kernels.bind()
            border = kernels.border
            native = tuple(slot(v) for v in program.inputs) if program is not None else ()
            steps.append(
                (
                    kernels,
                    program,
                    tuple(slot(v) for v in border.inputs),
                    native,
                    tuple(slot(v) for v in border.outputs),
                )
            )
        self._outputs = tuple(slot(value) for value in graph.outputs)
        last: dict[int, int] = {}
        for number, (_, _, reads, native, writes) in enumerate(steps):
            for used in (*reads, *native, *writes):
                last[used] = number
        kept = {*self._outputs, *range(len(graph.inputs)), *(i for i, v in enumerate(self._template) if v is not None)}
        self._steps = [
            _Step(
                kernels,
                program,
                reads,
                native,
                writes,
                tuple(s for s, n in last.items() if n == number and s not in kept),
            )
            for number, (kernels, program, reads, native, writes) in enumerate(steps)
        ]


def _stand_ins(values: Sequence[Value | None], sizes: Mapping[str, int]) -> tuple[RuntimeValue, ...]:
    """Return arrays of one element, broadcast to the values' shapes: what a report needs of tensors it cannot see."""
    found: list[RuntimeValue] = []
    for value in values:
        if value is None or not isinstance(value.type, TensorType) or value.type.shape is None:
            found.append(None)
            continue
        dtype, shape = stored_type(value)
        concrete = [evaluate(size, sizes) for size in shape]
        found.append(np.broadcast_to(np.empty((), dtype.numpy), concrete))
    return tuple(found)


def _unsupported(node: Node, target: Target) -> str | None:
    if (node.domain, node.op_type) not in RULES:
        return f"{node.op_type} is not generated"
    for value in (*node.present_inputs(), *node.present_outputs()):
        if not isinstance(value.type, TensorType):
            return f"{value.name!r} is no tensor of known type"
        if computed_type(value.type.dtype) not in (NARROW_TYPES if node.op_type in NARROW else WIDE_TYPES):
            return f"{value.type.dtype.text} is not generated"
        if value.type.dtype is DataType.FLOAT16 and not converts_halves(target):
            return "the processor does not convert float16"
    try:
        for value in (*node.present_inputs(), *node.present_outputs()):
            tensor_type(value)
    except NotLowered as refusal:
        return str(refusal)
    return None


def _is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and computed_type(value.type.dtype) is DataType.FLOAT


def _pays(group: Sequence[Node]) -> bool:
    floats = [
        n
        for n in group
        if any(
            isinstance(v.type, TensorType) and computed_type(v.type.dtype) is DataType.FLOAT
            for v in n.present_outputs()
        )
    ]
    return len(floats) >= MIN_NODES or any(node.op_type in HEAVY for node in group)


def _ordered(
    units: Sequence[tuple[tuple[Node, ...], NativeProgram | None]], nodes: Sequence[Node]
) -> list[tuple[tuple[Node, ...], NativeProgram | None]]:
    """Return units so that each stands behind those it reads from."""
    unit_of = {node: index for index, (members, _) in enumerate(units) for node in members}
    needs: list[set[int]] = [set() for _ in units]
    for node in nodes:
        for value in border_of((node,)).inputs:
            if value.producer in unit_of and unit_of[value.producer] != unit_of[node]:
                needs[unit_of[node]].add(unit_of[value.producer])
    ordered: list[int] = []
    done: set[int] = set()
    waiting = list(range(len(units)))
    while waiting:
        ready = [index for index in waiting if needs[index] <= done]
        ordered.extend(ready)
        done.update(ready)
        waiting = [index for index in waiting if index not in done]
    return [units[index] for index in ordered]
