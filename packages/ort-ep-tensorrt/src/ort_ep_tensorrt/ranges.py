"""Ranges: between which shapes an engine runs. They are given, or grow with what is run. Pure functions.

An engine is built for a least, a most likely and a greatest shape of each input whose sizes vary (an optimization
profile). A run outside of it needs another engine, built for a range that holds both. Inputs whose values decide shapes
have ranges of their values, too.

A size that grows a second time is going to grow again (a cache of a decoder does in each step): room is left above it,
as much as the largest such size, so that the engines of a long loop are few. All sizes of one run get the same room,
because what stands beside each other often differs by a fixed number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

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

    def widened(self, shape: Shape, room: int = 0) -> ShapeRange:
        """Return the least range that also holds ``shape``, with room above sizes that grew again; fastest for it."""
        low = tuple(min(pair) for pair in zip(self.minimum, shape, strict=True))
        again = self.grown_again(shape)
        high = tuple(
            size + room if axis in again else max(size, bound)
            for axis, (size, bound) in enumerate(zip(shape, self.maximum, strict=True))
        )
        return ShapeRange(low, shape, high)

    def grown_again(self, shape: Shape) -> frozenset[int]:
        """Return the axes of sizes that had grown before and are now beyond the range."""
        sizes = zip(self.minimum, self.maximum, shape, strict=True)
        return frozenset(axis for axis, (low, high, size) in enumerate(sizes) if low < high < size)


Ranges = Mapping[str, ShapeRange]
LEAST_ROOM = 16  # above a size that grew again; a decoder's first engines would else hold one step each


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an engine is built for.

    Attributes:
        shapes: ranges of the shapes of all inputs.
        values: ranges of the elements of inputs whose values decide shapes.
    """

    shapes: Ranges
    values: Ranges = field(default_factory=dict)

    def hold(self, shapes: Mapping[str, Shape], values: Mapping[str, Shape]) -> bool:
        """Return whether every input's shape, and the values of those that decide, lie within."""
        return holds_all(self.shapes, shapes) and holds_all(self.values, values)

    def text(self) -> str:
        """Return the same text for equal bounds."""
        return f"{sorted(self.shapes.items())!r}|{sorted(self.values.items())!r}"


def bounds_for(
    shapes: Mapping[str, Shape], values: Mapping[str, Shape], given: Ranges, before: Bounds | None = None
) -> Bounds:
    """Return the bounds of a new engine.

    Args:
        shapes: of this run, by input.
        values: of the inputs whose values decide shapes, in this run, flat.
        given: ranges of shapes that the user chose; they count where they hold the shape.
        before: bounds of the last engine; ``None`` for the first.
    """
    known = Bounds({}) if before is None else before
    return Bounds(ranges_for(shapes, given, known.shapes), ranges_for(values, {}, known.values))


def holds_all(ranges: Ranges, shapes: Mapping[str, Shape]) -> bool:
    """Return whether every input's shape lies within its range."""
    return all(name in ranges and ranges[name].holds(shape) for name, shape in shapes.items())


def ranges_for(shapes: Mapping[str, Shape], given: Ranges, before: Ranges) -> Ranges:
    """Return ranges that hold some shapes, those that were given, and those before, where these have the same rank."""
    known = {name: before.get(name) or given.get(name) for name in shapes}
    fitting = {
        name: each for name, each in known.items() if each is not None and len(each.minimum) == len(shapes[name])
    }
    room = max((_room(each, shapes[name]) for name, each in fitting.items() if name in before), default=0)
    found: dict[str, ShapeRange] = {}
    for name, shape in shapes.items():
        each = fitting.get(name, ShapeRange(shape, shape, shape))
        found[name] = each if each.holds(shape) else each.widened(shape, room if name in before else 0)
    return found


def _room(known: ShapeRange, shape: Shape) -> int:
    again = known.grown_again(shape)
    return max(LEAST_ROOM, *(shape[axis] for axis in again)) if again else 0


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
