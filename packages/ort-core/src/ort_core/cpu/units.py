"""The order of a partition's parts: each behind those that it reads from, neighbours that run by kernels as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ort_core.plugin.ir import Node, border_of

Form = TypeVar("Form")
Unit = tuple[tuple[Node, ...], Form | None]  # nodes, and their compiled form; without one they run by kernels


def ordered(units: Sequence[Unit[Form]]) -> list[Unit[Form]]:
    """Return units so that each stands behind those it reads from."""
    unit_of = {node: index for index, (members, _) in enumerate(units) for node in members}
    needs: list[set[int]] = [set() for _ in units]
    for node, index in unit_of.items():
        for value in border_of((node,)).inputs:
            if value.producer in unit_of and unit_of[value.producer] != index:
                needs[index].add(unit_of[value.producer])
    found: list[int] = []
    done: set[int] = set()
    waiting = list(range(len(units)))
    while waiting:
        ready = [index for index in waiting if needs[index] <= done]
        found.extend(ready)
        done.update(ready)
        waiting = [index for index in waiting if index not in done]
    return [units[index] for index in found]


def joined(units: Sequence[Unit[Form]], is_compiled: Callable[[tuple[Node, ...]], bool]) -> list[Unit[Form]]:
    """Return units with neighbours that run by kernels as one: a step costs more than a node inside it."""
    found: list[Unit[Form]] = []
    for nodes, program in units:
        apart = is_compiled(nodes) or (bool(found) and is_compiled(found[-1][0]))
        if program is None and found and found[-1][1] is None and not apart:
            found[-1] = ((*found[-1][0], *nodes), None)
        else:
            found.append((nodes, program))
    return found
