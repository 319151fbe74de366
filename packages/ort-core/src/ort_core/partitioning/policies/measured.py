"""The policy ``measured``: the cheapest assignment of regions to providers, from measured times. Pure functions.

A region is a convex set of nodes that the same claims cover, so each provider takes it whole or not. The time of a
region alone includes bringing its inputs to the provider's device and its outputs back. What a copy costs is known by
size and device, so neighbours on one provider are counted without the copies between them:

    cost(assignment) = sum of (time alone - copies at the region's border)
                     + copies of values that cross between providers or between a provider and the caller
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.providers.grouping import convex_groups

MAX_ASSIGNMENTS = 4096  # tried one by one; above, one region is changed at a time until nothing gets cheaper
MAX_SWEEPS = 16

CopyCost = Callable[[int, str], float]
"""``copy(nbytes, provider)``: nanoseconds to bring that many bytes to a provider's device, or back."""


@dataclass(frozen=True, slots=True)
class Region:
    """Nodes that the same providers claim, those in order of priority."""

    nodes: tuple[Node, ...]
    providers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Crossing:
    """A value that leaves the region that makes it: its size, its maker (``None``: the caller) and its readers."""

    nbytes: int
    maker: int | None
    readers: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class RegionTimes:
    """The time of each region alone by provider, in nanoseconds; infinite where a provider failed.

    ``failures`` gives the reason by (region, provider).
    """

    alone: tuple[Mapping[str, float], ...]
    failures: Mapping[tuple[int, str], str] = field(default_factory=dict)


Choice = tuple[str, ...]
"""A provider for each region."""


def find_regions(graph: Graph, claimed: Mapping[str, Sequence[Sequence[Node]]]) -> tuple[Region, ...]:
    """Return the regions of a graph.

    Args:
        graph: the graph.
        claimed: for each provider, most wanted first, the claims that it makes when every node is on offer.
    """
    covers: dict[Node, tuple[int | None, ...]] = {}
    number = {
        name: {node: index for index, claim in enumerate(claims) for node in claim} for name, claims in claimed.items()
    }
    for node in graph:
        covers[node] = tuple(number[name].get(node) for name in claimed)
    regions: list[Region] = []
    for cover in dict.fromkeys(covers.values()):
        names = tuple(name for name, claim in zip(claimed, cover, strict=True) if claim is not None)
        if names:
            groups = convex_groups(graph.nodes, lambda node, cover=cover: covers[node] == cover)  # type: ignore[misc]  # mypy has no type for a default that binds a loop variable
            regions.extend(Region(group, names) for group in groups)
    return tuple(regions)


def cost_of(choice: Choice, times: RegionTimes, crossings: Sequence[Crossing], copy: CopyCost) -> float:
    """Return the estimated time of an assignment in nanoseconds."""
    total = 0.0
    for index, provider in enumerate(choice):
        border = sum(copy(each.nbytes, provider) for each in crossings if _touches(each, index))
        total += max(0.0, times.alone[index][provider] - border)
    return total + sum(_crossing_cost(each, choice, copy) for each in crossings)


def _touches(crossing: Crossing, index: int) -> bool:
    return crossing.maker == index or index in crossing.readers


def _crossing_cost(crossing: Crossing, choice: Choice, copy: CopyCost) -> float:
    maker = None if crossing.maker is None else choice[crossing.maker]
    targets = {None if reader is None else choice[reader] for reader in crossing.readers} - {maker}
    if not targets:
        return 0.0
    leaving = 0.0 if maker is None else copy(crossing.nbytes, maker)
    return leaving + sum(copy(crossing.nbytes, target) for target in targets if target is not None)


def cheapest(regions: Sequence[Region], times: RegionTimes, crossings: Sequence[Crossing], copy: CopyCost) -> Choice:
    """Return the assignment of least cost; of equal ones that with the most wanted providers."""
    if math.prod(len(region.providers) for region in regions) <= MAX_ASSIGNMENTS:
        choices = itertools.product(*(region.providers for region in regions))
        return min(choices, key=lambda choice: cost_of(choice, times, crossings, copy))
    starts = uniform_choices(regions)
    found = (_descend(start, regions, times, crossings, copy) for start in starts)
    return min(found, key=lambda choice: cost_of(choice, times, crossings, copy))


def _descend(
    start: Choice, regions: Sequence[Region], times: RegionTimes, crossings: Sequence[Crossing], copy: CopyCost
) -> Choice:
    choice = start
    for _ in range(MAX_SWEEPS):
        before = choice
        for index, region in enumerate(regions):
            options = [(*choice[:index], name, *choice[index + 1 :]) for name in region.providers]
            choice = min([choice, *options], key=lambda each: cost_of(each, times, crossings, copy))
        if choice == before:
            break
    return choice


def uniform_choices(regions: Sequence[Region]) -> tuple[Choice, ...]:
    """Return priority's assignment, and for each provider the one that gives it all it claims."""
    names = dict.fromkeys(name for region in regions for name in region.providers)
    by_priority = tuple(region.providers[0] for region in regions)
    preferring = (
        tuple(name if name in region.providers else region.providers[0] for region in regions) for name in names
    )
    return tuple(dict.fromkeys([by_priority, *preferring]))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The assignment that was chosen, and the whole model's time under each that was tried, in nanoseconds."""

    choice: Choice
    totals: Mapping[Choice, float]


def decide(
    regions: Sequence[Region],
    times: RegionTimes,
    crossings: Sequence[Crossing],
    copy: CopyCost,
    measure: Callable[[Choice], float],
) -> Verdict:
    """Choose by estimate, then let the whole model decide between that, priority's rule and the uniform assignments.

    Estimates do not know what is lost where a cut ends a fusion; whole runs do. ``measure`` returns nanoseconds,
    infinity where the assignment cannot run.
    """
    finalists = dict.fromkeys([*uniform_choices(regions), cheapest(regions, times, crossings, copy)])
    possible = [
        choice for choice in finalists if all(math.isfinite(times.alone[i][name]) for i, name in enumerate(choice))
    ]
    totals = {choice: measure(choice) for choice in possible or finalists}
    return Verdict(min(totals, key=totals.__getitem__), totals)
