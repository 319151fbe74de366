"""Outcomes are honest: who computed a case, where it failed, and what was expected, are told apart."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from liars import NAME, Honest, overriding
from onnx import parser
from rich.console import Console

from ort_conformance import EpProfile
from ort_conformance.case import Case, DataSet
from ort_conformance.check import Check
from ort_conformance.comparison import distance, find_difference
from ort_conformance.expectations import ExpectationError, Expectations
from ort_conformance.judge import judge_case
from ort_conformance.outcome import CheckResult, Finding, Outcome, RefusedOperator
from ort_conformance.reports.junit import write_junit
from ort_conformance.reports.matrix import matrix_markdown, matrix_page
from ort_conformance.reports.report import ConformanceReport, Surroundings, operator_support
from ort_conformance.reports.summary import print_summary
from ort_conformance.running import RunRequest, run_checks, run_one
from ort_conformance.subject import Subject
from ort_conformance.suites.model_files import folder_checks
from ort_conformance.suites.model_text import evaluated, node_model
from ort_conformance.suites.sample_graphs import CHAIN
from ort_core.plugin import Claim, Rejection
from ort_core.plugin.devices import Device, DeviceArray
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import echo_of, plugin_of

CASE = evaluated("chain", lambda: (CHAIN.model(), CHAIN.feeds()), "approximate")


def _raise(*arguments):
    raise RuntimeError("the vendor's compiler gave up")


def _claim_all_twice(self, view):
    return [Claim(tuple(view.nodes)), Claim(tuple(view.nodes))]


def judged(provider, case=CASE):
    with installed(plugin_of(provider)):
        return judge_case(Subject(EpProfile(provider.name)), case, f"operators/{case.name}")


@pytest.mark.parametrize(
    ("provider", "outcome"),
    [
        (Honest, Outcome.RAN),
        (echo_of("Relu"), Outcome.FELL_BACK),
        (echo_of("Conv"), Outcome.REFUSED),
        (overriding(get_capability=_raise), Outcome.FAILED_IN_CLAIM),
        (overriding(get_capability=_claim_all_twice), Outcome.FAILED_IN_CLAIM),
        (overriding(compile=_raise), Outcome.FAILED_IN_COMPILE),
    ],
)
def test_case_is_judged(provider, outcome, monkeypatch):
    monkeypatch.setenv(
        "ORT_STRICT_COMPILATION", "0"
    )  # as where the kit runs: in strict mode a fault in a claim ends the load
    finding = judged(provider)
    assert finding.outcome is outcome, finding.detail


def test_refusal_keeps_the_operator_and_its_reason():
    finding = judged(echo_of("Relu"))
    assert finding.operators == ("Relu",)
    assert RefusedOperator("Tanh", "EchoExecutionProvider does not run Tanh") in finding.refusals


def test_wrong_expectation_of_a_refused_case_is_no_result_of_the_provider():
    wrong = evaluated("wrong", lambda: (CHAIN.model(), CHAIN.feeds()), "exact", truth=lambda feeds: [feeds["x"]])
    assert judged(echo_of("Conv"), wrong).outcome is Outcome.ELSEWHERE_FAILED
    assert judged(Honest, wrong).outcome is Outcome.MISMATCH


def test_profile_replaces_a_tolerance_by_name():
    x = {"x": np.ones(3, np.float32)}
    nearly = [x["x"] * np.float32(1.00001)]
    near = evaluated("near", lambda: (node_model("Identity", x, {}), x), "exact", truth=lambda feeds: nearly)
    with installed(plugin_of(Honest)):
        strict = judge_case(Subject(EpProfile(NAME)), near, "operators/near")
        loose = judge_case(Subject(EpProfile(NAME, tolerances={"operators/n*": "approximate"})), near, "operators/near")
    assert (strict.outcome, loose.outcome) == (Outcome.MISMATCH, Outcome.RAN)


def test_expected_failure_that_passes_is_stale_and_one_that_fails_is_no_problem():
    expectations = Expectations({"a/b": ("notyet", "because")}, "file")
    passed = expectations.judge("a/b", Finding(Outcome.RAN), 0.0)
    failed = expectations.judge("a/b", Finding(Outcome.MISMATCH), 0.0)
    assert passed.is_stale
    assert passed.is_problem
    assert not failed.is_problem
    assert expectations.unknown(["c/d"]) == ["a/b"]


@pytest.mark.parametrize(
    "text", ['[sometime]\n"a/b" = "x"', '[never]\n"a/b" = " "', '[never]\n"a/b" = "x"\n[notyet]\n"a/b" = "y"']
)
def test_file_of_expected_failures_is_refused_when_it_is_not_as_it_must_be(text, tmp_path):
    path = tmp_path / "expected_failures.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ExpectationError, match=r"expected_failures\.toml"):
        Expectations.read(path)


REPORT = ConformanceReport(
    "AcmeExecutionProvider",
    Surroundings("0.1.0", "0.1.0", "1.23", "3.11", "Linux", "a device"),
    (
        CheckResult("operators/one", Finding(Outcome.RAN, "", ("Relu",))),
        CheckResult("operators/two", Finding(Outcome.REFUSED, "", (), (RefusedOperator("Exp", "no </script> exp"),))),
        CheckResult("operators/three", Finding(Outcome.MISMATCH, "off\x00 by one", ("Tanh", "Relu"))),
        CheckResult("operators/four", Finding(Outcome.MISMATCH, "known"), 0.0, "never: so it is"),
    ),
)


def test_report_is_read_as_it_was_written(tmp_path):
    REPORT.write(tmp_path / "report.json")
    assert ConformanceReport.read(tmp_path / "report.json") == REPORT
    assert json.loads((tmp_path / "report.json").read_text())["counts"] == {"ran": 1, "refused": 1, "mismatch": 2}
    assert [result.check for result in REPORT.problems()] == ["operators/three"]


def test_junit_counts_a_refusal_as_skipped(tmp_path):
    write_junit(REPORT, tmp_path / "junit.xml")
    [suite] = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "1", "2")


def summary_of(report):
    console = Console(file=io.StringIO(), width=200)
    print_summary(report, console)
    return console.file.getvalue()


def test_summary_does_not_call_conformant_what_it_could_not_judge():
    absent = ConformanceReport("GoneExecutionProvider", REPORT.surroundings, (), "no such device")
    assert "GoneExecutionProvider: cannot be judged on this machine" in summary_of(absent)
    assert "AcmeExecutionProvider: 1 checks fail" in summary_of(REPORT)
    assert "operators/three: mismatch: off" in summary_of(REPORT)


def test_matrix_shows_each_operator_with_its_word_and_its_reasons():
    support = operator_support(REPORT.results)
    words = {name: each.word for name, each in support.items()}
    assert words == {"Relu": "failing", "Exp": "refused", "Tanh": "failing"}
    absent = ConformanceReport("GoneExecutionProvider", REPORT.surroundings, (), "no such | device")
    text = matrix_markdown([REPORT, absent], "page.html")
    assert "| Exp | ○ |" in text
    assert "`operators/three`: mismatch. NOT EXPECTED: off" in text
    assert "`operators/four`: mismatch. Expected, never: so it is" in text
    assert "not available: no such \\| device" in text
    page = matrix_page([REPORT, absent])
    assert page.count("</script>") == 2, "a reason must not end the script element"
    assert "no \\u003c/script> exp" in page
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert data["rows"][0] == ["Exp", [["refused", 0, 1, 0, ["no </script> exp"]]]]


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "msedge")


@pytest.mark.slow
@pytest.mark.parametrize(("search", "shown"), [("", 3), ("tanh", 1), ("script", 1), ("nothing%20such", 0)])
def test_matrix_page_filters_in_a_real_browser(search, shown, tmp_path):
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"no browser on this machine: none of {', '.join(BROWSERS)}")
    page = tmp_path / "page.html"
    page.write_text(matrix_page([REPORT]), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    command = [browser, *flags, f"{page.as_uri()}#{search}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"{shown} of 3 operators" in done.stdout


CRASHING = """
import os
from ort_core.plugin import KernelProvider, hookimpl

