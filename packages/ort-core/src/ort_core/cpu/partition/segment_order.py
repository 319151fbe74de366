"""The order of a partition's parts: each behind those that it reads from, neighbors that run by kernels as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ort_core.plugin.ir import Node, predecessors

Form = TypeVar("Form")
Unit = tuple[tuple[Node, ...], Form | None]  # nodes, and their compiled form; without one they run by kernels


def ordered(units: Sequence[Unit[Form]]) -> list[Unit[Form]]:
    """Return units so that each stands behind those it reads from."""
    unit_of = {node: index for index, (members, _) in enumerate(units) for node in members}
    needs: list[set[int]] = [set() for _ in units]
    for node, index in unit_of.items():
        for before in predecessors(node):
            if before in unit_of and unit_of[before] != index:
                needs[index].add(unit_of[before])
    rounds = _rounds(needs)
    return [units[index] for index in sorted(range(len(units)), key=lambda index: (rounds[index], index))]


def _rounds(needs: Sequence[set[int]]) -> list[int]:
    """Return for each unit how many others must be done one after the other before it."""
    readers: list[list[int]] = [[] for _ in needs]
    for index, before in enumerate(needs):
        for each in before:
            readers[each].append(index)
    missing, rounds = [len(before) for before in needs], [0] * len(needs)
    ready = [index for index, count in enumerate(missing) if not count]
    for index in ready:  # grows
        for reader in readers[index]:
            rounds[reader] = max(rounds[reader], rounds[index] + 1)
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    assert len(ready) == len(needs), "convex groups of a graph without cycles have an order"
    return rounds


def joined(units: Sequence[Unit[Form]], is_compiled: Callable[[tuple[Node, ...]], bool]) -> list[Unit[Form]]:
    """Return units with neighbors that run by kernels as one: a step costs more than a node inside it."""
    found: list[tuple[list[Node], Form | None]] = []
    was_compiled = False
    for nodes, program in units:
        is_apart = is_compiled(nodes)
        if program is None and found and found[-1][1] is None and not is_apart and not was_compiled:
            found[-1][0].extend(nodes)
        else:
            found.append((list(nodes), program))
        was_compiled = is_apart
    return [(tuple(nodes), program) for nodes, program in found]
