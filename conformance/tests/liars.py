"""One honest provider, and liars that differ from it in one point each."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import ml_dtypes
import numpy as np

from ort_core.plugin import (
    Claim,
    KernelPartition,
    KernelProvider,
    OutputPlan,
    PartitionPlan,
    Rejection,
    Unavailable,
)
from ort_core.plugin.ir import SymbolicDim
from ort_core.plugin.kernels import BoundGraph

NAME = "LiarExecutionProvider"
LEAK_NBYTES = 200_000


@dataclass(frozen=True, slots=True)
class Options:
    """Options of every provider here.

    Attributes:
        fast_math: has no effect.
        level: has none either.
    """

    fast_math: bool = False
    level: int = 0


@dataclass(frozen=True, slots=True)
class SilentOptions:
    """Options of which one is not explained.

    Attributes:
        level: has no effect.
    """

    level: int = 0
    depth: int = 0


class HonestPartition(KernelPartition):
    """Runs the reference kernels, in order."""

    def __init__(self, provider, request):
        super().__init__(BoundGraph(request.graph, request.context))
        self.provider, self.request = provider, request
        self.name = ",".join(node.op_type for node in request.graph)

    def serialize(self):
        return b"honest:" + self.name.encode()


class Honest(KernelProvider):
    """Keeps every promise, and declares every feature but those of a device."""

    name: ClassVar[str] = NAME
    options_type: ClassVar[type] = Options
    partition: ClassVar[type] = HonestPartition

    def compile(self, request):
        return self.partition(self, request)

    def load(self, blob, request):
        compiled = self.compile(request)
        return compiled if blob == HonestPartition.serialize(compiled) else Rejection("these bytes are not mine")


def running(twist: Callable) -> type[Honest]:
    """Return a provider whose runs end in ``twist(partition, inputs, outputs, run_state)``."""

    class Twisted(HonestPartition):
        def __init__(self, provider, request):
            super().__init__(provider, request)
            self.memory = {}

        def run(self, plan, inputs, outputs, run_state):
            super().run(plan, inputs, outputs, run_state)
            twist(self, inputs, outputs, run_state)

    return type("Liar", (Honest,), {"partition": Twisted})


def overriding(**members: object) -> type[Honest]:
    """Return a provider with other members."""
    return type("Liar", (Honest,), members)


def add(outputs: list, amount: float) -> None:
    """Change every float output."""
    for index, value in enumerate(outputs):
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            outputs[index] = value + value.dtype.type(amount)


def _claims_all(self, view):
    return [Claim(tuple(view.nodes))]


def _all_but_sequences(self, view):
    wanted = [node for node in view.nodes if not node.op_type.startswith("Sequence")]
    others = [Rejection("a sequence", node) for node in view.nodes if node.op_type.startswith("Sequence")]
    return [Claim(tuple(wanted)), *others]


def _tensors_only(self, view):
    sequences = [node for node in view.nodes if "Sequence" in node.op_type]
    wanted = [node for node in view.nodes if node not in sequences]
    return [Claim(tuple(wanted)), *[Rejection("a sequence", node) for node in sequences]]


_turn = itertools.count()


def _every_other_time(self, view):
    if next(_turn) % 2:
        return [Rejection("not now", node) for node in view.nodes]
    return Honest.get_capability(self, view)


def _renames_what_it_sees(self, view):
    for node in view.nodes:
        object.__setattr__(node, "op_type", "Identity") if node.op_type == "Relu" else None
    return Honest.get_capability(self, view)


def _static_only(self, view):
    def is_static(node):
        types = [value.type for value in (*node.present_inputs(), *node.present_outputs())]
        shapes = [getattr(each, "shape", None) for each in types]
        return all(shape is not None and not any(isinstance(dim, SymbolicDim) for dim in shape) for shape in shapes)

    return [Claim((n,)) if is_static(n) else Rejection("a symbolic size", n) for n in view.nodes]


def _no_bodies(self, view):
    return [Rejection("it has a body", n) if n.subgraphs() else Claim((n,)) for n in view.nodes]


class SecondIsWrong(HonestPartition):
    """Wrong in every partition but the first of its provider."""

    def run(self, plan, inputs, outputs, run_state):
        self.provider.compiled = getattr(self.provider, "compiled", [])
        if self not in self.provider.compiled:
            self.provider.compiled.append(self)
        super().run(plan, inputs, outputs, run_state)
        add(outputs, self.provider.compiled.index(self))


def _refuses_other_threads(self, request):
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("this compiler works in the main thread only")
    return Honest.compile(self, request)


class PlansWrongShapes(HonestPartition):
    """States a shape that no output has."""

    def plan(self, shapes, known_values):
        return PartitionPlan(tuple(OutputPlan(shape=(1, 1, 1)) for _ in self.request.graph.outputs))


class ReplacesBuffers(HonestPartition):
    """Never fills the buffer that it is handed."""

    def run(self, plan, inputs, outputs, run_state):
        outputs[:] = [None] * len(outputs)
        super().run(plan, inputs, outputs, run_state)


class OneAtATime(HonestPartition):
    """Limits itself to one run."""

    runs_at_once = 1


class SwallowsErrors(HonestPartition):
    """Gives zeros where the computation fails."""

    def run(self, plan, inputs, outputs, run_state):
        try:
            super().run(plan, inputs, outputs, run_state)
        except Exception:  # noqa: BLE001 - that is the lie
            outputs[:] = [np.zeros(1, np.float32)] * len(outputs)


class ReadsInMemoryOrder(HonestPartition):
    """Takes what lies behind an array's first element for the others."""

    def run(self, plan, inputs, outputs, run_state):
        inputs = [_from_its_address_on(x) if isinstance(x, np.ndarray) else x for x in inputs]
        super().run(plan, inputs, outputs, run_state)


