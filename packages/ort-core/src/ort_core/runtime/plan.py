"""ExecutionPlan: compiled partitions in order, over numbered slots. Immutable, shared by any number of threads."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ort_core.errors import EPFail, InvalidArgument, OrtError, did_you_mean
from ort_core.forks import new_lock
from ort_core.frozen import frozen
from ort_core.interruptions import raise_interruption
from ort_core.ir.rejection import Rejection
from ort_core.memory.slots import picker
from ort_core.runtime.device_values import (
    NO_TARGETS,
    DeviceTarget,
    buffers_to_fill,
    kept_or_copied,
    shape_of,
    slots_between,
    slots_kept_on_devices,
)
from ort_core.runtime.limits import DEFAULT_RUN, RunSettings
from ort_core.runtime.state import PlanRunState
from ort_core.runtime.taken_memory import TakenMemoryState, are_apart, may_share
from ort_core.tensors.device_array import DeviceArray

if TYPE_CHECKING:
    from ort_core.ir.graph import Graph
    from ort_core.ir.types import ValueType
    from ort_core.ir.values import Value
    from ort_core.providers.compiled import CompiledPartition, DirectCalls, PartitionPlan
    from ort_core.providers.result_border import ResultBorder
    from ort_core.tensors.runtime_value import RuntimeValue, Scope

log = logging.getLogger(__name__)
Signature = tuple[object, ...]
PlainRun = Callable[[list["RuntimeValue"], PlanRunState], list["RuntimeValue"]]
NO_SLOTS: Mapping[int, DeviceTarget] = {}
MAX_PLANS = 64  # signatures kept per partition; a decode loop whose shapes change each step must not grow without end


class PlanStep(Protocol):
    """One thing that the plan does, in order."""

    @property
    def name(self) -> str:
        """The step's name in reports and errors."""

    def execute(self, arguments: list[RuntimeValue], run_state: PlanRunState) -> Sequence[RuntimeValue]:
        """Return the step's outputs."""

    def close(self) -> None:
        """Give back what the step holds."""