ORT_PLUGIN_API = (2, 0)


class Provider(KernelProvider):
    name = "CrashingExecutionProvider"

    def compile(self, request):
        if any(node.op_type == "Tanh" for node in request.graph):
            os._exit(3)
        return super().compile(request)


@hookimpl
def ort_providers():
    return [Provider]
"""


def test_provider_that_ends_the_process_costs_one_check_only(install):
    install("crashing_plugin", CRASHING)
    request = RunRequest(EpProfile("CrashingExecutionProvider"), ("partitioning",))
    outcomes = {result.check: result.finding for result in run_checks(request)}
    assert outcomes["partitioning/chain"].outcome is Outcome.CRASHED
    assert "exit code 3" in outcomes["partitioning/chain"].detail
    assert outcomes["partitioning/value_used_inside_and_outside"].outcome is Outcome.RAN
    assert len(outcomes) == len(request.checks())


OLD = "ORT_PLUGIN_API = (0, 9)\n\ndef ort_providers():\n    raise SystemExit('never called')\n"


def test_provider_written_for_another_api_gets_a_clear_refusal(install):
    install("old_plugin", OLD)
    request = RunRequest(EpProfile("OldExecutionProvider"), ("contract", "errors"))
    results = {result.check: result.finding for result in run_checks(request)}
    found = results["contract/is_discovered_under_its_name"]
    assert found.outcome is Outcome.BROKEN
    assert "was written for plugin API 0.9" in found.detail
    assert results["errors/a_terminated_run_stops"].outcome is Outcome.UNAVAILABLE


def test_check_that_fails_itself_is_reported_and_does_not_end_the_run():
    broken = Check("x/y", "never", lambda subject: 1 / 0)
    with installed(plugin_of(Honest)):
        assert "the check itself failed: ZeroDivisionError" in run_one(broken, Subject(EpProfile(NAME))).detail


def test_reasons_of_a_rejection_reach_the_matrix():
    provider = overriding(get_capability=lambda self, view: [Rejection("too hot", node) for node in view.nodes])
    support = operator_support([CheckResult("operators/chain", judged(provider))])
    assert support["Tanh"].reasons == ("too hot",)


STEPS = """<ir_version: 8, opset_import: ["": 17]> g (float[3] x) => (float[3] y)
    <float[1] many = {1000}> { a = Mul (x, many) b = Round (a) y = Div (b, many) }"""


@pytest.mark.parametrize(
    ("value", "recorded", "outcome"), [(0.0015, 0.001, Outcome.RAN), (0.0013, 0.002, Outcome.MISMATCH)]
)
def test_a_whole_step_apart_counts_unless_the_value_lies_on_the_border(tmp_path, value, recorded, outcome):
    onnx.save(onnx.parser.parse_model(STEPS), tmp_path / "model.onnx")
    (tmp_path / "test_data_set_0").mkdir()
    for name, number in (("input_0", value), ("output_0", recorded)):
        proto = onnx.numpy_helper.from_array(np.full(3, number, np.float32), name)
        (tmp_path / "test_data_set_0" / f"{name}.pb").write_bytes(proto.SerializeToString())
    [check] = folder_checks(tmp_path)
    with installed(plugin_of(Honest)):
        finding = check.run(Subject(EpProfile(Honest.name)))
    assert finding.outcome is outcome
    assert "elements outside approximate" in finding.detail, "the difference is shown in either case"


@pytest.mark.parametrize(("provider", "outcome"), [(echo_of("Relu"), Outcome.NOT_JUDGED), (Honest, Outcome.MISMATCH)])
def test_what_the_reference_misses_in_the_same_way_is_not_the_fault_of_who_computed_a_part(provider, outcome):
    right = [*CASE.data_sets()]
    wrong = [DataSet(data.feeds, [np.asarray(value) + 1 for value in data.expected]) for data in right]
    assert judged(provider, replace(CASE, data_sets=lambda: iter(wrong))).outcome is outcome


def test_mappings_are_compared_within_tolerance():
    assert find_difference([[{"a": 0.5}]], [[{"a": 0.5000001}]], "approximate") is None
    assert find_difference([[{"a": 0.5}]], [[{"a": 0.6}]], "approximate") is not None
    assert find_difference([{"a": 0.5}], [{"b": 0.5}], "approximate") is not None
    assert find_difference([{1: "x"}], [{1: "y"}], "approximate") is not None


@pytest.mark.parametrize(
    ("found", "expected", "apart"),
    [
        ([2.0, 4.0], [2.0, 8.0], 0.5),
        ([np.nan, np.inf], [np.nan, np.inf], 0.0),
        ([np.inf], [1.0], np.inf),
        ([1.0], [1.0, 2.0], np.inf),
        (["a"], ["b"], np.inf),
        (["a"], ["a"], 0.0),
    ],
)
def test_distance_is_in_units_of_the_largest_value(found, expected, apart):
    assert distance(np.array(found), np.array(expected)) == apart
    assert distance({"k": np.array(found)}, {"k": np.array(expected)}) == apart


def case_of(text: str, unjudged: str = "") -> Case:
    data = DataSet({"x": np.ones(3, np.float32)}, [np.ones(3, np.float32)])
    return Case("relu", lambda: parser.parse_model(text), lambda: iter([data]), "exact", unjudged=unjudged)


RELU = '<ir_version: 8, opset_import: ["": 17]> g (float[3] x) => (float[3] y) { y = Relu(x) }'


def test_operators_of_a_case_that_has_no_session_have_a_failing_cell():
    def refuse(self, request):
        raise RuntimeError("no device left")

    with installed(plugin_of(overriding(compile=refuse))):
        finding = judge_case(Subject(EpProfile(NAME)), case_of(RELU), "operators/relu", ())
    assert finding.outcome is Outcome.FAILED_IN_COMPILE
    assert operator_support([CheckResult("operators/relu", finding)])["Relu"].word == "failing"


def test_operators_whose_results_nobody_can_compare_have_a_cell_of_their_own():
    with installed(plugin_of(Honest)):
        finding = judge_case(Subject(EpProfile(NAME)), case_of(RELU, "random numbers"), "operators/relu", ())
    support = operator_support([CheckResult("operators/relu", finding)])["Relu"]
    assert (support.word, support.ran) == ("unjudged", 0)
    report = ConformanceReport(NAME, REPORT.surroundings, (CheckResult("operators/relu", finding),))
    assert "| Relu | · |" in matrix_markdown([report], "page.html")


def test_matrix_names_the_operators_of_onnxruntimes_domain_without_a_case():
    text = matrix_markdown([REPORT], "page.html")
    assert "operators of com.microsoft that ort-core itself has, no case of the suite holds" in text
    assert "BiasGelu" in text
    one = CheckResult("contrib/bias_gelu", Finding(Outcome.RAN, "", ("com.microsoft::BiasGelu",)))
    shown = matrix_markdown([replace(REPORT, results=(one,))], "page.html")
    assert "| com.microsoft::BiasGelu | ● |" in shown
    assert "BiasGelu," not in shown.partition("no case of the suite holds")[2]


def test_a_value_on_a_device_is_told_as_such():
    class Buffer:
        nbytes, device = 8, Device("acme", 3)

    elsewhere = DeviceArray(None, Buffer(), np.dtype(np.float32), (2,))
    assert find_difference([elsewhere], [np.zeros(2, np.float32)], "exact") == (
        "output 0: a value on acme:3, expected one on the host"
    )
