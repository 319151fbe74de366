"""The catalogue: every check of every suite, in order, and how a share of the many cases is chosen."""

from __future__ import annotations

import functools
import importlib
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from ort_conformance.check import Check, promises_of

Source = Callable[[], Iterable[Check]]


def _promises(module: str) -> Source:
    def source() -> Iterable[Check]:
        return promises_of(importlib.import_module(f"ort_conformance.suites.{module}"))

    return source


def _cases(module: str, function: str) -> Source:
    def source() -> Iterable[Check]:
        found: Source = getattr(importlib.import_module(f"ort_conformance.suites.{module}"), function)
        return found()

    return source


SUITES: Mapping[str, Source] = {
    "contract": _promises("contract"),
    "operators": _cases("operators", "operator_checks"),
    "ml": _cases("operators", "ml_checks"),
    "contrib": _cases("contrib", "contrib_checks"),
    "partitioning": _cases("partitioning", "partitioning_checks"),
    "models": _cases("models", "network_checks"),
    "data": _promises("data"),
    "threads": _promises("threads"),
    "errors": _promises("errors"),
    "resources": _promises("resources"),
    "determinism": _promises("determinism"),
    "precision": _cases("precision", "precision_checks"),
    "cache": _promises("cache"),
    "profiling": _promises("profiling"),
}
"""What gives the checks of each suite; called once, when the suite is wanted."""


@functools.cache
def checks_of(suite: str) -> tuple[Check, ...]:
    """Return the checks of a suite."""
    return tuple(SUITES[suite]())


def catalogue(suites: Sequence[str] = ()) -> list[Check]:
    """Return the checks of the named suites, of all when none is named.

    Raises:
        ValueError: a suite is not known.
    """
    unknown = [name for name in suites if name not in SUITES]
    if unknown:
        raise ValueError(f"no suite {unknown[0]!r}; the suites are {', '.join(SUITES)}")
    return [check for suite in suites or SUITES for check in checks_of(suite)]


def sample(checks: Iterable[Check], share: float) -> list[Check]:
    """Return the given share of the operator cases, the same ones each time, and everything else that is not long.

    A share of 1 is everything.
    """
    limit = share * 2**32
    return [
        check
        for check in checks
        if share >= 1 or not check.is_long
        if check.suite not in SAMPLED or zlib.crc32(check.name.encode()) < limit
    ]


SAMPLED = frozenset({"operators", "ml"})  # suites of thousands
