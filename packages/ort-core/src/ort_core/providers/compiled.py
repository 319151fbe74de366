"""What a provider is given to compile, and what it gives back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.rejection import Rejection
from ort_core.ops.last_inference import LastInference
from ort_core.providers.compile_faults import CompileFaultsState
from ort_core.providers.thread_options import ThreadOptions

if TYPE_CHECKING:
    from ort_core.ir.graph import Graph
    from ort_core.ir.model import Model
    from ort_core.ir.types import DataType
    from ort_core.kernels.evaluation_context import EvaluationContext
    from ort_core.kernels.kernel import RunGuard
    from ort_core.kernels.observer import Observer
    from ort_core.providers.capability import GraphView
    from ort_core.providers.execution import NodeExecution
    from ort_core.providers.step_facts import StepFacts
    from ort_core.tensors.device import Device
    from ort_core.tensors.runtime_value import RuntimeValue


@frozen
class CompileRequest:
    """A partition to compile.

    ``graph`` is the partition's own copy: its inputs, outputs and constants are the border, its nodes the claim after
    the provider's fusions. ``services`` are what the environment offers by name: ``weights``,
    the WeightStore, and ``devices``, the DeviceDirectory. ``faults`` takes note of nodes that failed to compile and run
    in a plainer way. Without ``short_cuts`` everything takes its ordinary way: somebody debugs. ``inferred`` is what
    was found of the graph's types, as ``known_contents`` takes it; it is forgotten when the partition is compiled.
    """

    name: str
    graph: Graph
    context: EvaluationContext
    threads: ThreadOptions = field(default_factory=ThreadOptions)
    seed: int | None = None
    services: Mapping[str, Any] = field(default_factory=dict)  # Any: each service has its own type, named in plugin
    faults: CompileFaultsState = field(default_factory=CompileFaultsState)
    short_cuts: bool = True
    inferred: LastInference = field(default_factory=LastInference)

    @property
    def num_threads(self) -> int:
        """How many threads the provider may use, the caller's own included; 0: it chooses."""
        return self.threads.num_threads

    def view(self) -> GraphView:
        """Return the partition as ``ExecutionProvider.get_capability`` sees a graph: every node is on offer."""
        from ort_core.providers.capability import GraphView  # asked by providers that compile, not by every session

        return GraphView(self._model(), self.graph, tuple(self.graph), self.context)

    def to_onnx(
        self,
        *,
        weights: str = "inline",
        weight_names: Collection[str] | None = None,
        legalize: Callable[[Graph], None] | None = None,
    ) -> bytes:
        """Return the partition as a serialized ONNX model, for SDKs that read ONNX.

        Its inputs and outputs are those of ``graph``, by name and in order; the arguments are those of
        ``GraphView.to_onnx``. Nodes that the provider's own fusions made are written as they are.

        Example:
            ``sdk.read_model(request.to_onnx())`` with a vendor's SDK, in ``ExecutionProvider.compile``.
        """
        from ort_core.ir.subgraph import clone_graph  # with the serializer, only by who needs it
        from ort_core.providers.capability import write_onnx

        return write_onnx(self._model(), clone_graph(self.graph), weights, weight_names, legalize)

    def _model(self) -> Model:
        from ort_core.ir.model import Model  # as in view: a session out of the cache compiles nothing

        return Model(self.graph, dict(self.context.opset_imports), dict(self.context.functions))


@frozen
class OutputPlan:
    """What is known of one output before the run."""

    dtype: DataType | None = None
    shape: tuple[int, ...] | None = None


@frozen
class PartitionPlan:
    """The decisions for one signature of input shapes; immutable, kept and shared by threads."""

    outputs: tuple[OutputPlan, ...]


