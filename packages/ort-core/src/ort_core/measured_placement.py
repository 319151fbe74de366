"""measure_placement(): times what providers could run, and says which of them is not offered which node, and why.

The answer is kept in the artefact cache by the model's structure, the providers with their versions and options, the
threads, the inputs' shapes and this machine. Everything that decides is in ``partitioning.policies.measured``.
"""

from __future__ import annotations

import json
import logging
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ort_core.cache.key import CacheKey
from ort_core.cache.store import ArtefactCache
from ort_core.copy_costs import CopyCosts
from ort_core.errors import OrtError
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.structure import ModelStructure
from ort_core.ir.subgraph import border_of
from ort_core.ir.values import Value
from ort_core.kernels.evaluator import RuntimeValue
from ort_core.optimized_cache import code_facts
from ort_core.partitioning.assign import Exclusions, Restored, assign_by_priority
from ort_core.partitioning.partition import Partition, partition_graph
from ort_core.partitioning.policies.measured import (
    Choice,
    Crossing,
    Region,
    RegionTimes,
    Verdict,
    decide,
    find_regions,
    uniform_choices,
)
from ort_core.providers.provider import ExecutionProvider
from ort_core.runtime.feeds import FeedChecker
from ort_core.runtime.limits import DEFAULT_RUN
from ort_core.runtime.plan import ExecutionPlan, PartitionStep
from ort_core.runtime.schedule import BuildSettings, build_plan, compile_partition
from ort_core.runtime.state import PlanRunState
from ort_core.sample_inputs import sample_inputs

log = logging.getLogger(__name__)

Clock = Callable[[], int]
MIN_RUNS, MAX_RUNS = 5, 50
ENOUGH_NS = 200_000_000  # of measuring one thing: a model of 40 ms is run five times, one of 100 us fifty times
_KIND = "placement"


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """What is to be placed, and with what it is measured.

    ``exclusions`` are nodes that providers have lost already; ``given`` are the caller's sample inputs; ``copies``
    knows what copies cost.
    """

    model: Model
    providers: Sequence[ExecutionProvider]
    build: BuildSettings
    copies: CopyCosts
    given: Mapping[str, object] = field(default_factory=dict)
    exclusions: Exclusions = field(default_factory=dict)
    restored: Restored = field(default_factory=dict)
    clock: Clock = time.perf_counter_ns


@dataclass(frozen=True, slots=True)
class MeasuredPlacement:
    """Which (provider, node) are not to be offered and why, and sentences that explain the decision."""

    exclusions: dict[tuple[str, Node], str]
    explanation: tuple[str, ...]
    is_from_cache: bool = False


def measure_placement(request: MeasureRequest) -> MeasuredPlacement:
    """Return the cheapest placement, measured or remembered; where that is impossible priority's, with the reason."""
    regions = _regions(request)
    if not any(len(region.providers) > 1 for region in regions):
        return MeasuredPlacement({}, ("measured placement: no node is claimed by two providers",))
    feeds = sample_inputs(request.model.graph.inputs, request.given)
    if isinstance(feeds, Rejection):
        return MeasuredPlacement({}, (f"measured placement: placed by priority, for {feeds.reason}",))
    key = _key(request, feeds)
    cache = ArtefactCache()
    found = _decode(cache.get(key), request.model.graph)
    if found is not None:
        return found
    try:
        checked = FeedChecker(request.model.graph.inputs).convert(feeds)
        placement = _measure(request, regions, checked)
    except OrtError as error:
        return MeasuredPlacement({}, (f"measured placement: placed by priority, for the samples do not run: {error}",))
    cache.put(key, _encode(placement, request.model.graph))
    return placement


def _regions(request: MeasureRequest) -> tuple[Region, ...]:
    graph = request.model.graph
    claimed = {}
    for provider in request.providers:
        alone = assign_by_priority(
            request.model, graph, [provider], request.build.context, request.exclusions, request.restored
        )
        claimed[provider.name] = [claim.nodes for claim in alone.claims if claim.nodes[0] not in request.restored]
    return find_regions(graph, claimed)


def _measure(
    request: MeasureRequest, regions: Sequence[Region], feeds: Mapping[str, RuntimeValue]
) -> MeasuredPlacement:
    values = _border_values(request, regions, feeds)
    times = _times_alone(request, regions, values)
    crossings = _crossings(request.model.graph, regions, values)
    names = {provider.name: provider for provider in request.providers}
    verdict = decide(
        regions, times, crossings,
        lambda nbytes, name: request.copies.cost_ns(nbytes, names[name].device_text()),
        lambda choice: _time_whole(request, _exclusions(regions, choice, times), feeds),
    )  # fmt: skip
    exclusions = _exclusions(regions, verdict.choice, times)
    return MeasuredPlacement(exclusions, tuple(_explain(regions, times, verdict)))


