"""EvaluationContext: what binding a node needs to know of its model and session, whoever binds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Protocol

from ort_core.errors import InvalidGraph
from ort_core.frozen import frozen
from ort_core.ir.graph import Graph
from ort_core.ir.model import Function
from ort_core.ir.nodes import Node
from ort_core.kernels.device_kernel import DeviceKernels
from ort_core.kernels.kernel import RunGuard
from ort_core.kernels.observer import Observer
from ort_core.kernels.registry import KernelRegistry
from ort_core.loops.rows import OpMeaning
from ort_core.ops.registry import SchemaRegistry
from ort_core.ops.version_table import VersionTable
from ort_core.tensors.runtime_value import RuntimeValue, Scope


@frozen
class EvaluationContext:
    """What binding needs to know of the model and of the session around it.

    ``meanings`` and ``device_kernels`` are those of users' operators, for providers that compile or run them.
    ``num_threads`` is how many threads a kernel may use. ``bodies`` binds the bodies of control-flow nodes; they are
    bound to kernels node by node when it is ``None``.
    """

    kernels: KernelRegistry
    schemas: SchemaRegistry
    opset_imports: Mapping[str, int]
    functions: Mapping[tuple[str, str, str], Function] = field(default_factory=dict)
    seed: int | None = None
    meanings: VersionTable[OpMeaning] = field(default_factory=VersionTable)
    device_kernels: DeviceKernels = field(default_factory=dict)
    num_threads: int = 1
    bodies: BindBody | None = None

    def opset_of(self, node: Node) -> int:
        """Return the version of the node's domain that applies to it.

        Raises:
            InvalidGraph: the model does not import the domain.
        """
        version = node.opset if node.opset is not None else self.opset_imports.get(node.domain)
        if version is None:
            if node.domain in ("com.microsoft", "com.microsoft.nchwc"):
                return 1  # onnxruntime's own operators; its tools leave the import out
            raise InvalidGraph(
                f"{node.describe()}: the model imports no version of domain {node.domain!r}; "
                f"it imports {dict(self.opset_imports)}"
            )
        return version

    def inside(self, function: Function) -> EvaluationContext:
        """Return the context of a function's body."""
        imports = {**self.opset_imports, **function.opset_imports}
        return replace(self, opset_imports=imports)


class RunnableBody(Protocol):
    """A body of a control-flow node, ready to run."""

    @property
    def graph(self) -> Graph:
        """The graph that it computes."""

    def run(
        self, inputs: Sequence[RuntimeValue], outer: Scope, guard: RunGuard, observe: Observer | None = None
    ) -> tuple[RuntimeValue, ...]:
        """Return the outputs for the formal inputs; as ``BoundGraph.run``."""


BindBody = Callable[[Graph, EvaluationContext, int], RunnableBody]
"""``bind(graph, context, depth)`` of ``EvaluationContext.bodies``; ``depth`` counts the bodies around it."""