def _from_its_address_on(array):
    strides = np.empty(array.shape, array.dtype).strides
    return np.lib.stride_tricks.as_strided(array, strides=strides, writeable=False)


class Narrow(HonestPartition):
    """Computes with numbers of 8 significant bits."""

    def run(self, plan, inputs, outputs, run_state):
        narrow = [
            x.astype(ml_dtypes.bfloat16).astype(x.dtype) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x
            for x in inputs
        ]
        super().run(plan, narrow, outputs, run_state)


def _writes_into_inputs(partition, inputs, outputs, run_state):
    for value in inputs:
        if isinstance(value, np.ndarray) and value.flags.writeable and value.dtype.kind == "f":
            value += 1


def _returns_one_buffer(partition, inputs, outputs, run_state):
    for index, value in enumerate(outputs):
        if isinstance(value, np.ndarray):
            kept = partition.memory.setdefault((index, value.shape, value.dtype), value)
            np.copyto(kept, value)
            outputs[index] = kept


def _wrong_from_the_second_run_on(partition, inputs, outputs, run_state):
    add(outputs, 1.0 if partition.memory.setdefault("runs", 0) else 0.0)
    partition.memory["runs"] += 1


def _wrong_behind_other_sizes(partition, inputs, outputs, run_state):
    seen = partition.memory.setdefault("sizes", set())
    seen.add(tuple(np.shape(value) for value in inputs))
    add(outputs, len(seen) - 1.0)


def _wrong_in_other_threads(partition, inputs, outputs, run_state):
    add(outputs, 0.0 if threading.current_thread() is threading.main_thread() else 1.0)


def _noise(size: float) -> Callable:
    def twist(partition, inputs, outputs, run_state):
        partition.memory["runs"] = partition.memory.get("runs", 0) + 1
        add(outputs, size * partition.memory["runs"])

    return twist


_sessions = itertools.count()


def _another_bit_in_every_session(partition, inputs, outputs, run_state):
    add(outputs, 1e-6 * partition.memory.setdefault("number", next(_sessions)))


def _prints(partition, inputs, outputs, run_state):
    print("a run")  # noqa: T201 - that is the lie


def _wrong_when_watched(partition, inputs, outputs, run_state):
    add(outputs, 1.0 if run_state.observer is not None else 0.0)


LEAKED: list[object] = []
IDLE = threading.Event()


def forget_leaks() -> None:
    """Give back what liars kept, and end their threads."""
    global IDLE  # noqa: PLW0603 - threads wait for the event that was there when they began
    LEAKED.clear()
    IDLE.set()
    IDLE = threading.Event()


def _keeps(what: np.ndarray) -> None:
    LEAKED.append(what + 1)  # written to, so that the memory is resident


def _leaks_in_runs(partition, inputs, outputs, run_state):
    _keeps(np.zeros(LEAK_NBYTES, np.uint8))


def _leaks_in_compile(self, request):
    _keeps(np.zeros(LEAK_NBYTES, np.uint8))
    return Honest.compile(self, request)


def _keeps_weights(self, request):
    for value in request.graph.initializers:
        for _ in range(3):  # more than what else is given back meanwhile, at the end of a long run of tests
            _keeps(value.constant.array())
    return Honest.compile(self, request)


def _starts_threads(self, request):
    threading.Thread(target=IDLE.wait, daemon=True).start()
    return Honest.compile(self, request)


def _ignores_options(self, options=None):
    Honest.__init__(self, {})


def _loads_another(self, blob, request):
    return running(lambda partition, inputs, outputs, run_state: add(outputs, 1.0))().compile(request)


def _loads_anything(self, blob, request):
    compiled = Honest.load(self, blob, request)
    return compiled if not isinstance(compiled, Rejection) else _loads_another(self, blob, request)


def _raises(*arguments):
    raise OSError("the driver is upset")


