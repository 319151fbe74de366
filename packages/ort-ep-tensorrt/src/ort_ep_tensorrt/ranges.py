"""Ranges: between which shapes an engine runs. They are given, or grow with what is run. Pure functions.

An engine is built for a least, a most likely and a greatest shape of each input whose sizes vary (an optimisation
profile). A run outside of it needs another engine, built for a range that holds both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

Shape = tuple[int, ...]
_ENTRY = re.compile(r"(?P<name>.+):(?P<sizes>\d+(?:x\d+)*)")


@dataclass(frozen=True, slots=True)
class ShapeRange:
    """Bounds of one input's shape, inclusive, and the shape that the engine is fastest for."""

    minimum: Shape
    optimum: Shape
    maximum: Shape

    def holds(self, shape: Shape) -> bool:
        """Return whether a shape lies within."""
        if len(shape) != len(self.minimum):
            return False
        return all(low <= size <= high for low, size, high in zip(self.minimum, shape, self.maximum, strict=True))

    def widened(self, shape: Shape) -> ShapeRange:
        """Return the least range that also holds ``shape``, and is fastest for it."""
        low = tuple(min(pair) for pair in zip(self.minimum, shape, strict=True))
        high = tuple(max(pair) for pair in zip(self.maximum, shape, strict=True))
        return ShapeRange(low, shape, high)


Ranges = Mapping[str, ShapeRange]


def holds_all(ranges: Ranges, shapes: Mapping[str, Shape]) -> bool:
    """Return whether every input's shape lies within its range."""
    return all(name in ranges and ranges[name].holds(shape) for name, shape in shapes.items())


def ranges_for(shapes: Mapping[str, Shape], given: Ranges, before: Ranges) -> Ranges:
    """Return the ranges of a new engine.

    Args:
        shapes: of this run, by input.
        given: ranges that the user chose; they count where they hold the shape.
        before: ranges of the last engine; empty for the first.
    """
    return {name: _range_for(shape, given.get(name), before.get(name)) for name, shape in shapes.items()}


def _range_for(shape: Shape, given: ShapeRange | None, before: ShapeRange | None) -> ShapeRange:
    known = before or given
    if known is None or len(known.minimum) != len(shape):
        return ShapeRange(shape, shape, shape)
    return known if known.holds(shape) else known.widened(shape)


def parse_ranges(minimum: str, optimum: str, maximum: str, prefix: str) -> dict[str, ShapeRange]:
    """Return ranges of three options as ``x:1x3x224x224,y:1x4``.

    Args:
        minimum: least shapes.
        optimum: most likely shapes.
        maximum: greatest shapes.
        prefix: of the options' names, for messages.

    Raises:
        ValueError: one does not parse, lacks an input, or bounds are not in order.
    """
    low, best, high = (
        _parse_shapes(text, f"{prefix}_{kind}_shapes")
        for kind, text in (("min", minimum), ("opt", optimum), ("max", maximum))
    )
    if not low.keys() == best.keys() == high.keys():
        names = f"{sorted(low)}, {sorted(best)} and {sorted(high)}"
        raise ValueError(f"{prefix}_min_shapes, _opt_shapes and _max_shapes name different inputs: {names}")
    found = {name: ShapeRange(low[name], best[name], high[name]) for name in low}
    for name, each in found.items():
        if len(each.minimum) != len(each.maximum) or not each.holds(each.optimum):
            raise ValueError(f"{prefix}_*_shapes of {name!r} are not in order: {each}")
    return found


def _parse_shapes(text: str, option: str) -> dict[str, Shape]:
    found: dict[str, Shape] = {}
    for entry in filter(None, text.split(",")):
        match = _ENTRY.fullmatch(entry.strip())
        if match is None:
            raise ValueError(f"option {option!r} has {entry!r}, expected an input with its sizes as x:1x3x224x224")
        found[match["name"]] = tuple(int(size) for size in match["sizes"].split("x"))
    return found
