"""The evaluator: binds nodes to kernels once, and runs them over numpy values.

``bind_node`` resolves everything that does not depend on the inputs (kernel, attributes, context), so that running
a node is one Python call. ``BoundGraph`` does so for a whole graph: it runs function bodies, nested graphs and
constant folding, and is the oracle that providers are compared with.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ort_core.errors import (
    AllocationLimitExceeded,
    InvalidArgument,
    KernelNotFoundError,
    NodeFailed,
    OrtError,
    RuntimeException,
)
from ort_core.frozen import frozen
from ort_core.interruptions import raise_interruption
from ort_core.ir.attributes import Attribute, AttributeKind, SparseConstant
from ort_core.ir.constants import Constant
from ort_core.ir.graph import Graph
from ort_core.ir.model import Function
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.subgraph import clone_graph
from ort_core.ir.traversal import captured_values
from ort_core.ir.types import ValueType
from ort_core.ir.values import Value
from ort_core.kernels.evaluation_context import EvaluationContext, RunnableBody
from ort_core.kernels.kernel import KernelContext, KernelSpec, RunGuard, Unguarded, is_shared
from ort_core.kernels.node_checks import NodeChecksState
from ort_core.kernels.observer import Observer
from ort_core.kernels.registry import attribute_names, wants_context
from ort_core.memory.liveness import StepUse
from ort_core.memory.slots import SlotUse, ValueSlots, picker
from ort_core.ops.schema import OpSchema
from ort_core.tensors.runtime_value import RuntimeValue, Scope
from ort_core.tensors.sparse import SparseArray

MAX_FUNCTION_DEPTH = 100  # functions within functions; a body that contains itself would never end
MAX_AXES = 64  # numpy's limit, and that of onnxruntime's Python interface
_NUMPY_ON_AXES = "maximum supported dimension"  # part of numpy's message, which names no node and no size


RunNode = Callable[[Sequence[RuntimeValue], Scope, RunGuard], tuple[RuntimeValue, ...]]


@frozen
class BoundNode:
    """A node ready to run: ``run(inputs, scope, guard)``; ``scope`` holds the captured values of nested graphs."""

    node: Node
    run: RunNode


def find_implementation(node: Node, context: EvaluationContext) -> str | Rejection:
    """Return how a node would run (``kernel``, ``function``), without building anything, or why it cannot."""
    if (node.domain, node.op_type, node.overload) in context.functions:
        return "function"
    opset = context.opset_of(node)
    spec = context.kernels.find(node.domain, node.op_type, opset)
    if isinstance(spec, KernelSpec):
        unknown = node.attributes.keys() - attribute_names(spec.function)
        if not unknown:
            return "kernel"
        return Rejection(f"Unrecognized attribute: {sorted(unknown)[0]} for operator {node.op_type}", node)
    schema = context.schemas.find(node.domain, node.op_type, opset)
    if node.body is not None or (isinstance(schema, OpSchema) and schema.build_body is not None):
        return "function"
    return Rejection(str(spec), node)


def bind_node(node: Node, context: EvaluationContext, depth: int = 0) -> BoundNode | Rejection:
    """Resolve a node to something that runs: a model function, a kernel, or the operator's function body.

    Returns:
        The bound node, or a Rejection that says why nothing can run it.
    """
    function = context.functions.get((node.domain, node.op_type, node.overload))
    if function is not None:
        return _bind_function(node, function, context, depth)
    opset = context.opset_of(node)
    spec = context.kernels.find(node.domain, node.op_type, opset)
    if isinstance(spec, KernelSpec):
        return _bind_kernel(node, spec, opset, context, depth)
    if node.body is not None:
        return _bind_body(node, node.body, context, depth)
    schema = context.schemas.find(node.domain, node.op_type, opset)
    if isinstance(schema, OpSchema) and schema.build_body is not None:
        types = [None if v is None else v.type for v in node.inputs]
        body = schema.build_body(node, types, opset, context.opset_imports)
        if body:
            assert isinstance(body, Function)
            return _bind_function(node, body, context, depth)
        return Rejection(f"{spec}; {body}", node)
    return Rejection(str(spec), node)


def _bind_kernel(
    node: Node, spec: KernelSpec, opset: int, context: EvaluationContext, depth: int
) -> BoundNode | Rejection:
    unknown = node.attributes.keys() - attribute_names(spec.function)
    if unknown:
        known = ", ".join(sorted(attribute_names(spec.function))) or "none"
        return Rejection(
            f"Unrecognized attribute: {sorted(unknown)[0]} for operator {node.op_type} (opset {opset} knows: {known})",
            node,
        )
    fixed: dict[str, Any] = {}
    bodies: dict[str, RunnableBody] = {}
    bind = BoundGraph if context.bodies is None else context.bodies
    for attribute in node.attributes.values():
        if attribute.kind is AttributeKind.GRAPH:
            assert isinstance(attribute.value, Graph)
            bodies[attribute.name] = bind(attribute.value, context, depth + 1)
        else:
            fixed[attribute.name] = runtime_attribute(attribute)
    state: dict[str, Any] = {}
    facts = (
        node.op_type, node.domain, opset, node.name, tuple(v is not None for v in node.outputs),
        tuple(None if v is None else v.type for v in node.outputs), state,
    )  # fmt: skip
    with_context = wants_context(spec.function)
    checks = NodeChecksState(node, opset)
    check = checks.check if checks.is_needed else None
    last = KernelContext(*facts, Unguarded(), context.seed, context.num_threads)
    function = spec.runnable(is_control_flow=bool(bodies) and not node.domain)

    def run(inputs: Sequence[RuntimeValue], scope: Scope, guard: RunGuard) -> tuple[RuntimeValue, ...]:
        nonlocal last
        arguments = fixed
        if bodies or with_context:
            arguments = dict(fixed)
            for name, body in bodies.items():
                arguments[name] = BoundSubgraph(body, scope, guard)
            if with_context:
                own = last
                if own.guard is not guard:
                    own = KernelContext(*facts, guard, context.seed, context.num_threads)
                    if is_shared(guard):
                        last = own
                arguments["ctx"] = own
        try:
            if check is not None:
                check(inputs, guard)
            return normalize(function(*inputs, **arguments))
        except OrtError as error:
            raise _located(error, node) from error
        except RecursionError:
            raise
        except MemoryError as error:
            raise _without_memory(node, error) from error
        except Exception as error:  # the border to kernels, users' own included: any exception becomes the node's
            raise_interruption(error)
            raise failed(node, inputs, error) from error

    return BoundNode(node, run)


def _bind_function(node: Node, function: Function, context: EvaluationContext, depth: int) -> BoundNode | Rejection:
    if depth > MAX_FUNCTION_DEPTH:
        return Rejection(f"functions are nested more than {MAX_FUNCTION_DEPTH} deep at {node.describe()}", node)
    graph = instantiate(function, node)
    try:
        body = BoundGraph(graph, context.inside(function), depth + 1)
    except KernelNotFoundError as error:
        return Rejection(f"in the function body of {node.qualified_name}: {error}", node)
    count = len(graph.inputs)
    if len(node.inputs) > count or len(node.outputs) > len(graph.outputs):
        return Rejection(
            f"{node.describe()} passes {len(node.inputs)} inputs and takes {len(node.outputs)} outputs; "
            "the function has "
            f"{count} and {len(graph.outputs)}",
            node,
        )

    def run(inputs: Sequence[RuntimeValue], scope: Scope, guard: RunGuard) -> tuple[RuntimeValue, ...]:
        padded = [*inputs, *[None] * (count - len(inputs))]
        return body.run(padded, {}, guard)

    return BoundNode(node, run)


def _bind_body(node: Node, graph: Graph, context: EvaluationContext, depth: int) -> BoundNode | Rejection:
    try:
        body = BoundGraph(graph, context, depth + 1)
    except KernelNotFoundError as error:
        return Rejection(f"in the body of {node.qualified_name}: {error}", node)
    return BoundNode(node, lambda inputs, scope, guard: body.run(inputs, {}, guard))


def instantiate(function: Function, node: Node) -> Graph:
    """Return a copy of a function's graph with the calling node's attributes in place of the references."""

    def resolve(attribute: Attribute) -> Attribute | None:
        if attribute.reference is None:
            return attribute
        given = node.attributes.get(attribute.reference, function.attribute_defaults.get(attribute.reference))
        if given is None:
            return None
        return Attribute(attribute.name, given.kind, given.value, given.reference)

    return clone_graph(function.graph, {}, resolve)


class _Step(NamedTuple):
    """One bound node with the slots that it reads, that its bodies capture, that it fills and frees."""

    run: RunNode
    pick: Callable[[Sequence[RuntimeValue]], Sequence[RuntimeValue]]
    captures: tuple[tuple[Value, int], ...]
    writes: tuple[int, ...]
    frees: tuple[int, ...]
    node: Node


class BoundGraph:
    """A graph whose nodes are all bound; runs any number of times and from any number of threads.

    Every value has a numbered slot, so that a run copies one list and indexes it.

    Raises:
        KernelNotFoundError: no implementation exists for a node; the message says why.
    """

    def __init__(self, graph: Graph, context: EvaluationContext, depth: int = 0) -> None:
        self.graph = graph
        slots = ValueSlots(graph)
        uses: list[StepUse[Value | None]] = []
        bound_nodes = []
        for node in graph:
            bound = bind_node(node, context, depth)
            if isinstance(bound, Rejection):
                raise KernelNotFoundError(f"{node.describe()}: {bound.reason}")
            bound_nodes.append(bound)
            uses.append(StepUse((*node.inputs, *captured_values(node)), node.outputs))
        self._steps = [_step(*each) for each in zip(bound_nodes, uses, slots.uses(uses), strict=True)]
        self._outputs = picker(slots.of(graph.outputs))
        self._template, self._outer = slots.template(), tuple(slots.captures)

    def run(
        self, inputs: Sequence[RuntimeValue], outer: Scope, guard: RunGuard, observe: Observer | None = None
    ) -> tuple[RuntimeValue, ...]:
        """Return the graph's outputs for its formal inputs.

        Args:
            inputs: one value per formal input; ``None`` leaves a default (or an absent optional) in place.
            outer: the values of enclosing graphs that this one captures.
            guard: asked before every node.
            observe: called behind every node with its start in ns, its inputs and its results.
        """
        values = self._template.copy()
        for slot, value in enumerate(inputs):
            if value is not None:
                values[slot] = value
        for outer_value, slot in self._outer:
            values[slot] = outer[outer_value]
        if observe is not None and not isinstance(guard, _ObservedGuard):
            guard = _ObservedGuard(guard, observe)
        check = guard.check
        for run, pick, captures, writes, frees, node in self._steps:
            check()
            arguments = pick(values)
            scope = {value: values[slot] for value, slot in captures} if captures else _NO_SCOPE
            start = time.perf_counter_ns() if observe is not None else 0
            results = run(arguments, scope, guard)
            if len(results) < len(writes):
                raise _too_few_outputs(node, len(results))
            for slot, result in zip(writes, results):
                if slot >= 0:
                    values[slot] = result
            if observe is not None:
                observe(node, start, arguments, results)
            for slot in frees:
                values[slot] = None
        return tuple(self._outputs(values))


def _step(bound: BoundNode, values: StepUse[Value | None], use: SlotUse) -> _Step:
    count = len(bound.node.inputs)
    captures = tuple([(v, slot) for v, slot in zip(values.reads[count:], use.reads[count:]) if v is not None])
    return _Step(bound.run, picker(use.reads[:count]), captures, use.writes, use.frees, bound.node)


_NO_SCOPE: Scope = {}


class _ObservedGuard:
    """A guard that takes the observer of a run to the bodies of control-flow nodes, which are given the guard alone."""

    __slots__ = ("_guard", "check", "check_allocation", "in_place", "observe")

    def __init__(self, guard: RunGuard, observe: Observer) -> None:
        self._guard = guard
        self.check = guard.check
        self.check_allocation = guard.check_allocation
        self.in_place = guard.in_place
        self.observe = observe


class BoundSubgraph:
    """The body of a control-flow node, with its captured values bound: a ``SubgraphRunner``."""

    __slots__ = ("_body", "_guard", "_scope")

    def __init__(self, body: RunnableBody, scope: Scope, guard: RunGuard) -> None:
        self._body, self._scope, self._guard = body, scope, guard

    @property
    def input_count(self) -> int:
        """Number of formal inputs of the body."""
        return len(self._body.graph.inputs)

    @property
    def input_types(self) -> tuple[ValueType | None, ...]:
        """Types of the body's formal inputs."""
        return tuple(value.type for value in self._body.graph.inputs)

    @property
    def output_types(self) -> tuple[ValueType | None, ...]:
        """Types of the body's outputs."""
        return tuple(value.type for value in self._body.graph.outputs)

    def __call__(self, *inputs: RuntimeValue) -> tuple[RuntimeValue, ...]:
        """Run the body once; an observer of the run sees its nodes as well."""
        guard = self._guard
        return self._body.run(inputs, self._scope, guard, guard.observe if isinstance(guard, _ObservedGuard) else None)


