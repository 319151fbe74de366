"""measure_placement(): times what providers could run, and says which of them is not offered which node, and why.

The answer is kept in the artefact cache by the model's structure, the providers with their versions and options, the
threads, the inputs' shapes and this machine. Everything that decides is in ``partitioning.policies.measured``.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ort_core.cache.key import CacheKey
from ort_core.cache.store import ArtefactCache
from ort_core.errors import Fail, OrtError
from ort_core.frozen import frozen
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.structure import ModelStructure
from ort_core.ir.traversal import graphs_of
from ort_core.measured_placement.regions_alone import estimate_regions
from ort_core.measured_placement.request import MeasureRequest
from ort_core.measured_placement.whole_runs import WholeRunsState
from ort_core.optimized_cache import code_facts
from ort_core.partitioning.assign import assign_by_priority
from ort_core.partitioning.policies.measured import (
    Assignment,
    Estimate,
    MeasuredChoice,
    Region,
    decide,
    finalists,
    find_regions,
)
from ort_core.runtime.feeds import FeedChecker
from ort_core.sample_inputs import sample_inputs
from ort_core.tensors.runtime_value import RuntimeValue

log = logging.getLogger(__name__)

_KIND = "placement"


@frozen
class MeasuredPlacement:
    """Which (provider, node) are not to be offered and why, and sentences that explain the decision."""

    exclusions: dict[tuple[str, Node], str]
    explanation: tuple[str, ...]
    is_from_cache: bool = False


def measure_placement(request: MeasureRequest) -> MeasuredPlacement:
    """Return the cheapest placement, measured or remembered; where that is impossible priority's, with the reason."""
    regions = _regions(request)
    if not any(region.is_contested for region in regions):
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
    """Return the regions of the model's graph, then those of the bodies of its control-flow nodes."""
    found = [region for graph in graphs_of(request.model.graph) for region in _regions_of(request, graph)]
    return tuple(sorted(found, key=lambda region: region.is_inside))


def _regions_of(request: MeasureRequest, graph: Graph) -> tuple[Region, ...]:
    claimed = {}
    for provider in request.providers:
        alone = assign_by_priority(
            request.model, graph, [provider], request.build.context, request.exclusions, request.restored
        )
        claimed[provider.name] = [claim.nodes for claim in alone.claims if claim.nodes[0] not in request.restored]
    return find_regions(graph, claimed, is_inside=graph is not request.model.graph)


def _measure(
    request: MeasureRequest, regions: Sequence[Region], feeds: Mapping[str, RuntimeValue]
) -> MeasuredPlacement:
    outer = [region for region in regions if not region.is_inside]
    is_mixable = sum(region.is_contested for region in outer) > 1  # else the uniform assignments are all there are
    estimate = estimate_regions(request, outer, feeds) if is_mixable else None
    whole = WholeRunsState(request, regions, feeds)
    try:
        measured = decide(finalists(regions, estimate), whole.compare)
    finally:
        whole.close()
    if whole.failures.keys() >= measured.totals.keys():
        raise Fail("; ".join(whole.failures.values()))
    figures = _Figures(regions, estimate, measured, whole.failures)
    return MeasuredPlacement(figures.exclusions(), tuple(figures.explain()))


@frozen
class _Figures:
    """What was measured, in words."""

    regions: Sequence[Region]
    estimate: Estimate | None
    measured: MeasuredChoice
    failures: Mapping[Assignment, str]

    def exclusions(self) -> dict[tuple[str, Node], str]:
        """Return, for each region, the providers before the chosen one, with the reason in figures."""
        found = {}
        for index, (region, chosen) in enumerate(zip(self.regions, self.measured.choice, strict=True)):
            for name in region.providers[: region.providers.index(chosen)]:
                reason = f"measured placement: {self._why_not(index, name, chosen)}"
                found.update({(name, node): reason for node in region.nodes})
        return found

    def _why_not(self, index: int, name: str, chosen: str) -> str:
        estimate, totals = self.estimate, self.measured.totals
        if estimate is not None and not self.regions[index].is_inside:
            failed = estimate.failures.get((index, name))
            return (
                failed or f"{_ms(estimate.alone[index][name])} here, {_ms(estimate.alone[index][chosen])} on {chosen}"
            )
        rivals = [choice for choice in totals if choice[index] == name]
        best = min(rivals, key=totals.__getitem__)
        if best in self.failures:
            return self.failures[best]
        return f"the whole model takes {_ms(totals[best])} with it, {_ms(totals[self.measured.choice])} as chosen"

    def explain(self) -> Iterator[str]:
        """Yield the lines of the report."""
        for index, times in enumerate(self.estimate.alone if self.estimate is not None else ()):
            region = self.regions[index]
            if region.is_contested:
                alone = ", ".join(f"{name} {_ms(times[name])}" for name in region.providers)
                kinds = ", ".join(dict.fromkeys(node.op_type for node in region.nodes[:8]))
                yield (
                    f"measured: {len(region.nodes)} nodes ({kinds}) alone: {alone}; "
                    f"chosen: {self.measured.choice[index]}"
                )
        for choice, total in self.measured.totals.items() if len(self.measured.totals) > 1 else ():
            mark = " (chosen)" if choice == self.measured.choice else ""
            yield f"measured: whole model on {self._shares(choice)}: {_ms(total)}{mark}"

    def _shares(self, choice: Assignment) -> str:
        counts: dict[str, int] = {}
        for region, name in zip(self.regions, choice, strict=True):
            counts[name] = counts.get(name, 0) + len(region.nodes)
        return ", ".join(f"{name} ({count} nodes)" if len(counts) > 1 else name for name, count in counts.items())


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


def _nodes(graph: Graph) -> list[Node]:
    return [node for each in graphs_of(graph) for node in each]


def _encode(placement: MeasuredPlacement, graph: Graph) -> bytes:
    number = {node: index for index, node in enumerate(_nodes(graph))}
    rows = [[name, number[node], reason] for (name, node), reason in placement.exclusions.items()]
    return json.dumps({"exclusions": rows, "explanation": placement.explanation}).encode()


def _decode(content: bytes | None, graph: Graph) -> MeasuredPlacement | None:
    if content is None:
        return None
    nodes = _nodes(graph)
    try:
        data = json.loads(content)
        exclusions = {(str(name), nodes[int(index)]): str(reason) for name, index, reason in data["exclusions"]}
        return MeasuredPlacement(exclusions, tuple(str(line) for line in data["explanation"]), is_from_cache=True)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        log.warning("a placement in the cache cannot be read and is measured again: %s", error)
        return None
