"""conformance_tests(): the test function of a vendor's test module; the pytest plugin gives it one check per test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ort_conformance.profile import EpProfile

ATTRIBUTE = "__ort_conformance__"


@dataclass(frozen=True, slots=True)
class Selection:
    """What one test function runs."""

    profile: EpProfile
    suites: tuple[str, ...] = ()
    share: float = 1.0


def conformance_tests(
    profile: EpProfile, *, suites: Sequence[str] = (), share: float = 1.0
) -> Callable[[Callable[[], None]], None]:
    """Return a test function with one test for each check.

    Args:
        profile: the provider.
        suites: names of suites; all when empty.
        share: how many of the operator cases to run, from 0 to 1; ``--conformance-full`` runs all.

    Example, a whole test module:

        test_conformance = conformance_tests(EpProfile("AcmeExecutionProvider"))
    """

    def test_conformance(conformance_check: Callable[[], None]) -> None:
        conformance_check()

    setattr(test_conformance, ATTRIBUTE, Selection(profile, tuple(suites), share))
    return test_conformance
