"""OpenSizes: which values sizes may have that are only known at run time: ranges, or a list of a few."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

MAX_SHAPES = 128  # that Core ML lists for one input
_ENTRY = re.compile(r"(?P<name>[^=,]+)=(?:(?P<low>\d+)\.\.(?P<high>\d+)|(?P<listed>\d+(?:\|\d+)*))")


@dataclass(frozen=True, slots=True)
class SizeChoice:
    """The values of one size: from ``low`` to ``high``, or only those that are listed."""

    low: int
    high: int
    listed: tuple[int, ...] = ()

    def holds(self, size: int) -> bool:
        """Return whether a size is one of them."""
        return size in self.listed if self.listed else self.low <= size <= self.high

    def __str__(self) -> str:
        """Return the values for people."""
        return " or ".join(map(str, self.listed)) if self.listed else f"{self.low} to {self.high}"


@dataclass(frozen=True, slots=True)
class OpenSizes:
    """The values of all open sizes.

    Attributes:
        maximum: the largest value of a size that is not named.
        named: what the user said of others.
    """

    maximum: int
    named: Mapping[str, SizeChoice] = field(default_factory=dict)

    def of(self, name: str) -> SizeChoice:
        """Return the values of a size by its name."""
        return self.named.get(name) or SizeChoice(1, self.maximum)

    def shapes(self, ports: Iterable[Sequence[int | str]]) -> list[list[tuple[int, ...]]] | None:
        """Return the listed shapes of each port, which go together by their order; ``None``: nothing is listed.

        Raises:
            ValueError: a port mixes listed sizes with ranges, or there are more shapes than Core ML lists.
        """
        found = [tuple(shape) for shape in ports]
        names = sorted({size for shape in found for size in shape if isinstance(size, str)})
        listed = [name for name in names if self.of(name).listed]
        if not listed:
            return None
        ranged = [name for name in names if name not in listed]
        for shape in found:
            if set(shape) & set(listed) and set(shape) & set(ranged):
                raise ValueError(
                    f"the sizes {shape} of an input are partly listed, partly a range: Core ML takes one or the other; "
                    f"list values of {', '.join(map(repr, sorted(set(shape) & set(ranged), key=str)))} in OpenSizes too"
                )
        rows = list(itertools.product(*(self.of(name).listed for name in listed)))
        if len(rows) > MAX_SHAPES:
            raise ValueError(f"OpenSizes lists {len(rows)} shapes; Core ML takes {MAX_SHAPES} at most")
        chosen: list[dict[int | str, int]] = [dict(zip(listed, row, strict=True)) for row in rows]
        return [[tuple(_number(each.get(size, size)) for size in shape) for each in chosen] for shape in found]


def _number(size: int | str) -> int:
    assert isinstance(size, int), "every open size of a listed port is listed"
    return size


def parse_open_sizes(text: str, maximum: int) -> OpenSizes:
    """Return what ``batch=1..8, sequence=16|64|128`` says.

    Raises:
        ValueError: the text says nothing of the kind.

    Example:
        >>> str(parse_open_sizes("n=1..8, m=16|64", 100).of("m"))
        '16 or 64'
    """
    named: dict[str, SizeChoice] = {}
    for entry in filter(None, (each.strip() for each in text.split(","))):
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise ValueError(f"option 'OpenSizes' holds {entry!r}, expected NAME=LOW..HIGH or NAME=SIZE|SIZE")
        listed = tuple(sorted({int(each) for each in match["listed"].split("|")})) if match["listed"] else ()
        low, high = (listed[0], listed[-1]) if listed else (int(match["low"]), int(match["high"]))
        if not 1 <= low <= high:
            raise ValueError(f"option 'OpenSizes' holds {entry!r}: sizes are 1 or more, and go upwards")
        named[match["name"].strip()] = SizeChoice(low, high, listed)
    return OpenSizes(maximum, named)
