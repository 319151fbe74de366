"""Fake execution providers, one per promise of the contract: one keeps them all, the others each break one.

They run on any machine and prove how the core treats honest, refusing, failing and lying plugins.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Sequence
from typing import ClassVar

from ort_core.environment import Environment
from ort_core.plugin import (
    PLUGIN_API,
    Available,
    Capability,
    Claim,
    CompiledPartition,
    CompileRequest,
    EagerPartition,
    ExecutionProvider,
    GraphView,
    KernelPartition,
    Rejection,
    RunState,
    Unavailable,
    convex_groups,
)
from ort_core.plugin.ir import Node
from ort_core.plugin.kernels import BoundGraph, RuntimeValue
from ort_core.providers.discovery import PluginSource
from ort_core.testing.environments import own_sources


class EchoProvider(ExecutionProvider):
    """Keeps every promise: claims the operators of ``operators`` (all when empty) and runs them by reference kernels.

    ``compiled`` echoes, by class, the operators of each partition that was compiled.
    """

    name: ClassVar[str] = "EchoExecutionProvider"
    operators: ClassVar[Collection[str]] = ()
    compiled: ClassVar[list[tuple[str, ...]]] = []

    def get_capability(self, view: GraphView) -> Capability:
        """Claim the chosen operators in convex groups."""
        offered = set(view.nodes)
        groups = convex_groups(view.graph.nodes, lambda node: node in offered and self._wants(node))
        left = [Rejection(f"{self.name} does not run {n.op_type}", n) for n in view.nodes if not self._wants(n)]
        return [*(Claim(group) for group in groups), *left]

    def compile(self, request: CompileRequest) -> CompiledPartition:
        """Bind the reference kernels and echo what was compiled."""
        type(self).compiled.append(tuple(node.op_type for node in request.graph))
        return KernelPartition(BoundGraph(request.graph, request.context))

    def _wants(self, node: Node) -> bool:
        return not self.operators or node.op_type in self.operators


def echo_of(*operators: str, name: str = "EchoExecutionProvider") -> type[EchoProvider]:
    """Return a new EchoProvider class for some operators, with a record of its own."""
    return type("Echo", (EchoProvider,), {"operators": frozenset(operators), "compiled": [], "name": name})


class RefusingProvider(ExecutionProvider):
    """Refuses every node, with a reason."""

    name: ClassVar[str] = "RefusingExecutionProvider"

    def get_capability(self, view: GraphView) -> Capability:
        """Refuse everything."""
        return [Rejection("refuses on principle", node) for node in view.nodes]

    def compile(self, request: CompileRequest) -> CompiledPartition:
        """Never reached."""
        raise AssertionError("nothing was claimed")


class UnavailableProvider(RefusingProvider):
    """Says that it cannot run here, and what would help."""

    name: ClassVar[str] = "UnavailableExecutionProvider"

    @classmethod
    def check(cls) -> Available | Unavailable:
        """Return why not."""
        return Unavailable("no such device here", "buy one")


class BrokenCheckProvider(RefusingProvider):
    """Raises in ``check``, which the contract forbids."""

    name: ClassVar[str] = "BrokenCheckExecutionProvider"

    @classmethod
    def check(cls) -> Available | Unavailable:
        """Raise."""
        raise OSError("the driver is upset")


class FailsInClaim(EchoProvider):
    """Raises in ``get_capability``."""

    name: ClassVar[str] = "FailsInClaimExecutionProvider"

    def get_capability(self, view: GraphView) -> Capability:
        """Raise."""
        raise KeyError("forgot this operator")


class FailsInCompile(EchoProvider):
    """Claims everything and cannot compile it."""

    name: ClassVar[str] = "FailsInCompileExecutionProvider"

    def compile(self, request: CompileRequest) -> CompiledPartition:
        """Raise."""
        raise RuntimeError("the vendor's compiler gave up")


class FailsInRun(EchoProvider):
    """Compiles everything and fails when it runs."""

    name: ClassVar[str] = "FailsInRunExecutionProvider"

    def compile(self, request: CompileRequest) -> CompiledPartition:
        """Return a partition that fails."""
        return _FailingPartition(len(request.graph.outputs))


class _FailingPartition(EagerPartition):
    def compute(self, inputs: Sequence[RuntimeValue], run_state: RunState) -> Sequence[RuntimeValue]:
        raise RuntimeError("the device fell off the bus")


class LyingProvider(EchoProvider):
    """Returns whatever its ``lie`` makes of the view: claims that break a rule."""

    name: ClassVar[str] = "LyingExecutionProvider"
    lie: ClassVar[Callable[[GraphView], list[object]]]

    def get_capability(self, view: GraphView) -> Capability:
        """Lie."""
        return type(self).lie(view)  # type: ignore[return-value]  # a lie need not have the right type


def lying(lie: Callable[[GraphView], list[object]]) -> type[LyingProvider]:
    """Return a LyingProvider class that answers with ``lie(view)``."""
    return type("Lying", (LyingProvider,), {"lie": staticmethod(lie), "compiled": []})


def plugin_of(
    *providers: type[ExecutionProvider], name: str = "fake", api: object = PLUGIN_API, custom_ops: Sequence[object] = ()
) -> PluginSource:
    """Return a plugin in memory that offers the given providers and operators, for ``Environment(lambda: [...])``."""
    module = types.ModuleType(f"ort_fake_{name}")
    module.ORT_PLUGIN_API = api  # type: ignore[attr-defined]  # what every plugin module states
    if providers:
        module.ort_providers = lambda: list(providers)  # type: ignore[attr-defined]  # the hook
    if custom_ops:
        module.ort_custom_ops = lambda: list(custom_ops)  # type: ignore[attr-defined]  # the hook
    return PluginSource(name, f"ort-fake-{name}", module)


def environment_of(*sources: PluginSource) -> Environment:
    """Return an environment with ort-core's own plugins and the given ones, whatever else is installed."""
    return Environment(lambda: [*own_sources(), *sources])
