"""The pytest plugin: one test per check, with honest words for what became of it.

A test passes when the provider did what it said: it computed a case rightly, or refused it. Which of the two, the
summary tells apart: "ran", "fell back" and "refused" are counted each by itself.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest

from ort_conformance.catalogue import catalogue, sample
from ort_conformance.check import Check
from ort_conformance.expectations import Expectations
from ort_conformance.outcome import CheckResult, Outcome
from ort_conformance.profile import EpProfile
from ort_conformance.subject import Subject
from ort_conformance.test_function import ATTRIBUTE, Selection

OUTCOME = "conformance outcome"
PROVIDER = "conformance provider"
DETAIL = "conformance detail"
LETTERS = {Outcome.RAN: ".", Outcome.HELD: ".", Outcome.FELL_BACK: "b", Outcome.REFUSED: "r"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the suite."""
    group = parser.getgroup("conformance", "conformance of execution providers")
    group.addoption(
        "--conformance-full", action="store_true", help="run every case, not the share that a module asks for"
    )
    group.addoption(
        "--conformance-suite", action="append", default=[], metavar="NAME", help="run only this suite (repeat)"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a conformance test function one parameter per check."""
    selection: Selection | None = getattr(metafunc.function, ATTRIBUTE, None)
    if selection is None:
        return
    wanted = metafunc.config.getoption("--conformance-suite") or selection.suites
    chosen = catalogue(wanted)
    if not metafunc.config.getoption("--conformance-full"):
        chosen = sample(chosen, selection.share)
    parameters = [pytest.param((check, selection), id=check.name) for check in chosen]
    parameters.append(pytest.param((None, selection), id="expected_failures"))
    metafunc.parametrize("conformance_check", parameters, indirect=True)


@pytest.fixture
def conformance_check(request: pytest.FixtureRequest) -> Callable[[], None]:
    """Return a function that runs one check and fails, skips or passes by its outcome."""
    check, selection = request.param
    if check is None:
        return lambda: _assert_expectations_name_checks(selection.profile)
    return lambda: _run(check, selection.profile, request.node)


@cache
def _subject(name: str) -> list[Subject]:
    return []  # one list per provider: filled at the first check, so that a process asks check() once


def _subject_of(profile: EpProfile) -> Subject:
    made = _subject(profile.name)
    if not made or made[0].profile != profile:
        made[:] = [Subject(profile)]
    return made[0]


def _run(check: Check, profile: EpProfile, item: pytest.Item) -> None:
    start = time.perf_counter()
    finding = check.run(_subject_of(profile))
    result = Expectations.read(profile.expected_failures).judge(check.name, finding, time.perf_counter() - start)
    item.user_properties += [
        (OUTCOME, finding.outcome.value), (PROVIDER, profile.name), (DETAIL, finding.detail),
    ]  # fmt: skip
    _conclude(result)


def _conclude(result: CheckResult) -> None:
    finding = result.finding
    if result.is_stale:
        pytest.fail(f"{result.check} is expected to fail ({result.expected}) and does not: take it off the list", False)
    if finding.outcome.is_failure and result.expected:
        pytest.xfail(f"{finding.outcome.value}: {result.expected}")
    if finding.outcome.is_failure:
        pytest.fail(f"{finding.outcome.value}: {finding.detail}", pytrace=False)
    if finding.outcome.is_skip:
        pytest.skip(f"{finding.outcome.value}: {finding.detail}")


def _assert_expectations_name_checks(profile: EpProfile) -> None:
    expectations = Expectations.read(profile.expected_failures)
    stale = expectations.unknown([check.name for check in catalogue()])
    assert not stale, f"{expectations.source} names checks that do not exist: {', '.join(stale)}"


def pytest_report_teststatus(report: pytest.CollectReport | pytest.TestReport) -> tuple[str, str, str] | None:
    """Name the outcome of a passed check: what ran, what fell back and what was refused are counted apart."""
    if not isinstance(report, pytest.TestReport) or report.when != "call" or not report.passed:
        return None
    outcome = dict(report.user_properties).get(OUTCOME)
    if outcome is None:
        return None
    return str(outcome), LETTERS.get(Outcome(str(outcome)), "."), str(outcome).upper()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line per provider with the number of each outcome."""
    counts: dict[str, Counter[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            facts = dict(getattr(report, "user_properties", ()))
            if OUTCOME in facts and getattr(report, "when", "") == "call":
                counts.setdefault(str(facts[PROVIDER]), Counter())[str(facts[OUTCOME])] += 1
    for provider, found in sorted(counts.items()):
        text = ", ".join(f"{count} {outcome}" for outcome, count in found.most_common())
        terminalreporter.write_line(f"conformance of {provider}: {text}")
