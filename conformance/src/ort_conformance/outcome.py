"""Outcomes: what became of a check, in honest words. Only ``RAN`` and ``HELD`` speak for what a provider computes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What became of one check."""

    RAN = "ran"
    """The provider computed every node, rightly."""
    FELL_BACK = "fell back"
    """The provider computed some nodes, others were computed elsewhere; the result is right."""
    REFUSED = "refused"
    """The provider took no node, and said why; computed elsewhere."""
    BUILT = "built"
    """The provider cannot run here. It would take every node, and built all that its device would get; nothing ran."""
    PARTLY_BUILT = "partly built"
    """As above, of some nodes; others would be computed elsewhere."""
    CLAIMED = "claimed"
    """The provider cannot run here, and would take every node. Nothing was built, nothing computed."""
    PARTLY_CLAIMED = "partly claimed"
    """As above, of some nodes; others would be computed elsewhere."""
    FAILED_IN_CLAIM = "failed in claim"
    """``get_capability`` raised, or a claim broke a rule."""
    FAILED_IN_COMPILE = "failed in compile"
    """The provider claimed nodes and could not compile them."""
    FAILED_IN_RUN = "failed in run"
    """The provider compiled nodes and failed when it ran them."""
    MISMATCH = "mismatch"
    """The provider took part, and the result is wrong."""
    HELD = "held"
    """A promise of the contract was kept."""
    BROKEN = "broken"
    """A promise of the contract was broken."""
    CRASHED = "crashed"
    """The process ended, or hung, during the check."""
    UNDECLARED = "undeclared"
    """The check is about a feature that the profile does not declare."""
    UNAVAILABLE = "unavailable"
    """The provider cannot run on this machine."""
    NOT_JUDGED = "not judged"
    """No result is fixed that could be compared (random draws), or the provider gave no occasion (nothing claimed)."""
    ELSEWHERE_FAILED = "failed elsewhere"
    """The provider took no node, and what did compute the case failed: a defect of ort-core, not of the provider."""

    @property
    def is_failure(self) -> bool:
        """Whether somebody must act, or an expected failure be declared."""
        return self in _FAILURES

    @property
    def is_skip(self) -> bool:
        """Whether nothing was learned of what the provider computes."""
        return self in _SKIPS

    @property
    def is_foreseen(self) -> bool:
        """Whether the provider said what it would run, and could not run it here."""
        return self in _FORESEEN


_FAILURES = frozenset(
    {
        Outcome.FAILED_IN_CLAIM, Outcome.FAILED_IN_COMPILE, Outcome.FAILED_IN_RUN, Outcome.MISMATCH, Outcome.BROKEN,
        Outcome.CRASHED, Outcome.ELSEWHERE_FAILED,
    }
)  # fmt: skip
_FORESEEN = frozenset({Outcome.BUILT, Outcome.PARTLY_BUILT, Outcome.CLAIMED, Outcome.PARTLY_CLAIMED})
_SKIPS = frozenset({Outcome.UNDECLARED, Outcome.UNAVAILABLE, Outcome.NOT_JUDGED}) | _FORESEEN


@dataclass(frozen=True, slots=True)
class RefusedOperator:
    """Nodes of one operator that the provider left, and why."""

    operator: str
    reason: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    ``detail`` is a sentence for people; ``operators`` are those that the provider ran (``domain::op_type``, the
    domain left out for ai.onnx), or would; ``refusals`` are those it left. ``measures`` are numbers, such as errors.
    """

    outcome: Outcome
    detail: str = ""
    operators: tuple[str, ...] = ()
    refusals: tuple[RefusedOperator, ...] = ()
    measures: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A finding with the check that made it, how long it took, and whether it was expected.

    ``expected`` is the reason of the expected failure that covers it (``kind: reason``), or empty. ``is_stale`` marks a
    check that is expected to fail and did not.
    """

    check: str
    finding: Finding
    duration_s: float = 0.0
    expected: str = ""
    is_stale: bool = False

    @property
    def suite(self) -> str:
        """The part of the name before the slash."""
        return self.check.partition("/")[0]

    @property
    def is_problem(self) -> bool:
        """Whether the check makes the whole suite fail."""
        return self.is_stale or (self.finding.outcome.is_failure and not self.expected)