LIARS: dict[str, type[Honest]] = {
    "contract/is_discovered_under_its_name": overriding(name="LiarBackend"),
    "contract/check_answers_without_raising": overriding(check=classmethod(_raises)),
    "contract/unavailability_is_explained": overriding(check=classmethod(lambda cls: Unavailable("  "))),
    "contract/every_option_says_what_it_is_for": overriding(options_type=SilentOptions),
    "contract/unknown_option_is_refused_by_name": overriding(__init__=_ignores_options),
    "contract/option_of_a_wrong_type_is_refused_by_name": overriding(__init__=_ignores_options),
    "contract/claims_are_claims_or_reasons": overriding(get_capability=lambda self, view: []),
    "contract/claims_are_disjoint": overriding(
        get_capability=lambda self, view: [Claim((node,)) for node in view.nodes] * 2
    ),
    "contract/claims_are_convex": overriding(get_capability=_all_but_sequences),
    "contract/claims_are_deterministic": overriding(get_capability=_every_other_time),
    "contract/claiming_leaves_the_graph_alone": overriding(get_capability=_renames_what_it_sees),
    "contract/claims_stay_within_what_is_offered": overriding(
        get_capability=lambda self, view: [Claim(tuple(view.graph.nodes))]
    ),
    "contract/an_operator_that_nobody_knows_is_refused": overriding(get_capability=_claims_all),
    "contract/control_flow_is_claimed_whole": overriding(get_capability=_no_bodies),
    "contract/compiling_twice_gives_equal_results": overriding(partition=SecondIsWrong),
    "contract/compiling_from_threads_works": overriding(compile=_refuses_other_threads),
    "contract/plans_tell_the_truth": overriding(partition=PlansWrongShapes),
    "contract/inputs_are_left_alone": running(_writes_into_inputs),
    "contract/results_stay_when_the_next_run_comes": running(_returns_one_buffer),
    "contract/the_process_is_left_as_it_was": running(_prints),
    "contract/sample_graphs_are_computed_rightly": running(lambda p, i, outputs, s: add(outputs, 1.0)),
    "data/bound_arrays_give_the_same_as_feeds": running(_wrong_from_the_second_run_on),
    "data/arrays_of_any_layout_are_read_rightly": overriding(
        partition=ReadsInMemoryOrder, get_capability=_tensors_only
    ),
    "data/values_pass_through_dlpack": running(_wrong_from_the_second_run_on),
    "data/outputs_share_no_memory": running(_returns_one_buffer),
    "data/partitions_fill_the_buffers_that_they_are_handed": overriding(partition=ReplacesBuffers),
    "data/device_memory_keeps_values": Honest,  # the profile declares memory of a device, and there is none
    "threads/one_session_serves_many_threads": running(_wrong_in_other_threads),
    "threads/threads_may_use_other_shapes": running(_wrong_in_other_threads),
    "threads/sessions_are_made_and_closed_while_others_run": running(_wrong_in_other_threads),
    "threads/partitions_run_any_number_of_times_at_once": overriding(partition=OneAtATime),
    "errors/wrong_feeds_are_refused_by_name": running(_wrong_from_the_second_run_on),
    "errors/sizes_that_do_not_fit_are_an_error": overriding(partition=SwallowsErrors),
    "errors/an_index_out_of_bounds_is_an_error": overriding(partition=SwallowsErrors),
    "resources/a_thousand_runs_leave_no_memory_behind": running(_leaks_in_runs),
    "resources/growing_and_shrinking_inputs_leave_no_memory_behind": running(_leaks_in_runs),
    "resources/a_thousand_sessions_leave_no_memory_behind": overriding(compile=_leaks_in_compile),
    "resources/sessions_leave_no_threads_behind": overriding(compile=_starts_threads),
    "resources/a_closed_session_gives_its_weights_back": overriding(compile=_keeps_weights),
    "determinism/runs_agree_within_tolerance": running(_noise(0.01)),
    "determinism/what_constants_decide_is_the_same_in_every_run": running(_wrong_from_the_second_run_on),
    "determinism/runs_agree_bit_by_bit": running(_noise(1e-6)),
    "determinism/sessions_agree_bit_by_bit": running(_another_bit_in_every_session),
    "determinism/other_sizes_in_between_change_nothing": running(_wrong_behind_other_sizes),
    "determinism/models_with_symbolic_sizes_are_claimed": overriding(get_capability=_static_only),
    "cache/stored_partitions_compute_the_same": overriding(load=_loads_another),
    "cache/corrupt_bytes_are_refused": overriding(load=_loads_anything),
    "cache/the_cache_key_depends_on_the_options": overriding(cache_key=lambda self: self.name),
    "profiling/a_profiled_run_gives_the_same": running(_wrong_when_watched),
}
"""A liar for each promise that a provider can break within one process."""

KEPT_BY_THE_CORE = {
    "errors/a_terminated_run_stops": "the executor asks the guard before every partition",
    "errors/a_closed_session_refuses_to_run": "the session refuses before any provider is reached",
    "profiling/events_name_their_provider": "the profiler names providers from the placement",
}
"""Promises that no provider can break: their checks hold the core to them. Why."""

IN_OTHER_PROCESSES = {
    "contract/importing_the_plugin_loads_no_sdk",
    "cache/two_processes_share_a_cache",
}
"""Promises whose liars are installed on disk: other processes must find them."""