def _plan(request: MeasureRequest, model: Model, exclusions: Exclusions, restored: Restored) -> ExecutionPlan:
    context = request.build.context
    partitioned = partition_graph(model, model.graph, request.providers, context, exclusions, restored=restored)
    return build_plan(partitioned, request.build)


def _border_values(
    request: MeasureRequest, regions: Sequence[Region], feeds: Mapping[str, RuntimeValue]
) -> dict[Value, RuntimeValue]:
    """Run once, each region on its least wanted provider first, and return what every region reads.

    Raises:
        OrtError: no placement runs.
    """
    failure: OrtError | None = None
    for choice in reversed(uniform_choices(regions)):
        exclusions = {**request.exclusions, **_exclusions(regions, choice, RegionTimes(()))}
        try:
            return _observed(request, regions, feeds, exclusions)
        except OrtError as error:
            log.info("what regions read cannot be observed on %s: %s", choice, error)
            failure = error
    assert failure is not None, "there is at least one choice"
    raise failure


def _observed(
    request: MeasureRequest, regions: Sequence[Region], feeds: Mapping[str, RuntimeValue], exclusions: Exclusions
) -> dict[Value, RuntimeValue]:
    wanted = list(dict.fromkeys(value for region in regions for value in border_of(region.nodes).inputs))
    outside = [value for value in wanted if value.producer is not None]
    copy = request.model.clone()
    twins = dict(zip(request.model.graph.nodes, copy.graph.nodes, strict=True))
    made = [twins[value.producer].outputs[value.output_index] for value in outside if value.producer is not None]
    copy.graph.set_outputs([value for value in made if value is not None])
    copy.freeze()
    twin_exclusions = {(name, twins[node]): reason for (name, node), reason in exclusions.items()}
    restored = {twins[node]: each for node, each in request.restored.items()}
    plan = _plan(request, copy, twin_exclusions, restored)
    results = plan.run(feeds)
    if not restored:
        plan.close()  # else restored partitions, which the session still needs, would be closed with it
    found: dict[Value, RuntimeValue] = dict(zip(outside, results, strict=True))
    for value in wanted:
        if value.producer is None:
            default = value.constant.array() if value.constant is not None else None
            found[value] = feeds.get(value.name, default)
    return found


def _times_alone(
    request: MeasureRequest, regions: Sequence[Region], values: Mapping[Value, RuntimeValue]
) -> RegionTimes:
    alone: list[Mapping[str, float]] = []
    failures: dict[tuple[int, str], str] = {}
    providers = {provider.name: provider for provider in request.providers}
    for index, region in enumerate(regions):
        border = border_of(region.nodes)
        arguments = [values[value] for value in border.inputs]
        times: dict[str, float] = {}
        for name in region.providers:
            if len(region.providers) == 1:
                times[name] = 0.0  # nothing to decide: the same in every assignment
                continue
            part = Partition(f"measured-{index}", providers[name], region.nodes, border)
            found = _time_partition(part, arguments, request)
            times[name] = math.inf if isinstance(found, Rejection) else found
            if isinstance(found, Rejection):
                failures[index, name] = found.reason
        alone.append(times)
    return RegionTimes(tuple(alone), failures)


def _time_partition(part: Partition, arguments: list[RuntimeValue], request: MeasureRequest) -> float | Rejection:
    try:
        compiled = compile_partition(part, request.build)
        step = PartitionStep(part.name, part.provider.name, compiled, len(part.border.outputs))
        try:
            return _median_ns(lambda: step.execute(list(arguments), PlanRunState(DEFAULT_RUN)), request.clock)
        finally:
            step.close()
    except OrtError as error:
        return Rejection(str(error))


def _time_whole(request: MeasureRequest, exclusions: Exclusions, feeds: Mapping[str, RuntimeValue]) -> float:
    try:
        plan = _plan(request, request.model, {**request.exclusions, **exclusions}, request.restored)
        try:
            return _median_ns(lambda: plan.run(feeds), request.clock)
        finally:
            if not request.restored:
                plan.close()  # as in _border_values
    except OrtError as error:
        log.info("an assignment cannot be measured: %s", error)
        return math.inf


