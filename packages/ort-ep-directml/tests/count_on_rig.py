"""Run ONNX's backend node cases on the rig and count who computed them, and why the provider leaves what it leaves.

    python count_on_rig.py [PATTERN ...] [--views] [--out FILE] [--least N] [--reasons N]

Each case runs at its own opset, without passes, by the real DirectML. A rule of Direct3D that is broken fails the case.
With ``--views`` nodes that only move values are claimed alone, too: otherwise they are beside others.
Exits with 1 when a result is wrong, a step failed, or fewer than ``--least`` cases ran wholly on the provider.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from directml_rig import fetch
from directml_rig.rig import the_rig
from rig_provider import RigDmlProvider, rig_plugin

from ort_conformance import EpProfile
from ort_conformance.check import Check
from ort_conformance.judge import case_check
from ort_conformance.outcome import CheckResult, Finding, Outcome
from ort_conformance.running import RunRequest, run_checks
from ort_conformance.subject import Subject
from ort_conformance.suites.backend_cases import node_cases
from ort_core.testing.environments import installed
from ort_ep_directml import capability

PROFILE = EpProfile(
    RigDmlProvider.name,
    tolerances={"operators/test_attention_*fp16*": "approximate"},  # sums of products are rounded at other places
)
_PROCESS = ExitStack()  # never left: checks run in a process of their own
_NAME = re.compile(r"'[^']*' is ")


@dataclass(frozen=True, slots=True)
class RigCases(RunRequest):
    """The node cases whose names match one of the patterns, all without patterns; each on the rig."""

    patterns: tuple[str, ...] = ()
    with_views: bool = False

    def checks(self) -> list[Check]:
        """Return one check for each case at the opset that it ships with; sessions of this process see the rig."""
        _PROCESS.enter_context(installed(rig_plugin()))
        if self.with_views:
            capability._VIEWS = frozenset()
        return [
            _on_rig(case_check(suite, case))
            for suite, is_ml in (("operators", False), ("ml", True))
            for case in node_cases(is_ml=is_ml)
            if "@" not in case.name
            if not self.patterns or any(fnmatchcase(case.name, pattern) for pattern in self.patterns)
        ]


def _on_rig(check: Check) -> Check:
    def judge(subject: Subject) -> Finding:
        found = check.judge(subject)
        rig = the_rig()
        faults = rig.faults()
        if rig.device is not None and rig.device.removed:
            rig.forget_device()  # the next case begins with a new one, whoever still holds this one
        if faults and not found.outcome.is_failure:
            return Finding(Outcome.FAILED_IN_RUN, f"{type(faults[0]).__name__}: {faults[0]}")
        return replace(found, detail=f"{found.detail}; {faults[0]!r}") if faults else found

    return replace(check, judge=judge)


def main() -> int:
    """Run the cases, print the count, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", help="names of cases, * for any text; all by default")
    parser.add_argument("--views", action="store_true", help="claim nodes that only move values alone, too")
    parser.add_argument("--out", type=Path, help="file for one JSON row for each case")
    parser.add_argument("--least", type=int, default=0, help="how many cases must run wholly on the provider")
    parser.add_argument("--reasons", type=int, default=20, help="how many of the commonest reasons to show")
    arguments = parser.parse_args()
    fetch.library()  # says what is missing before anything runs
    results = []
    request = RigCases(PROFILE, ("operators", "ml"), patterns=tuple(arguments.patterns), with_views=arguments.views)
    with arguments.out.open("w", encoding="utf-8") if arguments.out is not None else nullcontext() as rows:
        for result in run_checks(request):
            results.append(result)
            if rows is not None:
                rows.write(f"{row(result)}\n")
                rows.flush()  # what is done stays where somebody ends the run
    return report(results, arguments.least, arguments.reasons)


def row(result: CheckResult) -> str:
    """Return a result as JSON."""
    finding = result.finding
    left = {refused.operator: refused.reason for refused in finding.refusals}
    facts = {"case": result.check, "outcome": finding.outcome, "detail": finding.detail, "left": left}
    return json.dumps({**facts, "ran": finding.operators, "seconds": round(result.duration_s, 3)})


def report(results: list[CheckResult], least: int, shown: int) -> int:
    """Print the count and the commonest reasons; return the exit status."""
    outcomes = Counter(result.finding.outcome for result in results)
    lines = [f"{count:5} {outcome}" for outcome, count in outcomes.most_common()]
    right = {o for r in results if not r.finding.outcome.is_failure for o in r.finding.operators}
    lines.append(f"{len(right):5} operators of ONNX ran, wholly or beside others, with right results")
    lines.append(f"{sum(result.duration_s for result in results):5.0f} s for all cases")
    for (operator, reason), count in _reasons(results).most_common(shown):
        lines.append(f"{count:5} {operator}: {reason}")
    failures = [result for result in results if result.finding.outcome.is_failure]
    lines += [f"{result.check}: {result.finding.outcome}: {result.finding.detail[-400:]}" for result in failures]
    sys.stdout.write("\n".join(lines) + "\n")
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