class RunState(Protocol):
    """What belongs to one run: guard, observer, allocation. Handed to ``CompiledPartition.run``."""

    @property
    def guard(self) -> RunGuard:
        """Asked at region borders: raises when the run must stop."""

    @property
    def observer(self) -> Observer | None:
        """Called behind each node when profiling, else ``None``."""

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return a new buffer for an output whose shape was unknown; checked against the allocation limit."""


DirectFunction = Callable[[object, object], list[Any] | None]  # Any: RuntimeValues, nearly always arrays
"""``call(feeds, outputs)`` of ``DirectCalls``."""


PlainFunction = Callable[[Sequence[Any], RunState], Sequence[Any]]  # Any: RuntimeValues
"""``function(inputs, run_state)`` of ``CompiledPartition.plain_function``."""


class DirectCalls(Protocol):
    """Runs of a whole model, from feeds to outputs, in one native call for signatures that are known.

    ``call(feeds, outputs)`` returns a list of outputs when ``feeds`` is a dict of exactly the expected names and plain
    arrays whose element types and shapes it knows, and ``None`` for everything else: then the ordinary run follows. It
    never raises for what it is given, and never returns memory of a feed. Outputs that are maps or strings may be among
    the list. ``outputs`` is ``None`` for new arrays, or a
    tuple with an array to write to, or ``None``, for each output; their contents are undefined when the call answers
    ``None``. Safe from many threads.
    """

    @property
    def call(self) -> DirectFunction:
        """The function over what is known now."""

    def learn(self, feeds: Mapping[str, object], *, is_limited: bool = False) -> None:
        """Take note of the checked feeds of an ordinary run that succeeded: their signature may become known.

        ``is_limited``: the session has limits of its own, so what is known are signatures that were run under them.
        Else others like it may become known too, which take no more than half of the memory of the process.
        """


class CompiledPartition(ABC):
    """A partition ready to run. Immutable: what changes during a run is in the RunState.

    ``runs_at_once`` limits concurrent runs (``None``: any number); the runtime pools when it is set.
    """

    runs_at_once: int | None = None
    plans_by_shape: bool = True
    """Whether ``plan`` depends on the input shapes; one plan serves all runs otherwise."""
    value_inputs: tuple[int, ...] = ()
    """Inputs (small integer tensors) whose values, not only shapes, decide the plan."""
    results_are_checked: bool = True
    """Whether results are compared with the inferred types and shapes; not where they are made from these."""
    device: Device | None = None
    """The device whose memory ``run`` reads and fills in place: inputs and buffers may be its ``DeviceArray``, too."""

    @abstractmethod
    def plan(self, shapes: Sequence[tuple[int, ...] | None], known_values: Mapping[int, np.ndarray]) -> PartitionPlan:
        """Return the plan for a signature: one shape per input (``None``: no dense tensor)."""

    @abstractmethod
    def run(
        self,
        plan: PartitionPlan,
        inputs: Sequence[RuntimeValue],
        outputs: list[RuntimeValue],
        run_state: RunState,
    ) -> None:
        """Compute the outputs.

        ``outputs`` has one entry per output: a buffer of the planned shape to fill, or ``None`` to replace by the
        result. With a ``device``, inputs other than ``value_inputs`` and buffers may be arrays of it.
        """

    def direct_calls(self, sources: Sequence[str | np.ndarray], order: Sequence[int]) -> DirectCalls | Rejection:
        """Offer runs in one native call, for a partition that is a whole model.

        Args:
            sources: for each input the name of its feed, or the constant that it always is.
            order: which of the partition's outputs each output of the model is.
        """
        return Rejection("this provider offers no direct calls")

    def plain_function(self) -> PlainFunction | None:
        """Return a function of the inputs that gives the results, in order; ``None`` where only ``run`` does.

        It serves runs that bring no buffers, have no plan of their sizes and are made again and again: it may leave
        out what ``run`` does for all others. Asked once, by the first run that can use it.
        """
        return None

    def executions(self) -> Sequence[NodeExecution]:
        """Return how each node of the compiled graph runs, those of bodies included; nothing where all run in one way.

        Asked by ``session.explain()``, never by a load or a run: what it takes may be made anew here.
        """
        return ()

    def steps(self, sizes: Mapping[str, int]) -> Sequence[StepFacts]:
        """Return the steps of which this consists, in running order, for people; nothing if it shows none.

        Args:
            sizes: named sizes, as far as they are known.
        """
        return ()

    def code(self, form: str, kernel: str | None = None) -> Mapping[str, str] | Rejection:
        """Return generated code as text, by the names of kernels, or why there is none.

        Args:
            form: the provider's word, such as ``llvm`` or ``asm``; a rejection names those that there are.
            kernel: the name of the only kernel wanted, or how it begins; all when ``None``.
        """
        return Rejection("this provider shows no code")

    def serialize(self) -> bytes | Rejection:
        """Return bytes from which ``ExecutionProvider.load`` restores this, or why there are none.

        The graph and its weights need not be among them unless the provider says ``loads_without_graph``.
        """
        return Rejection("this provider does not store compiled partitions")

    def remember(self) -> Sequence[bytes | memoryview] | Rejection:
        """Return this as bytes, in parts to be joined, which ``ExecutionProvider.recall`` takes, or why not.

        Everything that runs need must be in them: there is no graph, and there are no weights. Later
        processes on this machine, with the same files, options and versions, read them from mapped memory, aligned to
        64 bytes.
        """
        return Rejection("this provider does not remember partitions")

    def close(self) -> None:  # noqa: B027 - most partitions hold nothing that must be given back
        """Give back what this holds; called once, when no run is under way."""