class PartitionStep:
    """Runs one compiled partition; plans for known signatures are kept, least recently used ones dropped.

    ``border`` looks at what the partition returns, unless it says that it need not be.
    """

    def __init__(
        self, name: str, provider: str, compiled: CompiledPartition, output_count: int,
        border: ResultBorder | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self._border = border if compiled.results_are_checked else None
        self.provider = provider
        self.compiled = compiled
        self._output_count = output_count
        self._plans: OrderedDict[Signature, PartitionPlan] = OrderedDict()
        self._lock = new_lock()
        limit = compiled.runs_at_once
        self._turns = threading.BoundedSemaphore(limit) if limit is not None else None

    def execute(
        self,
        arguments: list[RuntimeValue],
        run_state: PlanRunState,
        targets: Sequence[DeviceTarget | None] | None = None,
    ) -> Sequence[RuntimeValue]:
        """Run the partition once; ``targets`` are places on devices where outputs are wanted.

        Raises:
            EPFail: the provider raised something that is no ``OrtError``, or returned what was not inferred.
        """
        outputs: list[RuntimeValue] = [None] * self._output_count
        try:
            plan = self._plan_for(arguments)
            if targets is not None:
                outputs = buffers_to_fill(targets, plan.outputs, self.compiled.device)
            if self._turns is None:
                self.compiled.run(plan, arguments, outputs, run_state)
            else:
                with self._turns:
                    self.compiled.run(plan, arguments, outputs, run_state)
        except (OrtError, RecursionError):
            raise
        except Exception as error:  # the border to providers
            raise_interruption(error)
            raise self._failed(error) from error
        if self._border is not None:
            self._border.check(arguments, outputs)
        return outputs

    def plain_run(self, reads: Sequence[int], places: Sequence[int]) -> PlainRun | None:
        """Return a run from a plan's slots to the partition's results at some places; ``None`` where none is plain."""
        if self._turns is not None or self._border is not None or self.compiled.device is not None:
            return None
        function = self.compiled.plain_function()
        if function is None:
            return None
        pick, give = picker(reads), picker(places)

        def run(values: list[RuntimeValue], run_state: PlanRunState) -> list[RuntimeValue]:
            try:
                return list(give(function(pick(values), run_state)))
            except (OrtError, RecursionError):
                raise
            except Exception as error:  # as in ``execute``
                raise_interruption(error)
                raise self._failed(error) from error

        return run

    def _failed(self, error: Exception) -> EPFail:
        return EPFail(f"{self.provider} failed while running partition {self.name!r}: {type(error).__name__}: {error}")

    def close(self) -> None:
        """Close the compiled partition. One that fails to close is told in the log: the others close."""
        try:
            self.compiled.close()
        except Exception as error:  # noqa: BLE001 - the border to plugins
            raise_interruption(error)
            log.warning(
                "%s failed to close partition %r: %s: %s", self.provider, self.name, type(error).__name__, error
            )

    def _plan_for(self, arguments: Sequence[RuntimeValue]) -> PartitionPlan:
        compiled = self.compiled
        if not compiled.plans_by_shape and not compiled.value_inputs and () in self._plans:
            return self._plans[()]
        shapes = [shape_of(v) for v in arguments] if compiled.plans_by_shape else []
        known = {i: arguments[i] for i in compiled.value_inputs}
        signature = (*shapes, *(v.tobytes() for v in known.values()))
        plan = self._plans.get(signature)
        if plan is None:
            plan = compiled.plan(shapes, known)
            with self._lock:
                self._plans[signature] = plan
                if len(self._plans) > MAX_PLANS:
                    self._plans.popitem(last=False)
        return plan


@frozen
class PlannedStep:
    """A step with the slots that it reads, writes and frees."""

    step: PlanStep
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    frees: tuple[int, ...]


class ExecutionPlan:
    """All steps of one graph. Build with ``runtime.schedule.build_plan``.

    ``template`` holds what every run starts with: constants, ``None`` elsewhere. ``captures`` are the outer values
    that a nested plan reads, by slot.
    """

    def __init__(
        self,
        graph: Graph,
        steps: tuple[PlannedStep, ...],
        template: list[RuntimeValue],
        input_slots: Mapping[str, int],
        output_slots: Mapping[str, int],
        captures: tuple[tuple[Value, int], ...],
    ) -> None:
        self.graph = graph
        self.steps = steps
        self._template = template
        self.input_slots = input_slots
        self.output_slots = output_slots
        self._captures = captures
        self._all_outputs = tuple(output_slots[value.name] for value in graph.outputs)  # a name may stand there twice
        partitions = [s.step.compiled if isinstance(s.step, PartitionStep) else None for s in steps]
        self._devices = slots_kept_on_devices(
            zip((s.reads for s in steps), partitions, strict=True), output_slots.values()
        )
        self._between = slots_between(zip((s.writes for s in steps), partitions, strict=True), self._devices)
        self._formal_slots = tuple(input_slots[value.name] for value in graph.inputs)

    def run(
        self,
        feeds: Mapping[str, RuntimeValue],
        output_names: Sequence[str] | None = None,
        settings: RunSettings = DEFAULT_RUN,
        targets: Mapping[str, DeviceTarget] = NO_TARGETS,
    ) -> list[RuntimeValue]:
        """Run once.

        Args:
            feeds: values by input name, checked already (``runtime.feeds``); inputs with a default may be left out.
            output_names: which outputs to return, in this order; all when ``None`` or empty.
            settings: cancelling, limits, profiling.
            targets: outputs that are wanted on a device; one that its partition cannot put there comes on the host.

        Returns:
            One value per output name. No array shares memory with a feed or with a constant of the model, but for
            those that ``settings.bound`` names.

        Raises:
            OrtError: the run failed, was cancelled, or ran out of its limits.
        """
        slots = self._wanted(output_names)
        if settings.bound and len(self.steps) > 1:  # another step may read what the first one would write over
            settings = replace(settings, bound={})
        values = self._template.copy()
        for name, value in feeds.items():
            slot = self.input_slots[name]
            is_on_device = isinstance(value, DeviceArray)
            values[slot] = kept_or_copied(value, self._devices.get(slot)) if is_on_device else value
        self._execute(values, PlanRunState(settings), {self.output_slots[n]: t for n, t in targets.items()})
        results = [values[slot] for slot in slots]
        if not settings.bound:
            return detached(results, feeds.values())
        names = output_names or [value.name for value in self.graph.outputs]
        kept = {n: each for n, each in enumerate(results) if _is_at(each, settings.bound.get(names[n]))}
        others = detached([None if n in kept else each for n, each in enumerate(results)], feeds.values())
        return [kept.get(n, each) for n, each in enumerate(others)]

    def new_values(self) -> list[RuntimeValue]:
        """Return what a run starts with, by slot: constants."""
        return self._template.copy()

    def run_steps(self, values: list[RuntimeValue], run_state: PlanRunState) -> list[RuntimeValue]:
        """Run once over the slots' values; results may share memory with feeds: see ``detached``."""
        self._execute(values, run_state, NO_SLOTS)
        return [values[slot] for slot in self._all_outputs]

    def plain_run(self) -> PlainRun | None:
        """Return a run over the slots' values as ``run_steps``, without its steps, where one partition is the plan."""
        only = self.steps[0] if len(self.steps) == 1 else None
        if only is None or not isinstance(only.step, PartitionStep) or self._between:
            return None
        if not set(self._all_outputs) <= set(only.writes):
            return None
        return only.step.plain_run(only.reads, places_of(only.writes, self._all_outputs))

    def run_nested(
        self, inputs: Sequence[RuntimeValue], scope: Scope, run_state: PlanRunState
    ) -> tuple[RuntimeValue, ...]:
        """Run as the body of a control-flow node, with captured values from ``scope``."""
        values = self._template.copy()
        for slot, value in zip(self._formal_slots, inputs, strict=False):
            values[slot] = value
        for outer, slot in self._captures:
            values[slot] = scope[outer]
        self._execute(values, run_state, {})
        return tuple(values[slot] for slot in self._all_outputs)

    def direct_calls(self) -> DirectCalls | Rejection:
        """Return what its provider offers for runs in one native call, where one partition is the whole plan."""
        if len(self.steps) != 1 or not isinstance(self.steps[0].step, PartitionStep):
            return Rejection(f"the plan has {len(self.steps)} steps, expected one partition")
        planned, compiled = self.steps[0], self.steps[0].step.compiled
        if compiled.runs_at_once is not None:
            return Rejection("the partition limits how many runs there are at once")
        names = {self.input_slots[value.name]: value.name for value in self.graph.inputs}
        sources: list[str | np.ndarray] = []
        for slot in planned.reads:
            constant = self._template[slot]
            if constant is not None and not isinstance(constant, np.ndarray):
                return Rejection("a constant is not a tensor")
            if constant is None and slot not in names:
                return Rejection("the plan reads a value of an enclosing graph")
            sources.append(names[slot] if constant is None else constant)
        fed = {source for source in sources if isinstance(source, str)}
        unread = [v.name for v in self.graph.inputs if v.constant is None and v.name not in fed]
        if unread:
            return Rejection(f"input {unread[0]!r} is not read, but must be checked")
        if sorted(self._all_outputs) != sorted(planned.writes):
            return Rejection("outputs are not exactly what the partition computes")
        return compiled.direct_calls(sources, places_of(planned.writes, self._all_outputs))

    @property
    def input_count(self) -> int:
        """Number of formal inputs."""
        return len(self._formal_slots)

    @property
    def input_types(self) -> tuple[ValueType | None, ...]:
        """Types of the formal inputs."""
        return tuple(value.type for value in self.graph.inputs)

    @property
    def output_types(self) -> tuple[ValueType | None, ...]:
        """Types of the outputs."""
        return tuple(value.type for value in self.graph.outputs)

    @property
    def captures(self) -> tuple[Value, ...]:
        """Outer values that this plan reads."""
        return tuple(value for value, _ in self._captures)

    def close(self) -> None:
        """Give back everything that compiled partitions hold."""
        for planned in self.steps:
            planned.step.close()

    def _execute(
        self, values: list[RuntimeValue], run_state: PlanRunState, targets: Mapping[int, DeviceTarget]
    ) -> None:
        check = run_state.guard.check
        if self._between:
            targets = {**self._between, **targets}
        for planned in self.steps:
            check()
            arguments = [values[slot] for slot in planned.reads]
            if targets and isinstance(planned.step, PartitionStep):
                wanted = [targets.get(slot) for slot in planned.writes]
                results = planned.step.execute(arguments, run_state, wanted)
            else:
                results = planned.step.execute(arguments, run_state)
            for slot, result in zip(planned.writes, results, strict=True):
                values[slot] = result
            for slot in planned.frees:
                values[slot] = None

    def _wanted(self, output_names: Sequence[str] | None) -> tuple[int, ...]:
        if not output_names:
            return self._all_outputs
        try:
            return tuple([self.output_slots[name] for name in output_names])
        except KeyError as error:
            known = list(self.output_slots)
            name = error.args[0]
            raise InvalidArgument(
                f"Invalid output name:{name}.{did_you_mean(str(name), known)} The model's outputs: {', '.join(known)}."
            ) from None


def _is_at(result: RuntimeValue, address: int | None) -> bool:
    return isinstance(result, np.ndarray) and result.flags.c_contiguous and result.ctypes.data == address


def detached(results: list[RuntimeValue], feeds: Iterable[RuntimeValue]) -> list[RuntimeValue]:
    """Copy results that share memory with a feed, with a constant (those are read-only) or with one another."""
    feeds = list(feeds)
    if are_apart(results, feeds):
        return results
    if len(results) == 1 and type(result := results[0]) is np.ndarray:  # of most small models: without a state
        flags = result.flags
        if not flags.writeable:
            results[0] = result.copy()
            return results
        for feed in feeds:
            if type(feed) is not np.ndarray or may_share(result, feed):
                results[0] = result.copy()
                return results
        if not flags.c_contiguous:
            results[0] = np.ascontiguousarray(result)
        return results
    return _apart(results, TakenMemoryState(_arrays_in(feeds)))


def _arrays_in(values: Iterable[RuntimeValue]) -> Iterator[np.ndarray]:
    """Yield arrays, and those in sequences."""
    for value in values:
        if isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, list):
            yield from _arrays_in(value)


def _apart(results: list[RuntimeValue], taken: TakenMemoryState) -> list[RuntimeValue]:
    for index, result in enumerate(results):
        if isinstance(result, np.ndarray):
            if not result.flags.writeable or taken.overlaps(result):
                result = results[index] = result.copy()
            elif not result.flags.c_contiguous:
                result = results[index] = np.ascontiguousarray(result)
            taken.add(result)
        elif isinstance(result, list):
            results[index] = _apart(list(result), taken.copy())
    return results


def places_of(slots: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """Return where each wanted slot stands among slots."""
    place = {slot: index for index, slot in reversed(list(enumerate(slots)))}
    return [place[slot] for slot in wanted]
