"""Running checks in a process of their own: a provider that crashes or hangs costs one check, not the report."""

from __future__ import annotations

import multiprocessing
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from ort_conformance.catalogue import SUITES, catalogue, sample
from ort_conformance.check import Check
from ort_conformance.expectations import Expectations
from ort_conformance.outcome import CheckResult, Finding, Outcome
from ort_conformance.profile import EpProfile
from ort_conformance.subject import Subject

TIME_LIMIT_S = 300.0  # of one check; the longest takes a fraction, a hang takes for ever


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What to run: suites (all when empty), the share of operator cases, and folders of further models."""

    profile: EpProfile
    suites: tuple[str, ...] = ()
    share: float = 1.0
    model_folders: tuple[Path, ...] = ()

    def check(self) -> None:
        """Raise what would make a run fail before its first check.

        Raises:
            ValueError: a suite is not known, or the file of expected failures is not as it must be.
            FileNotFoundError: a folder, or the file of expected failures, does not exist.
        """
        unknown = [name for name in self.suites if name not in SUITES]
        if unknown:
            raise ValueError(f"no suite {unknown[0]!r}; the suites are {', '.join(SUITES)}")
        missing = [folder for folder in self.model_folders if not folder.is_dir()]
        if missing:
            raise FileNotFoundError(f"no folder {missing[0]}")
        Expectations.read(self.profile.expected_failures)

    def checks(self) -> list[Check]:
        """Return the checks, in order.

        Raises:
            ValueError: a suite is not known.
            FileNotFoundError: a folder holds no model.
        """
        from ort_conformance.suites.model_files import folder_checks

        own = sample(catalogue(self.suites), self.share)
        return own + [check for folder in self.model_folders for check in folder_checks(folder)]


def run_checks(request: RunRequest) -> Iterator[CheckResult]:
    """Yield a result per check. A worker that dies or hangs is replaced, and its check has crashed.

    Raises:
        ExpectationError: the file of expected failures is not as it must be.
    """
    expectations = Expectations.read(request.profile.expected_failures)
    names = [check.name for check in request.checks()]
    position = 0
    while position < len(names):
        worker = _Worker(request, position)
        try:
            while position < len(names):
                start = time.perf_counter()
                finding = worker.next_finding()
                yield expectations.judge(names[position], finding, time.perf_counter() - start)
                position += 1
                if finding.outcome is Outcome.CRASHED:
                    break
        finally:
            worker.stop()
    if not request.suites and request.share >= 1:
        yield from stale_entries(expectations, [check.name for check in catalogue()])


def stale_entries(expectations: Expectations, names: Sequence[str]) -> Iterator[CheckResult]:
    """Yield a problem for every expected failure that names no check."""
    for entry in expectations.unknown(names):
        text = f"{expectations.source} expects {entry!r} to fail, and there is no such check"
        yield CheckResult(f"expected_failures/{entry}", Finding(Outcome.BROKEN, text))


class _Worker:
    """A process that runs checks from a position on and sends each finding."""

    def __init__(self, request: RunRequest, position: int) -> None:
        context = multiprocessing.get_context("spawn")  # providers and their threads do not survive a fork
        self._receiver, sender = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(request, position, sender), daemon=True)
        self._process.start()
        sender.close()

    def next_finding(self) -> Finding:
        """Wait for the next finding; a crash or a hang is one too."""
        if not self._receiver.poll(TIME_LIMIT_S):
            return Finding(Outcome.CRASHED, f"no end after {TIME_LIMIT_S:.0f} s")
        try:
            finding = self._receiver.recv()
        except EOFError:
            self._process.join()
            return Finding(Outcome.CRASHED, f"the process ended with exit code {self._process.exitcode}")
        assert isinstance(finding, Finding)
        return finding

    def stop(self) -> None:
        """End the process and wait for it."""
        self._receiver.close()
        self._process.kill()
        self._process.join()


def _work(request: RunRequest, position: int, sender: Connection) -> None:
    warnings.simplefilter("ignore")  # what matters is in the findings
    subject = Subject(request.profile)
    for check in request.checks()[position:]:
        sender.send(run_one(check, subject))


def run_one(check: Check, subject: Subject) -> Finding:
    """Run a check; an exception of the suite itself is shown as what it is."""
    try:
        return check.run(subject)
    except Exception as error:  # noqa: BLE001 - one broken check must not end the run; it is reported as a failure
        return Finding(Outcome.BROKEN, f"the check itself failed: {type(error).__name__}: {error}")