def evaluate_node(
    node: Node, inputs: Sequence[RuntimeValue], context: EvaluationContext, guard: RunGuard | None = None
) -> tuple[RuntimeValue, ...] | Rejection:
    """Run one node on given inputs, for constant folding and checks; a failure is a Rejection with the reason.

    What ``guard`` refuses is a failure, too; without one there are no limits.
    """
    bound = bind_node(node, context)
    if isinstance(bound, Rejection):
        return bound
    try:
        return bound.run(inputs, {}, Unguarded() if guard is None else guard)
    except (OrtError, MemoryError) as error:
        return Rejection(str(error), node)


def _too_few_outputs(node: Node, count: int) -> OrtError:
    return RuntimeException(
        f"Non-zero status code returned while running {node.op_type} node. Name:'{node.name}' "
        f"the kernel returned {count} outputs, the node has {len(node.outputs)}"
    )


def normalize(result: object) -> tuple[RuntimeValue, ...]:
    """Return a kernel's result as a tuple of run-time values; numpy scalars become 0-d arrays."""
    if type(result) is np.ndarray:
        return (result,)
    results = result if isinstance(result, tuple) else (result,)
    return tuple(np.asarray(r) if isinstance(r, np.generic) else r for r in results)


def runtime_attribute(attribute: Attribute) -> RuntimeValue:
    """Return an attribute's value in the form that kernels take."""
    value = attribute.value
    if isinstance(value, tuple):
        return tuple(_runtime_scalar(item) for item in value)
    return _runtime_scalar(value)


