"""A provider that runs node by node from a KernelRegistry: the base for CPU-like providers and for the reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from ort_core.ir.rejection import Rejection
from ort_core.providers.eager_partition import EagerPartition
from ort_core.providers.provider import ExecutionProvider
from ort_core.providers.result_border import ResultBorder

if TYPE_CHECKING:
    from ort_core.ir.nodes import Node
    from ort_core.kernels.evaluation_context import EvaluationContext
    from ort_core.kernels.evaluator import BoundGraph
    from ort_core.kernels.observer import Observer
    from ort_core.kernels.registry import KernelRegistry
    from ort_core.providers.capability import Capability, GraphView
    from ort_core.providers.compiled import CompiledPartition, CompileRequest, RunState
    from ort_core.providers.execution import NodeExecution
    from ort_core.tensors.runtime_value import RuntimeValue


class KernelProvider(ExecutionProvider):
    """Claims every node that its kernels (or a function body over them) can run, in convex groups.

    A subclass gives ``kernels``. Control-flow nodes are claimed whole when everything in their bodies is covered.
    """

    name: ClassVar[str]

    def kernels(self) -> KernelRegistry | None:
        """Return the registry; the evaluation context's own when ``None``."""
        return None

    def get_capability(self, view: GraphView) -> Capability:
        """Return groups of covered nodes, and the kernel registry's reason for each other node."""
        from ort_core.providers.capability import Claim  # claiming pays for what a recalled partition has no use for
        from ort_core.providers.grouping import convex_groups

        offered = set(view.nodes)
        context, has_own_kernels = self._own_context(view.context), self.kernels() is not None
        refusals: dict[Node, Rejection] = {}
        covered: set[object] = set()  # what decides of plain nodes that they have a kernel: long graphs have few kinds
        for node in view.nodes:
            kind = None if node.has_graphs or has_own_kernels else _kind(node)
            if kind is not None and kind in covered:
                continue
            refusal = self._refusal(node, context)
            if refusal is not None:
                refusals[node] = refusal
            elif kind is not None:
                covered.add(kind)
        groups = convex_groups(view.graph.nodes, lambda n: n in offered and n not in refusals)
        return [*(Claim(group) for group in groups), *refusals.values()]

    def compile(self, request: CompileRequest) -> CompiledPartition:
        """Bind every node of the partition to its kernel."""
        from ort_core.kernels.evaluator import BoundGraph  # as in get_capability

        bound = BoundGraph(request.graph, self._own_context(request.context))
        return KernelPartition(bound, None if self.kernels() is None else self.name)

    def _own_context(self, context: EvaluationContext) -> EvaluationContext:
        own = self.kernels()
        return context if own is None else replace(context, kernels=own)

    def _refusal(self, node: Node, context: EvaluationContext) -> Rejection | None:
        from ort_core.kernels.evaluator import bind_node, find_implementation  # as in get_capability

        inside = _nodes_inside(node) if node.has_graphs else ()
        for inner in (node, *inside):
            found: object = find_implementation(inner, context)
            if found == "function" and self.kernels() is not None:
                found = bind_node(inner, context)  # kernels of its own may lack what the function's body needs
            if isinstance(found, Rejection):
                return Rejection(found.reason, node)
        return None


def _kind(node: Node) -> object:
    """Return all of a node without bodies that ``find_implementation`` looks at."""
    return node.domain, node.op_type, node.overload, node.opset, node.body is None, tuple(node.attributes)


def _nodes_inside(node: Node) -> Iterator[Node]:
    from ort_core.ir.traversal import walk  # as in get_capability

    return (inner for body in node.subgraphs() for inner in walk(body))


class KernelPartition(EagerPartition):
    """A partition whose nodes run one after the other, each result allocated by its kernel.

    Args:
        bound: the nodes with their kernels.
        provider: the name of the provider whose own kernels these are: then each result is compared with what was
            inferred. ``None`` for the kernels of the core, which others are compared with.
        reason: why the nodes run by kernels, where the provider has a better way.
    """

    def __init__(self, bound: BoundGraph, provider: str | None = None, reason: str = "") -> None:
        super().__init__(len(bound.graph.outputs))
        self._bound, self._provider, self._reason = bound, provider, reason
        self._borders: dict[Node, ResultBorder] = {}
        self.results_are_checked = provider is not None

    def compute(self, inputs: Sequence[RuntimeValue], run_state: RunState) -> Sequence[RuntimeValue]:
        """Run every node in order."""
        observe = run_state.observer if self._provider is None else self._checking(self._provider, run_state.observer)
        return self._bound.run(inputs, {}, run_state.guard, observe)

    def executions(self) -> Sequence[NodeExecution]:
        """Return that every node runs by a kernel: one of numpy's, or the provider's own."""
        from ort_core.ir.traversal import walk  # as in get_capability
        from ort_core.providers.execution import NodeExecution, body_path  # only reports ask

        how = "numpy" if self._provider is None else "kernel"
        nodes = walk(self._bound.graph)
        return [
            NodeExecution.of(node, how, "", self._reason, body_path(node.graph), is_plain=bool(self._reason))
            for node in nodes
        ]

    def _checking(self, provider: str, then: Observer | None) -> Observer:
        """Return an observer that looks at every node's results before another node reads them."""

        def check(
            node: Node, start: int, arguments: Sequence[RuntimeValue], results: Sequence[RuntimeValue], *more: Any
        ) -> None:  # Any: passed on
            border = self._borders.get(node)
            if border is None:
                border = self._borders[node] = ResultBorder(provider, "a kernel", node.inputs, node.outputs)
            border.check(arguments, results)
            if then is not None:
                then(node, start, arguments, results, *more)

        return check
