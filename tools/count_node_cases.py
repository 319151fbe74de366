"""Count who computes ONNX's backend node cases when a provider is asked first, and why it leaves what it leaves.

    python tools/count_node_cases.py [PATTERN ...] [--provider NAME] [--out FILE] [--least N] [--reasons N] [--jobs N]

Each case runs at its own opset, without passes: every node of it is placed and counted. Exits with 1 when a result is
wrong, a step failed, or fewer than ``--least`` cases ran wholly on the provider.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from rich.console import Console

from ort_conformance.check import Check
from ort_conformance.judge import case_check
from ort_conformance.outcome import CheckResult, Outcome
from ort_conformance.running import RunRequest, run_checks
from ort_conformance.suites.backend_cases import node_cases
from support_matrix import profile_of

_NAME = re.compile(r"'[^']*' is ")


@dataclass(frozen=True, slots=True)
class NodeCases(RunRequest):
    """The node cases whose names match one of the patterns, all without patterns."""

    patterns: tuple[str, ...] = ()

    def checks(self) -> list[Check]:
        """Return one check for each case at the opset that it ships with."""
        return [
            case_check(suite, case)
            for suite, is_ml in (("operators", False), ("ml", True))
            for case in node_cases(is_ml=is_ml)
            if "@" not in case.name
            if not self.patterns or any(fnmatchcase(case.name, pattern) for pattern in self.patterns)
        ]


def main() -> int:
    """Run the cases, print the count, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", help="names of cases, * for any text; all by default")
    parser.add_argument("--provider", default="OpenVINOExecutionProvider")
    parser.add_argument("--out", type=Path, help="file for one JSON row for each case")
    parser.add_argument("--least", type=int, default=0, help="how many cases must run wholly on the provider")
    parser.add_argument("--reasons", type=int, default=20, help="how many of the commonest reasons to show")
    parser.add_argument("--jobs", type=int, default=1, help="processes that run cases at once")
    arguments = parser.parse_args()
    profile = profile_of(arguments.provider)
    console = Console()
    request = NodeCases(profile, suites=("operators", "ml"), patterns=tuple(arguments.patterns))
    results = []
    with console.status("collecting cases") as status:
        for result in run_checks(request, jobs=arguments.jobs):
            results.append(result)
            status.update(f"{len(results)} cases, now behind {result.check}")
    if arguments.out is not None:
        arguments.out.write_text("".join(f"{row(result)}\n" for result in results), encoding="utf-8")
    return report(results, arguments.least, arguments.reasons, console)


def row(result: CheckResult) -> str:
    """Return a result as JSON."""
    finding = result.finding
    left = {refused.operator: refused.reason for refused in finding.refusals}
    return json.dumps({"case": result.check, "outcome": finding.outcome, "detail": finding.detail, "left": left})


def report(results: list[CheckResult], least: int, shown: int, console: Console) -> int:
    """Print the count and the commonest reasons; return the exit status."""
    outcomes = Counter(result.finding.outcome for result in results)
    for outcome, count in outcomes.most_common():
        console.print(f"{count:5} {outcome}")
    for (operator, reason), count in _reasons(results).most_common(shown):
        console.print(f"{count:5} {operator}: {reason}", markup=False, highlight=False, soft_wrap=True)
    failures = [result for result in results if result.finding.outcome.is_failure]
    for result in failures:
        console.print(f"{result.check}: {result.finding.outcome}: {result.finding.detail}", markup=False)
    return int(bool(failures) or outcomes[Outcome.RAN] < least)


def _reasons(results: list[CheckResult]) -> Counter[tuple[str, str]]:
    """Return in how many cases an operator was left for a reason; names of values do not count."""
    return Counter(
        pair
        for result in results
        for pair in {(each.operator, _NAME.sub("a value is ", each.reason)) for each in result.finding.refusals}
    )


if __name__ == "__main__":
    sys.exit(main())
