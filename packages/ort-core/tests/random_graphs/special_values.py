"""Feeds with what is not a number, infinite, or a zero with a sign, and feeds of small or large numbers.

Each is an assignment of sizes more, with the sizes of the first. Where some node has no truth for them (an integer of
what is not finite, for one), the case stays as it is.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from random_graphs.element_types import of_array
from random_graphs.triples import NoTruth

if TYPE_CHECKING:
    from random_graphs.cases import Case

SHARE = 0.25  # of all graphs
SCALED_SHARE = 0.12
SCALES = (1e-6, 1e-4, 1e-3, 1e-2, 30.0)  # below a square root, what an operator adds to squares shows
SPECIAL = (np.nan, np.nan, np.inf, -np.inf, -0.0)
MOST = 3  # of each input


def with_special_values(case: Case) -> Case:
    """Return the case of a share of seeds with one assignment more."""
    chooser = random.Random(case.seed ^ 0xBAD)
    if chooser.random() >= SHARE:
        return case
    feeds = {name: _with_some(array, chooser) for name, array in case.feeds[0].items()}
    return _with_more(case, feeds, "special values")


def with_scaled_numbers(case: Case) -> Case:
    """Return the case of a share of seeds with one assignment more, where some inputs are scaled."""
    chooser = random.Random(case.seed ^ 0x5CA1E)
    if chooser.random() >= SCALED_SHARE:
        return case
    feeds = {name: _scaled(array, chooser) for name, array in case.feeds[0].items()}
    return _with_more(case, feeds, "scaled numbers")


def _with_more(case: Case, feeds: Mapping[str, Any], flag: str) -> Case:
    if all(array is case.feeds[0][name] for name, array in feeds.items()):
        return case
    longer = replace(case, feeds=(*case.feeds, feeds), flags=(*case.flags, flag))
    try:
        longer.truths()
    except NoTruth:
        return case
    return longer


def _scaled(array: Any, chooser: random.Random) -> Any:
    if not isinstance(array, np.ndarray) or not _is_float(array) or not array.size or chooser.random() < 0.3:
        return array
    return np.asarray(array * array.dtype.type(chooser.choice(SCALES)))


def _with_some(array: Any, chooser: random.Random) -> Any:
    if not isinstance(array, np.ndarray) or not _is_float(array) or not array.size or chooser.random() < 0.3:
        return array
    changed = array.copy()
    for _ in range(chooser.randint(1, MOST)):
        changed.flat[chooser.randrange(changed.size)] = chooser.choice(SPECIAL)
    return changed


def _is_float(array: np.ndarray) -> bool:
    dtype = of_array(array)
    return dtype is not None and dtype.is_float
