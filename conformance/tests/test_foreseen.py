"""A provider that cannot run here: what it would take is shown, and never counted as computed."""

from __future__ import annotations

import json

import pytest
from liars import NAME, Honest, overriding

from ort_conformance import EpProfile
from ort_conformance.judge import case_check
from ort_conformance.outcome import CheckResult, Finding, Outcome
from ort_conformance.reports.journal import JournalState
from ort_conformance.reports.matrix import matrix_markdown, matrix_page
from ort_conformance.reports.report import ConformanceReport, Surroundings, operator_support
from ort_conformance.running import RunRequest, run_checks
from ort_conformance.subject import Subject
from ort_conformance.suites.model_text import evaluated
from ort_conformance.suites.sample_graphs import CHAIN
from ort_core.plugin import Claim, NotImplemented, Rejection, Unavailable
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import plugin_of

CHECK = case_check("operators", evaluated("chain", lambda: (CHAIN.model(), CHAIN.feeds()), "approximate"))
ABSENT = {"check": classmethod(lambda cls: Unavailable("the board is not plugged in", "plug it in"))}


def _claim_relu(self, view):
    taken = [node for node in view.nodes if node.op_type == "Relu"]
    left = [Rejection("too hot", node) for node in view.nodes if node not in taken]
    return [*(Claim((node,)) for node in taken), *left]


def _without_sdk(self, view):
    raise NotImplemented("the boards' SDK is not installed (pip install boards)")


def _fail(self, *arguments):
    raise RuntimeError("the vendor's compiler gave up")


def _built(self, request):
    return None


@pytest.mark.parametrize(
    ("members", "outcome", "words"),
    [
        ({}, Outcome.CLAIMED, "builds nothing where it cannot run"),
        ({"get_capability": _claim_relu}, Outcome.PARTLY_CLAIMED, "builds nothing"),
        ({"build": _built}, Outcome.BUILT, ""),
        ({"build": _built, "get_capability": _claim_relu}, Outcome.PARTLY_BUILT, "too hot"),
        ({"build": _fail}, Outcome.FAILED_IN_COMPILE, "the vendor's compiler gave up"),
        ({"get_capability": lambda self, view: [Rejection("no", n) for n in view.nodes]}, Outcome.REFUSED, "no"),
        ({"get_capability": _fail}, Outcome.FAILED_IN_CLAIM, "get_capability failed: RuntimeError"),
        ({"get_capability": _without_sdk}, Outcome.UNAVAILABLE, "not plugged in"),
    ],
)
def test_case_of_a_provider_that_is_not_here(members, outcome, words, monkeypatch):
    monkeypatch.setenv(
        "ORT_STRICT_COMPILATION", "0"
    )  # as where the kit runs: in strict mode a fault in a claim ends the load
    with installed(plugin_of(overriding(**ABSENT, **members))):
        finding = CHECK.run(Subject(EpProfile(NAME)))
    assert finding.outcome is outcome, finding.detail
    assert words in finding.detail


@pytest.mark.parametrize("outcome", [each for each in Outcome if each.is_foreseen])
def test_what_is_foreseen_is_neither_passed_nor_failed(outcome):
    assert outcome.is_skip
    assert not outcome.is_failure


def _report(outcome):
    results = (
        CheckResult("operators/one", Finding(outcome, "", ("Relu", "Exp"))),
        CheckResult("operators/two", Finding(Outcome.REFUSED, "", (), ())),
    )
    around = Surroundings("0.1.0", "0.1.0", "1.23", "3.11", "Linux", "")
    return ConformanceReport("FarExecutionProvider", around, results, "the board is not plugged in")


@pytest.mark.parametrize(("outcome", "sign", "word"), [(Outcome.BUILT, "▲", "built"), (Outcome.CLAIMED, "△", "claims")])
def test_matrix_has_a_column_that_says_that_nothing_was_computed(outcome, sign, word):
    report = _report(outcome)
    assert operator_support(report.results)["Relu"].ran == 0
    text = matrix_markdown([report], "page.html")
    assert f"| operator | Far ({word} only) |" in text
    assert f"| Relu | {sign} |" in text
    assert "not available: the board is not plugged in; " in text
    data = json.loads(matrix_page([report]).partition('id="data">')[2].partition("</script>")[0])
    assert data["rows"][1] == ["Relu", [[outcome.value, 1, 0, 0, []]]]


def test_matrix_says_by_which_means_results_came_about():
    around = Surroundings("0.1.0", "0.1.0", "1.23", "3.11", "Linux", "boards 9", "emulated by a C++ compiler")
    report = ConformanceReport("EmulatedExecutionProvider", around, (CheckResult("a/b", Finding(Outcome.RAN)),))
    assert "| EmulatedExecutionProvider | boards 9; emulated by a C++ compiler | 1 ran |" in matrix_markdown(
        [report], "p"
    )


ENDING = """
import os
from ort_core.plugin import KernelProvider, hookimpl

ORT_PLUGIN_API = (2, 0)


class Provider(KernelProvider):
    name = "EndingExecutionProvider"

    def compile(self, request):
        if any(node.op_type == "QuickGelu" for node in request.graph):
            os._exit(3)
        return super().compile(request)


@hookimpl
def ort_providers():
    return [Provider]
"""


def test_checks_in_several_processes_give_each_result_once(install):
    install("ending_plugin", ENDING)
    request = RunRequest(EpProfile("EndingExecutionProvider"), ("contrib",))
    results = list(run_checks(request, jobs=2))
    assert sorted(result.check for result in results) == sorted(check.name for check in request.checks())
    crashed = {result.check for result in results if result.finding.outcome is Outcome.CRASHED}
    assert crashed == {"contrib/QuickGelu"}
    assert {result.finding.outcome for result in results if result.check not in crashed} == {Outcome.RAN}


def test_checks_that_are_done_are_left_out(install):
    install("ending_plugin", ENDING)
    request = RunRequest(EpProfile("EndingExecutionProvider"), ("errors",))
    first, *others = [check.name for check in request.checks()]
    assert [result.check for result in run_checks(request, done={first})] == others


def test_journal_goes_on_where_a_run_of_the_same_was(tmp_path):
    path, result = tmp_path / "journal.jsonl", CheckResult("a/b", Finding(Outcome.RAN, "", ("Relu",)), 1.5)
    JournalState(path, "run 1", resumes=False).add(result)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"check": "a/c", "outc')  # what a process that was ended leaves
    assert JournalState(path, "run 1", resumes=True).results == [result]
    assert JournalState(path, "run 1", resumes=True).results == [result], "it was written again"
    assert JournalState(path, "run 1", resumes=False).results == []
    JournalState(path, "run 1", resumes=False).add(result)
    assert JournalState(path, "run 2", resumes=True).results == [], "of another run"


def test_honest_provider_that_is_here_is_not_foreseen():
    with installed(plugin_of(Honest)):
        assert CHECK.run(Subject(EpProfile(NAME))).outcome is Outcome.RAN
