"""What an architecture of the zoo is: a module, its inputs, and which of their axes an export leaves open.

Sizes are drawn by a seed, so that another seed is another zoo: nothing in the engine may be tuned to one of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

Axes = Mapping[str, tuple[int, ...]]
Draw = random.Random


@dataclass(frozen=True)
class Drawn:
    """One architecture with its sizes; ``open_axes`` by the name of an input are left open by an export."""

    module: torch.nn.Module
    inputs: Mapping[str, torch.Tensor]
    open_axes: Axes = field(default_factory=dict)


@dataclass(frozen=True)
class Architecture:
    """A family, a maker from a source of random numbers, and the exporters that know its operators."""

    family: str
    make: Callable[[Draw], Drawn]
    exporters: tuple[str, ...] = ("torchscript", "dynamo")


def image(draw: Draw, size: int, channels: int = 3, batch: int = 1) -> torch.Tensor:
    """Return random images, shape (batch, channels, size, size or a little more)."""
    return torch.randn(batch, channels, size, size + 32 * draw.randint(0, 1))


def widths(draw: Draw, *choices: int) -> int:
    """Return one of several widths."""
    return draw.choice(choices)