def _median_ns(run: Callable[[], object], clock: Clock) -> float:
    run()  # plans, first touches of memory, what compiles late
    taken: list[int] = []
    while len(taken) < MIN_RUNS or (len(taken) < MAX_RUNS and sum(taken) < ENOUGH_NS):
        start = clock()
        run()
        taken.append(clock() - start)
    return statistics.median(taken)


def _crossings(graph: Graph, regions: Sequence[Region], values: Mapping[Value, RuntimeValue]) -> tuple[Crossing, ...]:
    region_of = {node: index for index, region in enumerate(regions) for node in region.nodes}
    readers: dict[Value, dict[int | None, None]] = {}
    for index, region in enumerate(regions):
        for value in border_of(region.nodes).inputs:
            readers.setdefault(value, {})[index] = None
    for value in graph.outputs:
        readers.setdefault(value, {})[None] = None
    return tuple(
        Crossing(
            _nbytes(values.get(value)), None if value.producer is None else region_of.get(value.producer), tuple(each)
        )
        for value, each in readers.items()
    )


def _nbytes(value: RuntimeValue) -> int:
    return value.nbytes if isinstance(value, np.ndarray) else 0


def _exclusions(regions: Sequence[Region], choice: Choice, times: RegionTimes) -> dict[tuple[str, Node], str]:
    """Return, for each region, the providers before the chosen one, with the reason in figures."""
    found = {}
    for index, (region, chosen) in enumerate(zip(regions, choice, strict=True)):
        for name in region.providers[: region.providers.index(chosen)]:
            what = times.failures.get((index, name)) or "not measured yet"
            if times.alone and (index, name) not in times.failures:
                what = f"{_ms(times.alone[index][name])} here, {_ms(times.alone[index][chosen])} on {chosen}"
            for node in region.nodes:
                found[name, node] = f"measured placement: {what}"
    return found


def _explain(regions: Sequence[Region], times: RegionTimes, verdict: Verdict) -> list[str]:
    lines = []
    for index, (region, chosen) in enumerate(zip(regions, verdict.choice, strict=True)):
        if len(region.providers) > 1:
            alone = ", ".join(f"{name} {_ms(times.alone[index][name])}" for name in region.providers)
            kinds = ", ".join(dict.fromkeys(node.op_type for node in region.nodes[:8]))
            lines.append(f"measured: {len(region.nodes)} nodes ({kinds}) alone: {alone}; chosen: {chosen}")
    for choice, total in verdict.totals.items():
        shares = ", ".join(dict.fromkeys(choice))
        mark = " (chosen)" if choice == verdict.choice else ""
        lines.append(f"measured: whole model on {shares}: {_ms(total)}{mark}")
    return lines


def _ms(time_ns: float) -> str:
    return f"{time_ns / 1e6:.3f} ms" if math.isfinite(time_ns) else "failed"


def _key(request: MeasureRequest, feeds: Mapping[str, object]) -> CacheKey:
    shapes = {name: (str(np.asarray(v).dtype), np.shape(v)) for name, v in feeds.items() if isinstance(v, np.ndarray)}
    lost = sorted({name for name, _ in request.exclusions})
    facts = (
        ("providers", repr([provider.cache_key() for provider in request.providers])),
        ("threads", repr(request.build.threads)),
        ("shapes", repr(sorted(shapes.items()))),
        ("lost", repr([(name, sum(each == name for each, _ in request.exclusions)) for name in lost])),
        ("processors", repr((os.cpu_count(), os.environ.get("ORT_INTRA_OP_NUM_THREADS")))),
        *code_facts(),
    )
    return CacheKey(_KIND, ModelStructure(request.model).digest, (), facts)


def _encode(placement: MeasuredPlacement, graph: Graph) -> bytes:
    number = {node: index for index, node in enumerate(graph)}
    rows = [[name, number[node], reason] for (name, node), reason in placement.exclusions.items()]
    return json.dumps({"exclusions": rows, "explanation": placement.explanation}).encode()


def _decode(content: bytes | None, graph: Graph) -> MeasuredPlacement | None:
    if content is None:
        return None
    nodes = graph.nodes
    try:
        data = json.loads(content)
        exclusions = {(str(name), nodes[int(index)]): str(reason) for name, index, reason in data["exclusions"]}
        return MeasuredPlacement(exclusions, tuple(str(line) for line in data["explanation"]), is_from_cache=True)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        log.warning("a placement in the cache cannot be read and is measured anew: %s", error)
        return None
