"""Steps by cuDNN: its heuristics propose plans, the best of them are built, timed and kept.

A plan belongs to a layout of tensors, whatever the stream; handles and scratch memory belong to streams.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ort_core.plugin import EPFail
from ort_core.plugin.ir import DataType
from ort_ep_cuda import _sdk
from ort_ep_cuda.engines.cudnn_operations import Tensors, describe, new_graph, refuse_form
from ort_ep_cuda.engines.tuning import Candidate, LibraryStream, Tuner, bucket
from ort_ep_cuda.lowering.libraries.library_steps import AnyLibraryStep, Convolution
from ort_ep_cuda.options import CudaOptions

SMALL_SCRATCH_NBYTES = 32 << 20  # onnxruntime's bound where cudnn_conv_use_max_workspace is 0
CANDIDATES = {
    "DEFAULT": 1,
    "HEURISTIC": 3,
    "EXHAUSTIVE": 16,
}  # by cudnn_conv_algo_search; building one takes 0.1 to 1 s


OWN = "generated"  # the candidate that is no plan of the library


class CudnnStream(LibraryStream, Protocol):
    """A stream with a handle of cuDNN."""

    @property
    def cudnn_handle(self) -> Any:  # Any: cuDNN's handle
        """The handle, whose work goes to this stream."""


@dataclass(slots=True)
class CudnnPlan:
    """A graph whose operations are known to the library; ``lock`` guards it: one thread may use it at a time."""

    graph: Any  # Any: cuDNN's graph
    tensors: Tensors
    lock: threading.Lock
    built: dict[str, tuple[int, int]]
    chosen: str | None = None


class CudnnPlans:
    """The plans of one session on one device. Safe from many threads.

    Args:
        options: how engines are chosen, and whether float32 may be rounded.
        tuner: chooses among candidates.
        handle: gives a handle for questions; ``None`` with ``device``.
        device: a description of a device that is not here.
    """

    def __init__(
        self, options: CudaOptions, tuner: Tuner, handle: Callable[[], Any] | None, device: Any = None
    ) -> None:  # Any: cuDNN's objects
        self._options, self._tuner, self._handle, self._device = options, tuner, handle, device
        self._plans: dict[AnyLibraryStep, CudnnPlan | str] = {}
        self._lock = threading.Lock()

    def refuse(self, step: AnyLibraryStep) -> str | None:
        """Return why a step is not run: its form, or what the library's own check says of it."""
        reason = refuse_form(step) or self._refuse_slow(step)
        if reason is not None:
            return reason
        found = self._plan(step)
        return found if isinstance(found, str) else None

    def _refuse_slow(self, step: AnyLibraryStep) -> str | None:
        """Exact float32 has fast engines for a bias and ReLU; other fusions are written for tensor cores."""
        if not isinstance(step, Convolution) or step.out.dtype is not DataType.FLOAT or self._options.use_tf32:
            return None
        kind = step.epilogue.activation.kind if step.epilogue.activation is not None else "relu"
        is_plain = kind == "relu" and step.epilogue.addend is None
        return None if is_plain else f"cuDNN fuses a residual or {kind} with convolutions of 16 bits or TF32 only"

    def run(
        self,
        step: AnyLibraryStep,
        addresses: Sequence[int],
        stream: CudnnStream,
        own: Callable[[], None] | None = None,
    ) -> None:
        """Enqueue a step; the first of its layout is tuned.

        Args:
            step: what is computed.
            addresses: of its operands.
            stream: where it is enqueued.
            own: enqueues generated kernels that do the same; they run where they are faster.

        Raises:
            EPFail: no plan of the library runs it, and nothing else does.
        """
        plan = self._plan(step)
        if isinstance(plan, str):
            raise EPFail(plan)
        with plan.lock:
            if plan.chosen is None:
                plan.chosen = self._chosen(plan, step, addresses, stream, own)
            if plan.chosen == OWN and own is not None:
                own()
            else:
                self._execute(plan, plan.chosen, addresses, stream)

    def candidates(self, step: AnyLibraryStep) -> Sequence[str]:
        """Return the names of the plans that heuristics propose for a step, best first, with excluded ones."""
        plan = self._plan(step)
        return () if isinstance(plan, str) else _names(plan.graph)

    def _plan(self, step: AnyLibraryStep) -> CudnnPlan | str:
        key = step.layout()
        with self._lock:
            if key not in self._plans:
                try:
                    self._plans[key] = self._described(key)
                except _sdk.library_errors() as error:
                    self._plans[key] = f"cuDNN: {str(error).splitlines()[0]}"
            return self._plans[key]

    def _described(self, step: AnyLibraryStep) -> CudnnPlan:
        cudnn = _sdk.cudnn()
        graph = new_graph(cudnn, step, None if self._handle is None else self._handle(), self._device)
        tensors = describe(cudnn, graph, step)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        if step.out.dtype is DataType.FLOAT and not self._options.use_tf32:
            notes = cudnn.numerical_note
            graph.deselect_numeric_notes(
                [notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS, notes.REDUCED_PRECISION_REDUCTION]
            )
        if not self._options.cudnn_conv_use_max_workspace:
            graph.deselect_workspace_greater_than(SMALL_SCRATCH_NBYTES)
        graph.check_support()
        return CudnnPlan(graph, tensors, threading.Lock(), {})

    def _chosen(
        self,
        plan: CudnnPlan,
        step: AnyLibraryStep,
        addresses: Sequence[int],
        stream: CudnnStream,
        own: Callable[[], None] | None,
    ) -> str:
        """Return the fastest plan: the remembered one, else of the first that build, and of generated kernels."""
        key = tuning_key(step, self._options)
        known = self._tuner.find(key)
        names = _names(plan.graph)
        if known == OWN.encode() and own is not None:
            return OWN
        if known is not None and known.decode() in names and self._build(plan, names, known.decode()) is None:
            return known.decode()
        found: list[Candidate] = []
        reasons: list[str] = []
        for name in names:
            if len(found) == CANDIDATES[self._options.search]:
                break
            reason = self._build(plan, names, name)
            if reason is None:
                found.append(Candidate(name.encode(), self._call(plan, name, addresses, stream)))
            else:
                reasons.append(reason)
        if own is not None:
            found.append(Candidate(OWN.encode(), own))
        if not found:
            raise EPFail(f"cuDNN builds no plan for {step}: {'; '.join(dict.fromkeys(reasons)) or 'none'}")
        return self._tuner.choose(key, found, stream).name.decode()

    def _build(self, plan: CudnnPlan, names: Sequence[str], name: str) -> str | None:
        """Build a plan by name; return why it cannot be, ``None`` where it is built."""
        index = names.index(name)
        try:
            plan.graph.build_plan_at_index(index)
            plan.built[name] = (index, max(int(plan.graph.get_workspace_size_plan_at_index(index)), 0))
        except _sdk.library_errors() as error:  # one that its notes exclude is refused here, too
            return str(error).splitlines()[0]
        return None

    def _call(self, plan: CudnnPlan, name: str, addresses: Sequence[int], stream: CudnnStream) -> Callable[[], None]:
        return lambda: self._execute(plan, name, addresses, stream)

    def _execute(self, plan: CudnnPlan, name: str, addresses: Sequence[int], stream: CudnnStream) -> None:
        index, scratch_nbytes = plan.built[name]
        places = dict(zip(plan.tensors, addresses, strict=True))
        scratch = stream.scratch(max(scratch_nbytes, 1))
        plan.graph.execute_plan_at_index(places, scratch, index=index, handle=stream.cudnn_handle)


def _names(graph: Any) -> list[str]:  # Any: cuDNN's graph
    return [str(graph.get_plan_name_at_index(index)) for index in range(int(graph.get_execution_plan_count()))]


def tuning_key(step: AnyLibraryStep, options: CudaOptions) -> str:
    """Return what the fastest plan depends on: the operations with their layouts, the batch by powers of two."""
    layout = step.layout()
    views = [replace(view, shape=(bucket(view.shape[0]), *view.shape[1:])) for view in layout.operands]
    shapes = " ".join(f"{list(view.shape)}:{list(view.strides[1:])}" for view in views)
    is_rounded = int(options.use_tf32 and step.out.dtype is DataType.FLOAT)
    limits = f"tf32={is_rounded} scratch={int(options.cudnn_conv_use_max_workspace)}"
    return f"{step_kind(layout)} {step.out.dtype.text} {limits} {options.search} {shapes}"


def step_kind(step: AnyLibraryStep) -> str:
    """Return a step's text without its tensors: kind, window, epilogue, scale."""
    return " ".join(word for word in str(step).split(" ") if not word.startswith("%") and "[" not in word)
