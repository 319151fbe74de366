"""A whole run of one provider: its profile found, its checks run with progress shown, its reports written."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from rich.console import Console

from ort_conformance.profile import EpProfile
from ort_conformance.reports.journal import JournalState
from ort_conformance.reports.junit import write_junit
from ort_conformance.reports.matrix import MARKDOWN, PAGE, write_matrix
from ort_conformance.reports.report import ConformanceReport, Surroundings
from ort_conformance.running import RunRequest, run_checks
from ort_conformance.subject import Subject
from ort_conformance.test_function import ATTRIBUTE

RESULTS, JUNIT = "report.json", "junit.xml"
FILES = frozenset({RESULTS, JUNIT, MARKDOWN, PAGE})
"""What ``write_reports`` writes."""


class ProfileError(ValueError):
    """A module holds no profile of the provider; the message says what it holds."""


def run_report(
    request: RunRequest, progress: Console, *, jobs: int = 1, journal: JournalState | None = None
) -> ConformanceReport:
    """Run the checks, with a line on the terminal that says where the run is.

    Args:
        request: what to run.
        progress: where the line goes, if it is a terminal.
        jobs: how many processes run cases at once.
        journal: holds the results of an earlier run that was interrupted, and gets those of this one.
    """
    subject = Subject(request.profile)
    results = [] if journal is None else list(journal.results)
    found = run_checks(request, jobs=jobs, done=frozenset(result.check for result in results))
    with progress.status("collecting checks") if progress.is_terminal else nullcontext() as status:
        for result in found:
            results.append(result)
            if journal is not None:
                journal.add(result)
            if status is not None:
                status.update(f"{len(results)} checks of {request.profile.name}, now behind {result.check}")
    place = {check.name: index for index, check in enumerate(request.checks())}
    results.sort(key=lambda result: place.get(result.check, len(place)))
    unavailable = "" if subject.availability else str(subject.availability)
    return ConformanceReport(request.profile.name, Surroundings.of(subject), tuple(results), unavailable)


def write_reports(found: ConformanceReport, folder: Path) -> None:
    """Write all files of a report into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    found.write(folder / RESULTS)
    write_junit(found, folder / JUNIT)
    write_matrix([found], folder)


def find_profile(provider: str, module: Path | None) -> EpProfile:
    """Return the profile that a test module declares for a provider; without a module, one that declares nothing.

    A module that skips itself (its SDK is not here) has said what it states above that line.

    Raises:
        ProfileError: the module cannot be read, or holds no profile of that provider.
    """
    if module is None:
        return EpProfile(provider)
    if not module.is_file():
        raise ProfileError(f"there is no file {module}; a provider's profile stands in its tests/test_conformance.py")
    spec = importlib.util.spec_from_file_location("ort_conformance_profile", module)
    if spec is None or spec.loader is None:
        raise ProfileError(f"{module} is not a Python file")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    skipped = ""
    try:
        spec.loader.exec_module(loaded)
    except pytest.skip.Exception as reason:
        skipped = f" above the line where it skips itself ({reason})"
    profiles = [each for value in vars(loaded).values() for each in _profiles_of(value)]
    for found in profiles:
        if found.name == provider:
            return found
    names = ", ".join(dict.fromkeys(each.name for each in profiles)) or "none"
    raise ProfileError(f"{module} holds no profile of {provider}{skipped}; found {names}")


def _profiles_of(value: object) -> list[EpProfile]:
    """Return the profile that a module's value is, or that it is a test of."""
    if isinstance(value, EpProfile):
        return [value]
    selection = getattr(value, ATTRIBUTE, None)
    return [] if selection is None else [selection.profile]
