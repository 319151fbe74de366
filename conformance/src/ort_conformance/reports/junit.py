"""JUnit XML: what continuous integration shows. Refused and undeclared checks are skipped there, never passed."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from ort_conformance.outcome import CheckResult, Outcome
from ort_conformance.reports.report import ConformanceReport


def write_junit(report: ConformanceReport, path: Path) -> None:
    """Write a report: one test suite per suite, one test case per check, the outcome as a property."""
    root = ElementTree.Element("testsuites", name=f"conformance of {report.provider}")
    for suite in report.counts_by_suite():
        results = [result for result in report.results if result.suite == suite]
        element = ElementTree.SubElement(
            root, "testsuite", name=suite, tests=str(len(results)),
            failures=str(sum(result.is_problem for result in results)),
            skipped=str(sum(_is_skipped(result) for result in results)),
            time=f"{sum(result.duration_s for result in results):.3f}",
        )  # fmt: skip
        for result in results:
            _add_case(element, result)
    ElementTree.indent(root)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _add_case(parent: ElementTree.Element, result: CheckResult) -> None:
    suite, _, name = result.check.partition("/")
    case = ElementTree.SubElement(parent, "testcase", classname=suite, name=name, time=f"{result.duration_s:.4f}")
    properties = ElementTree.SubElement(case, "properties")
    ElementTree.SubElement(properties, "property", name="outcome", value=result.finding.outcome.value)
    text = _printable(result.finding.detail)
    if result.is_problem:
        word = "stale expectation" if result.is_stale else result.finding.outcome.value
        ElementTree.SubElement(case, "failure", message=word).text = text
    elif _is_skipped(result):
        reason = result.expected or result.finding.outcome.value
        ElementTree.SubElement(case, "skipped", message=_printable(f"{reason}: {text}"))


def _is_skipped(result: CheckResult) -> bool:
    outcome = result.finding.outcome
    return not result.is_problem and (outcome.is_skip or outcome is Outcome.REFUSED or bool(result.expected))


def _printable(text: str) -> str:
    """Return a text without the control characters that XML cannot hold."""
    return "".join(letter if letter >= " " or letter in "\t\n" else "?" for letter in text)
