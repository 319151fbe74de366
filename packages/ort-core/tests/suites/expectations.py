"""What outside suites expect and do not get here: the one file of reasons, read strictly."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("expected_failures.toml")
KINDS = ("never", "notyet", "random")


@dataclass(frozen=True)
class Expectations:
    """The entries of one suite: reasons by case, by kind."""

    suite: str
    reasons: dict[str, dict[str, str]]

    def reason(self, case: str) -> str | None:
        """Return why a case is expected to fail, or ``None``."""
        return self.reasons.get("never", {}).get(case) or self.reasons.get("notyet", {}).get(case)

    def parameter(self, case: str, *values: object) -> object:
        """Return the pytest parameter of a case, marked where it is expected to fail."""
        reason = self.reason(case)
        marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
        return pytest.param(*values, id=case, marks=marks)

    def of_kind(self, kind: str) -> list[str]:
        """Return the cases of one kind."""
        return list(self.reasons.get(kind, {}))

    def cases(self) -> list[str]:
        """Return every case that is named."""
        return [case for reasons in self.reasons.values() for case in reasons]


@functools.cache
def read_expectations(suite: str) -> Expectations:
    """Read the entries of one suite."""
    entries = tomllib.loads(FILE.read_text(encoding="utf-8")).get(suite, {})
    unknown = entries.keys() - set(KINDS)
    assert not unknown, f"{FILE.name}: {suite} has the kinds {sorted(unknown)}; known are {KINDS}"
    return Expectations(suite, entries)


def assert_names_only(suite: str, cases: set[str]) -> None:
    """Fail when an entry of a suite names no case of it, or gives no reason."""
    expectations = read_expectations(suite)
    stale = sorted(set(expectations.cases()) - cases)
    assert not stale, f"{FILE.name} names cases of {suite} that do not exist: {stale}"
    bare = [case for reasons in expectations.reasons.values() for case, reason in reasons.items() if not reason.strip()]
    assert not bare, f"{FILE.name} gives no reason for {bare}"
