"""The catalogue: every check of every suite, in order, and how a share of the many cases is chosen."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ort_conformance.check import Check, promises_of

Source = Callable[[], Iterable[Check]]


def _contract() -> Iterator[Check]:
    from ort_conformance.suites import contract

    yield from promises_of(contract)


def _operators() -> Iterable[Check]:
    from ort_conformance.suites.operators import operator_checks

    return operator_checks()


def _ml() -> Iterable[Check]:
    from ort_conformance.suites.operators import ml_checks

    return ml_checks()


SUITES: Mapping[str, Source] = {"contract": _contract, "operators": _operators, "ml": _ml}
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
    """Return all promises, and the given share of the cases: the same ones each time, whatever else is there."""
    limit = share * 2**32
    return [check for check in checks if not check.is_case or zlib.crc32(check.name.encode()) < limit]
