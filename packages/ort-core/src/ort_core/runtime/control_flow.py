"""Control flow in the runtime: If, Loop and Scan whose bodies are plans with partitions of several providers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ort_core.errors import KernelNotFoundError, OrtError
from ort_core.interruptions import raise_interruption
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import ValueType
from ort_core.ir.values import Value
from ort_core.kernels.evaluation_context import EvaluationContext
from ort_core.kernels.evaluator import failed, normalize, runtime_attribute
from ort_core.kernels.kernel import KernelContext
from ort_core.kernels.registry import wants_context
from ort_core.runtime.plan import ExecutionPlan
from ort_core.runtime.state import PlanRunState
from ort_core.tensors.runtime_value import RuntimeValue, Scope


class ControlFlowStep:
    """Runs a control-flow kernel, handing it its bodies as plans."""

    def __init__(
        self,
        name: str,
        node: Node,
        bodies: Mapping[str, ExecutionPlan],
        reads: tuple[Value, ...],
        context: EvaluationContext,
    ) -> None:
        self.name = name
        self._node = node
        self.bodies = bodies
        self._reads = reads
        self._opset = context.opset_of(node)
        self._seed = context.seed
        self._state: dict[str, Any] = {}  # Any: a kernel keeps what it likes
        spec = context.kernels.find(node.domain, node.op_type, self._opset)
        if isinstance(spec, Rejection):
            raise KernelNotFoundError(f"{node.describe()}: {spec}")
        self._function = spec.runnable(is_control_flow=not node.domain)
        self._wants_context = wants_context(spec.function)
        self._attributes = {a.name: runtime_attribute(a) for a in node.attributes.values() if a.name not in bodies}

    def execute(self, arguments: list[RuntimeValue], run_state: PlanRunState) -> Sequence[RuntimeValue]:
        """Run the node once; ``arguments`` are its inputs and captured values, each once."""
        node = self._node
        scope: Scope = dict(zip(self._reads, arguments, strict=True))
        inputs = [None if value is None else scope[value] for value in node.inputs]
        keywords = dict(self._attributes)
        for name, plan in self.bodies.items():
            keywords[name] = PlanSubgraph(plan, scope, run_state)
        if self._wants_context:
            keywords["ctx"] = self._context(run_state)
        try:
            results = normalize(self._function(*inputs, **keywords))
        except (OrtError, RecursionError):
            raise
        except Exception as error:  # the border to kernels
            raise_interruption(error)
            raise failed(node, inputs, error) from error
        return [result for value, result in zip(node.outputs, results, strict=False) if value is not None]

    def close(self) -> None:
        """Close the bodies' plans."""
        for plan in self.bodies.values():
            plan.close()

    def _context(self, run_state: PlanRunState) -> KernelContext:
        node = self._node
        return KernelContext(
            node.op_type, node.domain, self._opset, node.name, tuple(v is not None for v in node.outputs),
            tuple(None if v is None else v.type for v in node.outputs), self._state, run_state.guard, self._seed,
        )  # fmt: skip


class PlanSubgraph:
    """A body's plan with its captured values bound: a ``SubgraphRunner``."""

    __slots__ = ("_plan", "_run_state", "_scope")

    def __init__(self, plan: ExecutionPlan, scope: Scope, run_state: PlanRunState) -> None:
        self._plan, self._scope, self._run_state = plan, scope, run_state

    @property
    def input_count(self) -> int:
        """Number of formal inputs of the body."""
        return self._plan.input_count

    @property
    def input_types(self) -> tuple[ValueType | None, ...]:
        """Types of the body's formal inputs."""
        return self._plan.input_types

    @property
    def output_types(self) -> tuple[ValueType | None, ...]:
        """Types of the body's outputs."""
        return self._plan.output_types

    def __call__(self, *inputs: RuntimeValue) -> tuple[RuntimeValue, ...]:
        """Run the body once."""
        return self._plan.run_nested(inputs, self._scope, self._run_state)
