"""Estimates: every region run alone on each provider that claims it, with the values that it reads in a whole run."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence

import numpy as np

from ort_core.errors import OrtError
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.subgraph import border_of
from ort_core.ir.values import Value
from ort_core.measured_placement.request import MeasureRequest
from ort_core.measured_placement.timing import median_in_turns
from ort_core.partitioning.assign import Exclusions, assign_by_priority
from ort_core.partitioning.partition import Partition
from ort_core.partitioning.policies.measured import Assignment, Crossing, Estimate, Region, uniform_choices
from ort_core.providers.capability import Kinds
from ort_core.providers.provider import ExecutionProvider
from ort_core.runtime.limits import DEFAULT_RUN
from ort_core.runtime.plan import PartitionStep
from ort_core.runtime.schedule import compile_partition
from ort_core.runtime.state import PlanRunState
from ort_core.tensors.runtime_value import RuntimeValue

log = logging.getLogger(__name__)
Feeds = Mapping[str, RuntimeValue]


def estimate_regions(request: MeasureRequest, regions: Sequence[Region], feeds: Feeds) -> Estimate:
    """Time regions alone.

    Args:
        request: what is measured.
        regions: those of the model's own graph.
        feeds: checked inputs of the model.

    Raises:
        OrtError: no placement of the model runs on these feeds.
    """
    values = _border_values(request, regions, feeds)
    alone: list[Mapping[str, float]] = []
    failures: dict[tuple[int, str], str] = {}
    providers = {provider.name: provider for provider in request.providers}
    parts = {name: _in_parts(request, provider) for name, provider in providers.items()}
    for index, region in enumerate(regions):
        border = border_of(region.nodes)
        arguments = [values[value] for value in border.inputs]
        times: dict[str, float] = dict.fromkeys(region.providers, 0.0)  # without a choice the same in every assignment
        for name in region.providers if region.is_contested else ():
            part = Partition(f"measured-{index}", providers[name], region.nodes, border, in_parts=parts[name])
            found = _time_partition(part, arguments, request)
            times[name] = math.inf if isinstance(found, Rejection) else found
            if isinstance(found, Rejection):
                failures[index, name] = found.reason
        alone.append(times)

    def copy(nbytes: int, name: str) -> float:
        return request.copies.cost_ns(nbytes, providers[name].device_text())

    return Estimate(tuple(alone), _crossings(request.model.graph, regions, values), copy, failures)


def exclusions_for(regions: Sequence[Region], choice: Assignment) -> Exclusions:
    """Return, for each region, the providers before the chosen one as not to be offered its nodes."""
    return {
        (name, node): "being measured"
        for region, chosen in zip(regions, choice, strict=True)
        for name in region.providers[: region.providers.index(chosen)]
        for node in region.nodes
    }


def _border_values(request: MeasureRequest, regions: Sequence[Region], feeds: Feeds) -> dict[Value, RuntimeValue]:
    """Run once, each region on its least wanted provider first, and return what every region reads."""
    failure: OrtError | None = None
    for choice in reversed(uniform_choices(regions)):
        try:
            return _observed(request, regions, feeds, {**request.exclusions, **exclusions_for(regions, choice)})
        except OrtError as error:
            log.info("what regions read cannot be observed on %s: %s", choice, error)
            failure = error
    assert failure is not None, "there is at least one choice"
    raise failure


def _observed(
    request: MeasureRequest, regions: Sequence[Region], feeds: Feeds, exclusions: Exclusions
) -> dict[Value, RuntimeValue]:
    wanted = list(dict.fromkeys(value for region in regions for value in border_of(region.nodes).inputs))
    outside = [value for value in wanted if value.producer is not None]
    copy = request.model.clone()
    twins = dict(zip(request.model.graph.nodes, copy.graph.nodes, strict=True))
    made = [twins[value.producer].outputs[value.output_index] for value in outside if value.producer is not None]
    copy.graph.set_outputs([value for value in made if value is not None])
    copy.freeze()
    twin_exclusions = {(name, twins[node]): reason for (name, node), reason in exclusions.items() if node in twins}
    plan = request.plan(copy, twin_exclusions, {twins[node]: each for node, each in request.restored.items()})
    results = plan.run(feeds)
    request.release(plan)
    found: dict[Value, RuntimeValue] = dict(zip(outside, results, strict=True))
    for value in wanted:
        if value.producer is None:
            default = value.constant.array() if value.constant is not None else None
            found[value] = feeds.get(value.name, default)
    return found


def _in_parts(request: MeasureRequest, provider: ExecutionProvider) -> dict[Node, Kinds]:
    """Return the nodes of the model's graph that a provider claims in their parts."""
    alone = assign_by_priority(
        request.model, request.model.graph, [provider], request.build.context, request.exclusions, request.restored
    )
    return {node: kinds for claim in alone.claims for node, kinds in claim.in_parts.items()}


def _time_partition(part: Partition, arguments: list[RuntimeValue], request: MeasureRequest) -> float | Rejection:
    try:
        compiled = compile_partition(part, request.build)
        step = PartitionStep(part.name, part.provider.name, compiled, len(part.border.outputs))
        try:
            (median,) = median_in_turns(
                [lambda: step.execute(list(arguments), PlanRunState(DEFAULT_RUN))], request.clock
            )
            return median
        finally:
            step.close()
    except OrtError as error:
        return Rejection(str(error))


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