def _runtime_scalar(value: object) -> RuntimeValue:
    if isinstance(value, Constant):
        return value.array()
    if isinstance(value, SparseConstant):
        return SparseArray(value.values.array(), value.indices.array(), value.shape)
    return value


def failed(node: Node, inputs: Sequence[RuntimeValue], error: BaseException) -> OrtError:
    """Return the error for an exception that a kernel let out."""
    found = ", ".join(_summary(value) for value in inputs)
    if isinstance(error, ValueError) and _NUMPY_ON_AXES in str(error):
        return RuntimeException(
            f"Non-zero status code returned while running {node.op_type} node. Name:'{node.name}' "
            f"with inputs ({found}): a result would have more axes than the {MAX_AXES} of a tensor"
        )
    return RuntimeException(
        f"Non-zero status code returned while running {node.op_type} node. Name:'{node.name}' "
        f"(domain {node.domain or 'ai.onnx'!r}) with inputs ({found}): {type(error).__name__}: {error}"
    )


def _without_memory(node: Node, error: MemoryError) -> OrtError:
    """Return the error for memory that the system did not give: numpy's exception tells the shape and the type."""
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
    wanted = "more memory than the system gives"
    if isinstance(shape, tuple) and isinstance(dtype, np.dtype):
        nbytes = math.prod(shape) * dtype.itemsize
        wanted = f"{nbytes} bytes for {dtype}{list(shape)}, which the system does not give"
    return _located(AllocationLimitExceeded(f"{node.op_type} needs {wanted}; check the model's shapes"), node)


def _located(error: OrtError, node: Node) -> OrtError:
    if getattr(error, "located", False):
        return error
    message = (
        f"Non-zero status code returned while running {node.op_type} node. Name:'{node.name}' Status Message: {error}"
    )
    located = (NodeFailed if type(error) is InvalidArgument else type(error))(message)
    located.located = True  # type: ignore[attr-defined]  # marks that the innermost node is named already
    return located


def _summary(value: RuntimeValue) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return type(value).__name__
