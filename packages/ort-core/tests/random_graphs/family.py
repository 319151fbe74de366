"""The mark of a family: a step that adds nodes to a graph, and how often it is chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from random_graphs.writer import GraphWriter

Step = Callable[[GraphWriter], object]


@dataclass(frozen=True)
class Family:
    """A step with its name and weight. ``in_bodies``: whether bodies of control flow take it, too."""

    name: str
    weight: int
    step: Step
    in_bodies: bool


def family(weight: int = 1, *, in_bodies: bool = True) -> Callable[[Step], Step]:
    """Mark a function as a family; attaches data only, ``families.families`` collects."""

    def mark(step: Step) -> Step:
        step.family = Family(step.__name__, weight, step, in_bodies)
        return step

    return mark
