"""Hold every provider of this machine to every promise, and write docs/support_matrix.md and the page beside it.

    python tools/support_matrix.py [--jobs N] [--resume] [--provider NAME ...] [--share 1.0] [--reports FOLDER]

Profiles come from the conformance tests of the repository. A provider that cannot run here is shown with the reason and
with what it would run, where its package can say so. With ``--provider`` only these are run, and the others are taken
from the reports of earlier runs; so are always those that only another environment has. Exits with 1 when a provider
breaks a promise that nobody expected it to break.

A run takes long: every result is kept in the folder of reports as it comes, and ``--resume`` goes on where an
interrupted run of the same code was.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from ort_conformance import EpProfile
from ort_conformance.provider_run import find_profile, run_report
from ort_conformance.reports.journal import JournalState
from ort_conformance.reports.junit import write_junit
from ort_conformance.reports.matrix import write_matrix
from ort_conformance.reports.report import ConformanceReport, Surroundings
from ort_conformance.reports.summary import print_summary
from ort_conformance.running import RunRequest
from ort_conformance.subject import Subject
from ort_core.environment import PACKAGES, default_environment

ROOT = Path(__file__).resolve().parent.parent
CORE_PROFILES = ROOT / "conformance/tests/test_core_providers.py"
REPORTS = ROOT / "build/conformance"
OWN = ("CPUExecutionProvider", "ReferenceExecutionProvider")


def main() -> int:
    """Run all, write all, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="share of the operator cases")
    parser.add_argument("--jobs", type=int, default=1, help="processes that run cases at once")
    parser.add_argument("--resume", action="store_true", help="take over the results of an interrupted run")
    parser.add_argument("--provider", action="append", metavar="NAME", help="run only this provider; repeatable")
    parser.add_argument("--reports", type=Path, default=REPORTS, help="folder for JSON and JUnit reports, and journals")
    arguments = parser.parse_args()
    names = provider_names()
    unknown = [name for name in arguments.provider or () if name not in names]
    if unknown:
        parser.error(f"no provider is called {unknown[0]!r}; known are {', '.join(names)}")
    console, code = Console(), digest_of_code()
    stored_only = [each.stem for each in sorted(arguments.reports.glob("*.json")) if each.stem not in names]
    reports = []
    for name in [*names, *stored_only]:
        stored = arguments.reports / f"{name}.json"
        if name in stored_only or (arguments.provider and name not in arguments.provider):
            reports += [ConformanceReport.read(stored)] if stored.is_file() else []
            continue
        report = report_on(profile_of(name), arguments, code, console)
        report.write(stored)
        write_junit(report, stored.with_suffix(".xml"))
        reports.append(report)
    write_matrix(reports, ROOT / "docs")
    return int(any(report.problems() for report in reports))


def provider_names() -> list[str]:
    """Return the names of all providers, installed or known: the core's own first."""
    installed = list(default_environment().provider_classes())
    return list(dict.fromkeys([*(name for name in OWN if name in installed), *PACKAGES, *installed]))


def profile_of(name: str) -> EpProfile:
    """Return the profile that a test module of the repository declares for a provider, else one that declares nothing.

    Raises:
        ProfileError: a module names the provider, and holds no profile of it.
    """
    modules = [CORE_PROFILES, *sorted(ROOT.glob("packages/*/tests/test_conformance.py"))]
    found = [module for module in modules if f'"{name}"' in module.read_text(encoding="utf-8")]
    return find_profile(name, found[0] if found else None)


def report_on(profile: EpProfile, arguments: argparse.Namespace, code: str, console: Console) -> ConformanceReport:
    """Run one provider; where it cannot run here, say why, and ask what it would run."""
    subject = Subject(profile)
    arguments.reports.mkdir(parents=True, exist_ok=True)
    if not subject.availability and not subject.can_be_asked:
        return ConformanceReport(profile.name, Surroundings.of(subject), (), str(subject.availability))
    run = f"{code} share {arguments.share} {text_of(profile)} {subject.availability!r}"
    journal = JournalState(arguments.reports / f"{profile.name}.jsonl", run, resumes=arguments.resume)
    request = RunRequest(profile, share=arguments.share)
    report = run_report(request, Console(stderr=True), jobs=arguments.jobs, journal=journal)
    print_summary(report, console)
    return report


def text_of(profile: EpProfile) -> str:
    """Return a profile as text that is the same in every process: a set has another order in each."""
    features = sorted(feature.name for feature in profile.features)
    return f"{replace(profile, features=frozenset())!r} {features}"


def digest_of_code() -> str:
    """Return a digest of all that decides results and lies in the repository."""
    digest = hashlib.sha256()
    for folder in ("packages", "conformance"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".toml", ".json") and "build" not in path.parts:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
