"""The choice of a scheme for each layer: the most time for the least noise, at a price that a search finds.

At a price p of noise each layer takes the scheme with the greatest ``gain - p * noise``. A higher price gives less
noise and less gain: all the assignments that some price leads to lie in one line, where halving finds the target.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

Pairs = Mapping[str, Mapping[str, tuple[float, float]]]
"""Gain in seconds and noise of each pair that may pay, by layer and scheme."""


def assignments(pairs: Pairs) -> list[dict[str, str]]:
    """Return the assignments (schemes by layer, float32 left out) that some price leads to, the fastest first.

    The last is all float32.
    """
    found: list[dict[str, str]] = []
    for price in _prices(pairs):
        chosen = at_price(pairs, price)
        if not found or chosen != found[-1]:
            found.append(chosen)
    if not found or found[-1]:
        found.append({})
    return found


def at_price(pairs: Pairs, price: float) -> dict[str, str]:
    """Return the best scheme of each layer at a price; layers that no scheme pays for are left out."""
    chosen = {}
    for layer, schemes in pairs.items():
        values = {scheme: gain - price * noise for scheme, (gain, noise) in schemes.items()}
        best = max(values, key=lambda scheme: values[scheme], default="")
        if best and values[best] > 0:
            chosen[layer] = best
    return chosen


def _prices(pairs: Pairs) -> list[float]:
    """Return prices between any two at which some layer changes its mind, the lowest first."""
    ends = {0.0}
    for schemes in pairs.values():
        options = [(0.0, 0.0), *schemes.values()]
        for gain, noise in options:
            for other_gain, other_noise in options:
                if other_noise > noise and other_gain > gain:
                    ends.add((other_gain - gain) / (other_noise - noise))
    ordered = sorted(ends)
    between = [(low + high) / 2 for low, high in itertools.pairwise(ordered)]
    return [0.0, *between, ordered[-1] * 2 + 1]


def first_that_meets(count: int, meets: Callable[[int], bool]) -> int | None:
    """Return the lowest place that meets a target, if those behind one that meets do so, too.

    Nothing where not even the last does. Each place is asked for at most once.
    """
    low, high, found = 0, count - 1, None
    while low <= high:
        middle = (low + high) // 2
        if meets(middle):
            found, high = middle, middle - 1
        else:
            low = middle + 1
    return found
