"""Hold every provider of this machine to every promise, and write docs/support_matrix.md and the page beside it.

    python tools/support_matrix.py [--share 1.0] [--reports FOLDER]

Profiles come from the conformance tests of the repository. A provider that cannot run here is shown with the reason.
Exits with 1 when a provider breaks a promise that nobody expected it to break.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from ort_conformance import EpProfile
from ort_conformance.provider_run import find_profile, run_report
from ort_conformance.reports.junit import write_junit
from ort_conformance.reports.matrix import write_matrix
from ort_conformance.reports.report import ConformanceReport, Surroundings
from ort_conformance.reports.summary import print_summary
from ort_conformance.running import RunRequest
from ort_conformance.subject import Subject
from ort_core.environment import PACKAGES, default_environment

ROOT = Path(__file__).resolve().parent.parent
CORE_PROFILES = ROOT / "conformance/tests/test_core_providers.py"


def main() -> int:
    """Run all, write all, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="share of the operator cases")
    parser.add_argument("--reports", type=Path, help="folder for JSON and JUnit reports")
    arguments = parser.parse_args()
    console = Console()
    reports = [report_on(profile, arguments.share, console) for profile in profiles()]
    if arguments.reports is not None:
        arguments.reports.mkdir(parents=True, exist_ok=True)
        for report in reports:
            report.write(arguments.reports / f"{report.provider}.json")
            write_junit(report, arguments.reports / f"{report.provider}.xml")
    write_matrix(reports, ROOT / "docs")
    return int(any(report.problems() for report in reports))


def profiles() -> list[EpProfile]:
    """Return a profile for every known provider: the declared one where the repository has it."""
    known = [*default_environment().provider_classes(), *PACKAGES]
    return [profile_of(name) for name in dict.fromkeys(known)]


def profile_of(name: str) -> EpProfile:
    """Return the profile that a test module of the repository declares for a provider, else one that declares nothing.

    Raises:
        ProfileError: a module names the provider, and holds no profile of it.
    """
    modules = [CORE_PROFILES, *sorted(ROOT.glob("packages/*/tests/test_conformance.py"))]
    found = [module for module in modules if f'"{name}"' in module.read_text(encoding="utf-8")]
    return find_profile(name, found[0] if found else None)


def report_on(profile: EpProfile, share: float, console: Console) -> ConformanceReport:
    """Run one provider, or say why it cannot run here."""
    subject = Subject(profile)
    if not subject.availability:
        return ConformanceReport(profile.name, Surroundings.of(subject), (), str(subject.availability))
    report = run_report(RunRequest(profile, share=share), Console(stderr=True))
    print_summary(report, console)
    return report


if __name__ == "__main__":
    sys.exit(main())
