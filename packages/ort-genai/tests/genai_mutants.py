"""Broken configurations: fields that are missing, of another kind, far too large, or that lead elsewhere."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator

VALUES = (
    None, "x", "", -1, 0, 1, 2.5, 1e99, float("nan"), float("inf"), True, False, [], {}, [1, "a"], [[]], 10**12, 2**31,
    2**63, -(2**63), 10**30, "../../etc/passwd", "/etc/passwd", "a\x00b", {"a": {}}, "past_key_values.%s.key", "%d%d",
    "é" * 5000, "\ud800", [0] * 1000, [None], {"rope_type": "yarn"},
)  # fmt: skip
_FIRST = 12  # entries of a list that are changed
Place = tuple[str | int, ...]


def places(stated: object, start: Place = ()) -> Iterator[Place]:
    """Yield where a configuration holds something, however deep; vocabularies are left out."""
    listed = stated.items() if isinstance(stated, dict) else enumerate(stated[:_FIRST])
    for name, value in listed:
        yield (*start, name)
        if isinstance(value, dict | list) and name not in ("vocab", "merges"):
            yield from places(value, (*start, name))


def mutants(stated: dict[str, object], count: int, seed: int) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield configurations with one to three fields changed, and what was changed.

    Args:
        stated: the whole one.
        count: how many.
        seed: of draws.
    """
    draws, known = random.Random(seed), list(places(stated))
    for _ in range(count):
        found, told = copy.deepcopy(stated), []
        for place in draws.sample(known, draws.choice((1, 1, 2, 3))):
            value = draws.choice((..., *VALUES))
            if _changed(found, place, value):
                told.append(f"{'.'.join(map(str, place))} = {value!r:.60}")
        yield ", ".join(told), found


def _changed(stated: object, place: Place, value: object) -> bool:
    """Set or delete (for ``...``) what is at a place; return whether it was there."""
    try:
        for name in place[:-1]:
            stated = stated[name]
        if value is ...:
            del stated[place[-1]]
        else:
            stated[place[-1]] = value
    except (KeyError, IndexError, TypeError):
        return False
    return True


def broken_bytes(whole: bytes, count: int, seed: int, end: int) -> Iterator[bytes]:
    """Yield files that are cut, or of which bytes before ``end`` are changed, left out or added."""
    draws = random.Random(seed)
    for _ in range(count):
        data = bytearray(whole)
        if draws.random() < 0.15:
            yield bytes(data[: draws.randrange(len(data))])
            continue
        for _ in range(draws.randint(1, 6)):
            at, kind = draws.randrange(min(len(data), end)), draws.randrange(4)
            if kind == 0:
                data[at] = draws.randrange(256)
            elif kind == 1:
                data[at : at + 8] = draws.choice((2**63 - 1, 2**64 - 1, 2**40, 2**31, 0, 1)).to_bytes(8, "little")
            elif kind == 2:
                del data[at : at + draws.randint(1, 9)]
            else:
                data[at:at] = bytes(draws.randrange(256) for _ in range(draws.randint(1, 9)))
        yield bytes(data)
