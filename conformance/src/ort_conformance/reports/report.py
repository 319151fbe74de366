"""ConformanceReport: the results of one provider on one machine, as plain data that is written and read again."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx

import ort_core
from ort_conformance import __version__
from ort_conformance.outcome import CheckResult, Finding, Outcome, RefusedOperator
from ort_conformance.subject import Subject
from ort_core.plugin import Available

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a run took place: versions, and the provider's own word on its device."""

    ort_core: str
    suite: str
    onnx: str
    python: str
    system: str
    device: str
    means: str = ""

    @classmethod
    def of(cls, subject: Subject) -> Surroundings:
        """Describe this machine."""
        state = subject.availability
        detail = state.detail if isinstance(state, Available) else str(state)
        system = f"{platform.system()} {platform.machine()}"
        return cls(
            ort_core.__version__, __version__, onnx.__version__, platform.python_version(), system, detail,
            subject.profile.means,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConformanceReport:
    """All results of a provider. ``unavailable`` is the reason where it cannot run here; then there are few results."""

    provider: str
    surroundings: Surroundings
    results: tuple[CheckResult, ...] = ()
    unavailable: str = ""

    def counts(self) -> dict[str, int]:
        """Return the number of checks by outcome, in the order of ``Outcome``."""
        found = Counter(result.finding.outcome for result in self.results)
        return {outcome.value: found[outcome] for outcome in Outcome if found[outcome]}

    def counts_by_suite(self) -> dict[str, dict[str, int]]:
        """Return the number of checks by outcome for each suite."""
        suites: dict[str, Counter[Outcome]] = {}
        for result in self.results:
            suites.setdefault(result.suite, Counter())[result.finding.outcome] += 1
        return {
            suite: {outcome.value: found[outcome] for outcome in Outcome if found[outcome]}
            for suite, found in suites.items()
        }

    def problems(self) -> list[CheckResult]:
        """Return the results that nobody expected."""
        return [result for result in self.results if result.is_problem]

    def as_dict(self) -> dict[str, object]:
        """Return plain data for JSON; ``from_dict`` reads it."""
        return {
            "format": FORMAT,
            "provider": self.provider,
            "surroundings": {name: getattr(self.surroundings, name) for name in Surroundings.__slots__},
            "unavailable": self.unavailable,
            "counts": self.counts(),
            "results": [result_as_dict(result) for result in self.results],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ConformanceReport:  # Any: JSON
        """Read what ``as_dict`` wrote.

        Raises:
            ValueError: another format.
        """
        if data.get("format") != FORMAT:
            raise ValueError(f"a report of format {data.get('format')!r}; this suite reads {FORMAT}")
        results = tuple(result_from_dict(entry) for entry in data["results"])
        return cls(data["provider"], Surroundings(**data["surroundings"]), results, data["unavailable"])

    def write(self, path: Path) -> None:
        """Write the report as JSON."""
        path.write_text(json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> ConformanceReport:
        """Read a report. Raises as ``from_dict``."""
        return cls.from_dict(json.loads(path.read_text(encoding="utf-8")))


def result_as_dict(result: CheckResult) -> dict[str, object]:
    """Return one result as plain data for JSON; ``result_from_dict`` reads it."""
    finding = result.finding
    return {
        "check": result.check,
        "outcome": finding.outcome.value,
        "detail": finding.detail,
        "operators": list(finding.operators),
        "refusals": [[refused.operator, refused.reason] for refused in finding.refusals],
        "measures": dict(finding.measures),
        "duration_s": round(result.duration_s, 4),
        "expected": result.expected,
        "is_stale": result.is_stale,
    }


def result_from_dict(entry: dict[str, Any]) -> CheckResult:  # Any: JSON
    """Read what ``result_as_dict`` wrote."""
    refusals = tuple(RefusedOperator(operator, reason) for operator, reason in entry["refusals"])
    finding = Finding(
        Outcome(entry["outcome"]), entry["detail"], tuple(entry["operators"]), refusals,
        tuple(entry["measures"].items()),
    )  # fmt: skip
    return CheckResult(entry["check"], finding, entry["duration_s"], entry["expected"], entry["is_stale"])


@dataclass(frozen=True, slots=True)
class OperatorSupport:
    """What became of one operator on one provider, over all cases that hold it.

    ``built`` and ``claimed`` are cases of a provider that cannot run here, ``unjudged`` those whose results cannot be
    compared, such as random numbers.
    """

    ran: int = 0
    failed: int = 0
    refused: int = 0
    built: int = 0
    claimed: int = 0
    unjudged: int = 0
    reasons: tuple[str, ...] = field(default=())

    @property
    def word(self) -> str:
        """``full``, ``partial``, ``built``, ``claimed``, ``failing``, ``refused``, ``unjudged`` or ``untried``."""
        if self.failed:
            return "failing"
        if self.ran:
            return "partial" if self.refused else "full"
        if self.built or self.claimed:
            return "built" if self.built else "claimed"
        return "refused" if self.refused else "unjudged" if self.unjudged else "untried"

    @property
    def taken(self) -> int:
        """The cases in which the provider ran the operator, or would."""
        return self.ran + self.built + self.claimed


def operator_support(results: Sequence[CheckResult]) -> dict[str, OperatorSupport]:
    """Return the support of each operator that any case holds."""
    found: dict[str, OperatorSupport] = {}
    for result in results:
        finding = result.finding
        failed = finding.outcome.is_failure and not result.expected.startswith("never:")
        lost = failed and not finding.operators  # all its claims failed: what was refused then was taken first
        operators = tuple(dict.fromkeys(each.operator for each in finding.refusals)) if lost else finding.operators
        for operator in operators:
            old = found.get(operator, OperatorSupport())
            reasons = _with_reason(old.reasons, f"{result.check}: {finding.detail}") if failed else old.reasons
            kind = "failed" if failed else _TAKEN.get(finding.outcome, "ran")
            found[operator] = replace(old, reasons=reasons, **{kind: getattr(old, kind) + 1})
        for refused in () if lost else finding.refusals:
            old = found.get(refused.operator, OperatorSupport())
            reasons = _with_reason(old.reasons, refused.reason)
            found[refused.operator] = replace(old, refused=old.refused + 1, reasons=reasons)
    return found


_TAKEN = {
    Outcome.NOT_JUDGED: "unjudged",
    Outcome.BUILT: "built", Outcome.PARTLY_BUILT: "built",
    Outcome.CLAIMED: "claimed", Outcome.PARTLY_CLAIMED: "claimed",
}  # fmt: skip
_REASONS_SHOWN = 6


def _with_reason(reasons: tuple[str, ...], reason: str) -> tuple[str, ...]:
    return reasons if reason in reasons or len(reasons) >= _REASONS_SHOWN else (*reasons, reason)
