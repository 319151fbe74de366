"""Expected failures: one strict file per provider. An entry that passes, or that names nothing, is an error.

[notimpl]  the provider does not do this, and is not meant to yet
[notyet]   it should work and does not
[never]    the expectation is not something that this provider can give
"operators/test_x" = "why"
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ort_conformance.outcome import CheckResult, Finding

KINDS = ("notimpl", "notyet", "never")


class ExpectationError(ValueError):
    """The file of expected failures is not as it must be."""


@dataclass(frozen=True, slots=True)
class Expectations:
    """Reasons by check, with their kind."""

    reasons: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    source: str = ""

    @classmethod
    def read(cls, path: Path | None) -> Expectations:
        """Read a file; none gives no expectations.

        Raises:
            ExpectationError: a table is unknown, a reason is missing, or a check is named twice.
        """
        if path is None:
            return cls()
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        reasons: dict[str, tuple[str, str]] = {}
        for kind, entries in tables.items():
            if kind not in KINDS or not isinstance(entries, dict):
                raise ExpectationError(f"{path.name}: found the table [{kind}]; known are {', '.join(KINDS)}")
            for check, reason in entries.items():
                if not isinstance(reason, str) or not reason.strip():
                    raise ExpectationError(f"{path.name}: {check!r} has no reason")
                if check in reasons:
                    raise ExpectationError(f"{path.name}: {check!r} is listed under {reasons[check][0]} and {kind}")
                reasons[check] = (kind, reason)
        return cls(reasons, path.name)

    def reason(self, check: str) -> str:
        """Return ``kind: reason`` for a check that is expected to fail, else an empty string."""
        found = self.reasons.get(check)
        return f"{found[0]}: {found[1]}" if found else ""

    def judge(self, check: str, finding: Finding, duration_s: float) -> CheckResult:
        """Put a finding beside what was expected of it."""
        result = CheckResult(check, finding, duration_s, self.reason(check))
        is_stale = bool(result.expected) and not finding.outcome.is_failure and not finding.outcome.is_skip
        return replace(result, is_stale=is_stale)

    def unknown(self, checks: Collection[str]) -> list[str]:
        """Return the entries that name none of the given checks."""
        return sorted(set(self.reasons) - set(checks))
