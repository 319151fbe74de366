"""CpuPartition: native programs and reference kernels, in one order, over numbered slots.

Nodes that lower form the largest convex groups; the rest runs by the numpy kernels. A group whose inputs are not as
declared, or whose data is out of bounds, runs by the kernels, too: they give the precise result or error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from ort_core.cpu.codegen.machine_code.code_cache import recorded
from ort_core.cpu.codegen.machine_code.object_loading import linked_by_llvm
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.direct.direct_calls import DirectStep, prepare_direct_calls
from ort_core.cpu.direct.direct_offer import DirectOffer
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.preconditions import require_preconditions
from ort_core.cpu.lowering.products.weight_packing import WeightPacking
from ort_core.cpu.lowering.rounded_operands import round_operands
from ort_core.cpu.lowering.rule_table import find_rule
from ort_core.cpu.lowering.rules.indexing.contents import contents_of
from ort_core.cpu.lowering.rules.indexing.contents import known_contents as write_contents
from ort_core.cpu.lowering.steps import UNCOUNTABLE, NotLowered, last_outputs, step_node, too_large
from ort_core.cpu.partition.admission import FREE, is_plain, is_worth_a_program, unsupported_reason
from ort_core.cpu.partition.bodies import CompiledBody, PlainBody
from ort_core.cpu.partition.bounds import unbound_nodes
from ort_core.cpu.partition.conditional import is_conditional
from ort_core.cpu.partition.counted_rows import CountedRows, count_rows, rows_of
from ort_core.cpu.partition.group_lowering import lower_group
from ort_core.cpu.partition.native_calls import LEAST_ROUNDS, NativeCall, has_rounds, is_repeated, native_calls
from ort_core.cpu.partition.placeholders import placeholders
from ort_core.cpu.partition.relief import Relief, ReliefLimitsState
from ort_core.cpu.partition.segment_order import joined, ordered
from ort_core.cpu.partition.segments import (
    LazyKernels,
    PartitionSegment,
    WholeProgram,
    described,
    direct_step_of,
    run_directly,
)
from ort_core.cpu.partition.shared_programs import Content, GraphContent, GroupContent, SharedPrograms
from ort_core.cpu.program.program import DataError, NativeProgram, SizesDiffer, StepObserver
from ort_core.cpu.program.program_building import build_program
from ort_core.cpu.rounds.native_rounds import native_rounds
from ort_core.cpu.storage.stored_code import encode_modules
from ort_core.cpu.storage.stored_partition import encode_partition
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.plugin import (
    AllocationLimitExceeded,
    CompileRequest,
    DirectCalls,
    EagerPartition,
    NodeExecution,
    OrtError,
    PlainFunction,
    Rejection,
    RunState,
    StepFacts,
    body_path,
    convex_groups,
    raise_interruption,
)
from ort_core.plugin.collecting import paused_collection
from ort_core.plugin.ir import Border, Graph, Node, Value, border_of
from ort_core.plugin.kernels import BoundGraph, EvaluationContext, RunnableBody, RuntimeValue, is_shared
from ort_core.plugin.memory import StepUse, ValueSlots, picker
from ort_core.plugin.ops import LastInference, known_contents

log = logging.getLogger(__name__)
MANY_GROUPS = 4  # of one graph, from which on equal ones are looked for
MAX_COMPILED_DEPTH = 8  # bodies within bodies: exporters nest three or four deep; each level compiles again


class CpuPartition(EagerPartition):
    """A partition compiled for the CPU; its native programs plan for each signature of sizes themselves."""

    results_are_checked = False  # programs are planned from what was inferred, kernels are those that it was told of

    def __init__(
        self, request: CompileRequest, target: Target, pool: ThreadPool, shared: SharedPrograms | None = None,
        *, uses_bfloat16: bool = False, is_repeated: bool = False, is_all: bool = True,
        relief_limits: ReliefLimitsState | None = None, refusals: Mapping[Node, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        super().__init__(len(request.graph.outputs))
        self._input_count = len(request.graph.inputs)
        context = request.context
        self._uses_bfloat16, self._is_repeated, self._is_body = uses_bfloat16, is_repeated, shared is not None
        self._request = replace(request, context=replace(context, bodies=self._bind_body), inferred=LastInference())
        self._is_choice = is_all and is_conditional(request.graph.nodes)  # a model, or a branch that is all of one
        self._least = 2 if is_all and len(request.graph) == 1 else LEAST_ROUNDS
        self._bodies: dict[Graph, CompiledBody[CpuPartition]] = {}  # by the graph that each runs
        self._plain_bodies: list[PlainBody[CpuPartition]] = []  # of which nothing is native
        self.refusals = dict(refusals)
        self._relief_limits = relief_limits or ReliefLimitsState()  # with bodies
        self._has_many_groups = False
        self._borders: dict[tuple[Node, ...], Border] = {}  # of groups that were lowered
        self._step_nodes: dict[tuple[NativeProgram, int], Node] = {}
        self._counted = count_rows(request.graph) if shared is None else CountedRows()  # bodies are wired by values
        self._contents = known_contents(request.graph, context.schemas, context.opset_imports, request.inferred)
        self._known_nodes = self._nodes_of_known_results()
        self._target, self._pool = target, pool
        self._shared = shared or SharedPrograms()  # with bodies
        self._content = GraphContent(request.graph, context.opset_imports, self._contents) if shared else None
        linking = nullcontext() if request.short_cuts else linked_by_llvm()
        with linking, recorded() as self._modules:  # of bodies, too
            self._calls = native_calls(request.graph, target, pool, short_cuts=request.short_cuts)
            with WeightPacking(pool.num_threads, request.services.get("weights"), target.key) as self._weights:
                groups = self._native_groups(target, pool)
                self._deciding = self._deciding_program(groups)
            self._build(groups)
        self._shared, self._content = SharedPrograms(), None  # what the load made is done with

    @property
    def native_programs(self) -> tuple[NativeProgram, ...]:
        """The compiled programs, in order."""
        return tuple(step.program for step in self._steps if step.program is not None)

    @property
    def bodies(self) -> tuple[CompiledBody[CpuPartition], ...]:
        """The compiled bodies of control flow, in order."""
        return tuple(self._bodies.values())

    @property
    def is_native(self) -> bool:
        """Whether anything here, bodies of control flow included, was compiled."""
        return bool(self._bodies) or any(step.program or step.call for step in self._steps)

    def direct_calls(self, sources: Sequence[str | np.ndarray], order: Sequence[int]) -> DirectCalls | Rejection:
        """Offer direct calls where everything between feeds and outputs is native, but for maps and strings."""
        offer = DirectOffer(self._request.graph, self._steps, self._template, self._request.context.opset_imports)
        if is_conditional(self._request.graph.nodes):
            return offer.of_choice(self._deciding, self.bodies, sources, order)
        return offer.of_steps([self._outputs[number] for number in order], sources)

    def executions(self) -> Sequence[NodeExecution]:
        """Return for each node the native step that takes it in, or why a numpy kernel runs it."""
        from ort_core.cpu.inspection.executions import executions_of  # only reports ask

        compiled = {body_path(body.graph): body.partition.executions() for body in self.bodies}
        plain = {body_path(body.graph): body.partition.executions() for body in self._plain_bodies}
        return executions_of(self._request.graph, self._steps, self.refusals, self._is_known, compiled, plain)

    def steps(self, sizes: Mapping[str, int]) -> Sequence[StepFacts]:
        """Return the steps of native programs, and what runs between them; those of bodies behind."""
        from ort_core.cpu.inspection.listing import facts_of_parts  # only reports ask

        told = {name: each for each in self.executions() for name in each.outputs if not each.path}
        inner = [
            replace(each, path=(*body_path(body.graph), *each.path))
            for body in self.bodies
            for each in body.partition.steps(sizes)
        ]
        return [*facts_of_parts(self._steps, told, sizes), *inner]

    def code(self, form: str, kernel: str | None = None) -> Mapping[str, str] | Rejection:
        """Return the text of the kernels of all programs, those of bodies included; the graph is lowered again."""
        from ort_core.cpu.inspection.generated_code import code_of  # for people, by no load
        from ort_core.cpu.inspection.kernel_recording import noted_kernels

        with noted_kernels() as kernels:
            CpuPartition(self._request, self._target, self._pool, uses_bfloat16=self._uses_bfloat16)
        return code_of(kernels, form, kernel, self._target)

    def serialize(self) -> bytes | Rejection:
        """Return the machine code of all programs; lowering the graph again finds it."""
        if not self._modules:
            return Rejection("nothing of it is compiled: it runs by numpy kernels")
        prepare_direct_calls()
        return encode_modules(self._modules, self._target)

    def remember(self) -> Sequence[bytes | memoryview] | Rejection:
        """Return the one native program that is the whole partition."""
        whole = self.whole_program()
        return whole if isinstance(whole, Rejection) else encode_partition(whole.program, whole.reads, whole.writes)

    def whole_program(self) -> WholeProgram | Rejection:
        """Return the one native program that is the whole partition, or why there is none."""
        step = self._steps[0] if len(self._steps) == 1 else None
        if step is None or step.program is None:
            return Rejection("parts of the model run by numpy kernels")
        if step.counted:
            return Rejection("a size is read from a number")
        count = len(self._request.graph.inputs)
        if any(slot >= count or self._template[slot] is not None for slot in step.native_reads):
            return Rejection("the program reads a constant that the caller may override")
        place = {slot: index for index, slot in enumerate(step.writes)}
        if any(slot not in place for slot in self._outputs):
            return Rejection("an output is an input of the partition")
        return WholeProgram(step.program, step.native_reads, tuple([place[slot] for slot in self._outputs]))

    def plain_function(self) -> PlainFunction | None:
        """Return the kernels' own function where they alone are the partition."""
        only = self._steps[0] if len(self._steps) == 1 else None
        if only is None or only.program is not None:
            return self.compute
        if only.call is not None:
            return self._function_of_call(only, only.call) if self._outputs == only.writes else self.compute
        is_fed = all(place < self._input_count for place in only.reads) and self._outputs == only.writes
        return only.kernels.plain_function(only.reads) if is_fed else self.compute

    def _function_of_call(self, step: PartitionSegment, call: NativeCall) -> PlainFunction:
        """Return a function that makes the one native call that is the whole partition."""
        fed = [(place, slot) for place, slot in enumerate(step.native_reads) if 0 <= slot < self._input_count]
        template, run = [self._template[slot] for slot in step.native_reads], call.run

        def compute(inputs: Sequence[RuntimeValue], run_state: RunState) -> Sequence[RuntimeValue]:
            if run_state.observer is not None:
                return self.compute(inputs, run_state)
            run_state.guard.check()
            arguments = template.copy()
            for place, slot in fed:
                arguments[place] = inputs[slot]
            results = run(arguments, run_state.guard)
            if results is not None:
                return results
            values = self._template.copy()
            values[: len(inputs)] = inputs
            return step.kernels.run([values[slot] for slot in step.reads], run_state)

        return compute

    def compute(self, inputs: Sequence[RuntimeValue], run_state: RunState) -> Sequence[RuntimeValue]:
        """Run all steps in order."""
        if self._direct is not None and run_state.observer is None and not run_state.guard.in_place:
            direct, pick = self._direct
            found = run_directly(direct, pick(inputs), run_state)
            if found is not None:
                return found
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
        return [values[slot] for slot in self._outputs]

    def _run_step(
        self, step: PartitionSegment, values: list[RuntimeValue], run_state: RunState, observed: bool
    ) -> Sequence[RuntimeValue]:
        if step.program is not None:
            arrays = [values[slot] for slot in step.native_reads]
            for place in step.counted:
                arrays[place] = rows_of(arrays[place])
            if step.counted and any(arrays[place] is None for place in step.counted):
                return step.kernels.run([values[slot] for slot in step.reads], run_state)
            direct = None if observed or run_state.guard.in_place else step.direct
            if direct is not None and (results := run_directly(direct, arrays, run_state)) is not None:
                return results
            observe = self._step_observer(step.program, run_state) if observed else None
            try:
                contiguous = [a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in arrays]
                found = step.program.run(contiguous, run_state.guard, observe, is_whole=len(self._steps) == 1)
                if direct is not None:
                    direct.learn(contiguous, is_limited=not is_shared(run_state.guard))
                return found
            except (SizesDiffer, DataError) as reason:
                log.debug("a native program of %s gives way to kernels: %s", self._request.name, reason)
                if isinstance(reason, SizesDiffer) and step.relief is not None:
                    return step.relief.run(reason, [values[slot] for slot in step.reads], run_state)
            except AllocationLimitExceeded as refusal:
                raise AllocationLimitExceeded(f"{described(step.kernels.nodes)}: {refusal}") from refusal
        arguments = [values[slot] for slot in step.reads]
        if step.call is not None and not observed:
            own = [values[slot] for slot in step.native_reads]
            results = step.call.run(own, run_state.guard)
            if results is not None:
                return results
        return step.kernels.run(arguments, run_state)

    def _step_observer(self, program: NativeProgram, run_state: RunState) -> StepObserver:
        """Report native steps to a run's observer: each as a node named for the operators that it computes."""
        part = next(number for number, step in enumerate(self._steps) if step.program is program)

        def observe(number: int, start: int, sizes: Mapping[str, int]) -> None:
            node = self._step_nodes.get((program, number))
            if node is None:
                node = step_node(program.steps[number], f"{self._request.name}/native-{number}")
                self._step_nodes[program, number] = node
            assert run_state.observer is not None
            work = program.steps[number].work_at(sizes, f"{part}.{number}")
            given = node.outputs or last_outputs(program.steps[number])
            run_state.observer(node, start, placeholders(node.inputs, sizes), placeholders(given, sizes), work)

        return observe

    def _bind_body(self, graph: Graph, context: EvaluationContext, depth: int) -> RunnableBody:
        """Compile a body as a partition of its own; one with nothing to compile runs by kernels, node by node."""
        if depth > MAX_COMPILED_DEPTH:
            return BoundGraph(graph, replace(context, bodies=None), depth)

        def compile_body(own: Graph) -> CpuPartition:
            name = f"{self._request.name}/{graph.name}"
            own_request = replace(self._request, name=name, graph=own, context=context)
            return CpuPartition(
                own_request, self._target, self._pool, self._shared, uses_bfloat16=self._uses_bfloat16,
                is_repeated=self._is_choice or (graph.owner is not None and is_repeated(graph.owner, self._least)),
                is_all=self._is_choice, relief_limits=self._relief_limits,
            )  # fmt: skip

        if is_plain(graph, context, is_all=self._is_choice):
            self._plain_bodies.append(PlainBody(graph, compile_body))
            return BoundGraph(graph, replace(context, bodies=None), depth)
        body = CompiledBody(graph, compile_body)
        if not body.partition.is_native:
            self._plain_bodies.append(PlainBody(graph, compile_body, body.partition))
            return BoundGraph(graph, replace(context, bodies=None), depth)
        self._bodies[graph] = body
        return body

    def _compile_without(self, graph: Graph, refusals: Mapping[Node, str]) -> CpuPartition | None:
        """Compile a copy of a program's nodes, but for some; ``None`` where nothing of that is native."""
        request = replace(self._request, name=graph.name, graph=graph, inferred=LastInference())
        found = CpuPartition(
            request, self._target, self._pool, uses_bfloat16=self._uses_bfloat16, relief_limits=self._relief_limits,
            refusals=refusals,
        )  # fmt: skip
        return found if found.is_native else None

    @paused_collection()
    def _native_groups(self, target: Target, pool: ThreadPool) -> list[tuple[tuple[Node, ...], NativeProgram]]:
        graph = self._request.graph
        for number in self._counted.values:
            if number.producer is not None:  # read before the programs that have such a size are planned
                self.refusals[number.producer] = "how many rows a cache has is read from its result"
        for node in graph:
            if node in self.refusals:
                continue
            reason = None if self._is_known(node) else unsupported_reason(node, self._request.context, target)
            if reason is not None:
                self.refusals[node] = reason
        done: list[tuple[tuple[Node, ...], NativeProgram]] = []
        built: dict[tuple[Node, ...], NativeProgram] = {}
        while True:
            groups = convex_groups(graph.nodes, lambda node: node not in self.refusals)
            failed, self._has_many_groups = False, len(groups) >= MANY_GROUPS
            for group in groups:
                if group in built or not self._is_worth_a_program(group):
                    continue
                program = self._lower(group, target, pool)
                if program is None:
                    failed = True
                else:
                    built[group] = program
            if not failed:
                done = [(group, built[group]) for group in groups if group in built]
                return done

    def _is_worth_a_program(self, group: tuple[Node, ...]) -> bool:
        """Return whether a group runs faster as a program; a small one does if it is all of a model, or of a loop."""
        computing = [node for node in group if not self._is_known(node)]
        if is_worth_a_program(computing, self._request.context):
            return True
        if len(group) < len(self._request.graph):
            return False
        if self._is_repeated:
            return self._shared.may_be_small(self._content, group)
        is_computed = len(computing) == len(group)  # sizes wrap at 64 bits in kernels, and never in programs
        return not self._is_body and is_computed and any(node.op_type not in FREE for node in computing)

    def _is_known(self, node: Node) -> bool:
        """Return whether all results of a node follow from sizes."""
        return node in self._known_nodes

    def _nodes_of_known_results(self) -> set[Node]:
        found: set[Node] = set()
        if not self._contents:
            return found
        for node in self._request.graph:
            outputs = tuple(node.present_outputs())
            if outputs and not any(contents_of(value, self._contents) is None for value in outputs):
                found.add(node)
        return found

    def _lower(self, group: tuple[Node, ...], target: Target, pool: ThreadPool) -> NativeProgram | None:
        """Lower a group; on refusals note the nodes that refused and return ``None``."""
        context = self._request.context
        border = self._borders[group] = border_of(group)
        content = self._content_of(group, border)
        known = None if content is None else self._shared.find(content, group)
        if known is not None:
            return known
        lowering = Lowering(
            group, border.outputs, target, context.opset_imports, self._contents, context.meanings, self._weights,
            self._shared.expressions, uses_bfloat16=self._uses_bfloat16,
        )  # fmt: skip
        try:
            refusals = lower_group(lowering, group, lambda node: self._lower_node(lowering, node))
            others = (*border.inputs, *self._request.graph.inputs, *self._counted.values.values())
            if refusals := refusals or unbound_nodes(lowering, group, others):
                self.refusals.update(refusals)
                return None
            program = build_program(lowering, pool)
            if content is not None:
                self._shared.keep(content, group, program, lowering.kernels)
            return program
        except NotLowered as refusal:
            self.refusals[refusal.node if refusal.node in group else group[-1]] = str(refusal)
        except UNCOUNTABLE as error:  # of the whole program: such a model can never run
            self.refusals.update(dict.fromkeys(group, str(too_large(error))))
        except (OrtError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - a fault of the compiler, at which the model must not fail
            raise_interruption(error)
            self._note_fault(group, lowering.node, error)
        finally:
            lowering.close()
        return None

    def _content_of(self, group: tuple[Node, ...], border: Border) -> Content | None:
        """Return by what a group may be known again: in a body by all of the body, else where there are many groups."""
        if self._content is not None or not self._has_many_groups or self._uses_bfloat16:
            return self._content
        return GroupContent(group, border, self._contents)

    def _lower_node(self, lowering: Lowering, node: Node) -> None:
        rule = write_contents if self._is_known(node) else find_rule(node, self._request.context)
        assert rule is not None, node
        if rule is not write_contents:
            require_preconditions(lowering, node)
            round_operands(lowering, node)
        rule(lowering, node)

    def _note_fault(self, group: tuple[Node, ...], node: Node | None, error: Exception) -> None:
        """Leave what failed to compile to the kernels: the node, or the group where code generation failed."""
        self._request.faults.note(f"the CPU compiler failed on {described(group)}; they run by numpy kernels", error)
        for left in group if node is None else (node,):
            self.refusals[left] = f"the compiler failed: {type(error).__name__}: {error}"

    def _deciding_program(self, groups: Sequence[tuple[tuple[Node, ...], NativeProgram]]) -> NativeProgram | None:
        """Return the program of a condition that decides the whole graph: too small to pay, but for direct calls."""
        nodes = self._request.graph.nodes
        deciding = nodes[:-1]
        if not deciding or not is_conditional(nodes):
            return None
        if groups:
            return groups[0][1] if len(groups) == 1 and set(groups[0][0]) == set(deciding) else None
        if any(each in self.refusals for each in deciding):
            return None
        return self._lower(deciding, self._target, self._pool)

    @paused_collection()
    def _build(self, groups: Sequence[tuple[tuple[Node, ...], NativeProgram]]) -> None:
        group_of: dict[Node, tuple[tuple[Node, ...], NativeProgram | None]] = {}
        group_of.update((node, (nodes, None)) for nodes in self._calls for node in nodes)
        group_of.update((node, (group, program)) for group, program in groups for node in group)
        units: list[tuple[tuple[Node, ...], NativeProgram | None]] = []
        seen: set[Node] = set()  # the first ones of units: hashing all of a unit's takes as long as it is large
        for node in self._request.graph:
            nodes, program = group_of.get(node, ((node,), None))
            if nodes[0] not in seen:
                seen.add(nodes[0])
                units.append((nodes, program))
        self._lay_out(joined(ordered(units), lambda nodes: nodes in self._calls or has_rounds(nodes)))

    def _lay_out(self, units: Sequence[tuple[tuple[Node, ...], NativeProgram | None]]) -> None:
        graph, calls = self._request.graph, [self._calls.get(nodes) for nodes, _ in units]
        slots = ValueSlots(graph)
        kernels = [LazyKernels(nodes, self._request, self._borders.get(nodes)) for nodes, _ in units]
        self._borders.clear()
        native: list[Sequence[Value | None]] = []  # what programs and calls read
        for index, (own, (_, program)) in enumerate(zip(kernels, units)):
            if program is None:
                own.bind()
                calls[index] = calls[index] or self._native_rounds(own)
            call = calls[index]
            read = program.inputs if program is not None else call.inputs if call is not None else ()
            native.append(self._counted.reads(read))
        borders = [own.border for own in kernels]
        uses = slots.uses([StepUse((*b.inputs, *read), b.outputs) for b, read in zip(borders, native)])
        self._outputs, self._template = slots.of(graph.outputs), slots.template()
        self._steps = [
            PartitionSegment(
                own, program, direct_step_of(program, len(units) == 1) if self._request.short_cuts else None, call,
                use.reads[: len(own.border.inputs)], use.reads[len(own.border.inputs) :], use.writes, use.frees,
                () if program is None else self._counted.places(program.inputs),
                None if program is None else Relief(own, self._request, self._compile_without, self._relief_limits),
            )
            for own, (_, program), call, use in zip(kernels, units, calls, uses)
        ]  # fmt: skip
        self._direct = self._only_direct()

    def _only_direct(self) -> tuple[DirectStep, Callable[[Sequence[RuntimeValue]], Sequence[RuntimeValue]]] | None:
        """Return the direct calls of the one program that is the whole partition, and what picks its inputs."""
        only = self._steps[0] if len(self._steps) == 1 else None
        if only is None or only.direct is None or only.counted or only.writes != self._outputs:
            return None
        is_fed = all(0 <= place < self._input_count for place in only.native_reads)
        return (only.direct, picker(only.native_reads)) if is_fed else None

    def _native_rounds(self, kernels: LazyKernels) -> NativeCall | None:
        """Return the native call of bound kernels that are one Loop or Scan; ``None`` where rounds run one by one."""
        if not (self._request.short_cuts and has_rounds(kernels.nodes)):
            return None
        rounds = native_rounds(kernels.graph.nodes[0], self._bodies, kernels.graph.outputs, kernels.originals())
        if isinstance(rounds, Rejection):
            log.debug("no native rounds of %s: %s", described(kernels.nodes), rounds.reason)
            return None
        return rounds
