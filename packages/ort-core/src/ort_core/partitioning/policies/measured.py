"""The policy ``measured``: the cheapest assignment of regions to providers, from measured times. Pure functions.

A region is a convex set of nodes that the same claims cover, so each provider takes it whole or not. The time of a
region alone includes bringing its inputs to the provider's device and its outputs back. What a copy costs is known by
size and device, so neighbors on one provider are counted without the copies between them:

    cost(assignment) = sum of (time alone - copies at the region's border)
                     + copies of values that cross between providers or between a provider and the caller

Estimates do not know what is lost where a cut ends a fusion, nor what two engines cost each other; whole runs do. So
the cheapest assignment by estimate is only one of the finalists, and runs of the whole model decide between them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from ort_core.frozen import frozen
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.providers.grouping import convex_groups

MAX_ASSIGNMENTS = 4096  # tried one by one; above, one region is changed at a time until nothing gets cheaper
MAX_SWEEPS = 16

CopyCost = Callable[[int, str], float]
"""``copy(nbytes, provider)``: nanoseconds to bring that many bytes to a provider's device, or back."""


@frozen
class Region:
    """Nodes that the same providers claim, those in order of priority.

    ``is_inside``: in the body of a control-flow node. What such a region costs is seen in whole runs only.
    """

    nodes: tuple[Node, ...]
    providers: tuple[str, ...]
    is_inside: bool = False

    @property
    def is_contested(self) -> bool:
        """Whether there is a choice."""
        return len(self.providers) > 1


@frozen
class Crossing:
    """A value that leaves the region that makes it: its size, its maker (``None``: the caller) and its readers."""

    nbytes: int
    maker: int | None
    readers: tuple[int | None, ...]


Assignment = tuple[str, ...]
"""A provider for each region."""


@frozen
class Estimate:
    """What the cost of an assignment is estimated from.

    ``alone`` is the time of each region alone by provider, in nanoseconds; infinite where a provider failed, for a
    reason that ``failures`` gives by (region, provider).
    """

    alone: tuple[Mapping[str, float], ...]
    crossings: tuple[Crossing, ...] = ()
    copy: CopyCost = lambda nbytes, provider: 0.0
    failures: Mapping[tuple[int, str], str] = field(default_factory=dict)

    def cost_of(self, choice: Assignment) -> float:
        """Return the estimated time of an assignment in nanoseconds."""
        total = 0.0
        for index, provider in enumerate(choice):
            border = sum(self.copy(each.nbytes, provider) for each in self.crossings if _touches(each, index))
            total += max(0.0, self.alone[index][provider] - border)
        return total + sum(self._crossing_cost(each, choice) for each in self.crossings)

    def _crossing_cost(self, crossing: Crossing, choice: Assignment) -> float:
        maker = None if crossing.maker is None else choice[crossing.maker]
        targets = {None if reader is None else choice[reader] for reader in crossing.readers} - {maker}
        if not targets:
            return 0.0
        leaving = 0.0 if maker is None else self.copy(crossing.nbytes, maker)
        return leaving + sum(self.copy(crossing.nbytes, target) for target in targets if target is not None)

    def is_possible(self, choice: Assignment) -> bool:
        """Return whether no region failed on the provider that it is given to."""
        return all(math.isfinite(times[name]) for times, name in zip(self.alone, choice, strict=False))


def _touches(crossing: Crossing, index: int) -> bool:
    return crossing.maker == index or index in crossing.readers


def find_regions(
    graph: Graph, claimed: Mapping[str, Sequence[Sequence[Node]]], *, is_inside: bool = False
) -> tuple[Region, ...]:
    """Return the regions of one graph.

    Args:
        graph: the graph.
        claimed: for each provider, most wanted first, the claims that it makes when every node is on offer.
        is_inside: whether it is the body of a control-flow node.
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
            regions.extend(Region(group, names, is_inside) for group in groups)
    return tuple(regions)


def cheapest(regions: Sequence[Region], estimate: Estimate) -> Assignment:
    """Return the assignment of least estimated cost; of equal ones that with the most wanted providers."""
    if math.prod(len(region.providers) for region in regions) <= MAX_ASSIGNMENTS:
        return min(itertools.product(*(region.providers for region in regions)), key=estimate.cost_of)
    return min((_descend(start, regions, estimate) for start in uniform_choices(regions)), key=estimate.cost_of)


def _descend(start: Assignment, regions: Sequence[Region], estimate: Estimate) -> Assignment:
    choice = start
    for _ in range(MAX_SWEEPS):
        before = choice
        for index, region in enumerate(regions):
            options = [(*choice[:index], name, *choice[index + 1 :]) for name in region.providers]
            choice = min([choice, *options], key=estimate.cost_of)
        if choice == before:
            break
    return choice


def uniform_choices(regions: Sequence[Region]) -> tuple[Assignment, ...]:
    """Return priority's assignment, and for each provider the one that gives it all it claims."""
    names = dict.fromkeys(name for region in regions for name in region.providers)
    by_priority = tuple(region.providers[0] for region in regions)
    preferring = (
        tuple(name if name in region.providers else region.providers[0] for region in regions) for name in names
    )
    return tuple(dict.fromkeys([by_priority, *preferring]))


def finalists(regions: Sequence[Region], estimate: Estimate | None) -> tuple[Assignment, ...]:
    """Return the assignments between which whole runs decide.

    These are the uniform ones and the cheapest by estimate, with each uniform assignment of the bodies.

    Args:
        regions: those inside bodies behind all others.
        estimate: over the others; ``None`` where the uniform assignments are all that there are.
    """
    uniform = uniform_choices(regions)
    if estimate is None:
        return uniform
    outer = [region for region in regions if not region.is_inside]
    best = cheapest(outer, estimate)
    found = dict.fromkeys([*uniform, *((*best, *choice[len(outer) :]) for choice in uniform)])
    return tuple(choice for choice in found if estimate.is_possible(choice)) or tuple(found)


@frozen
class MeasuredChoice:
    """The assignment that was chosen, and the whole model's time under each that was tried, in nanoseconds."""

    choice: Assignment
    totals: Mapping[Assignment, float]


Compare = Callable[[Assignment, Assignment], tuple[float, float]]
"""``compare(champion, challenger)``: nanoseconds of both, run in turns; infinity where one cannot run."""


def decide(choices: Sequence[Assignment], compare: Compare) -> MeasuredChoice:
    """Let each assignment challenge the fastest before it; the first is taken where none is faster."""
    champion, totals = choices[0], dict.fromkeys(choices[:1], math.nan)
    for challenger in choices[1:]:
        totals[champion], totals[challenger] = compare(champion, challenger)
        if totals[challenger] < totals[champion]:
            champion = challenger
    return MeasuredChoice(champion, totals)
