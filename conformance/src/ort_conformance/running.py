"""Running checks in a process of their own: a provider that crashes or hangs costs one check, not the report."""

from __future__ import annotations

import multiprocessing
import queue
import threading
import time
import warnings
from collections.abc import Collection, Iterator, Sequence
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
LONG_TIME_LIMIT_S = 3000.0  # of a check that takes minutes: a busy machine makes of one minute ten


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


_Found = tuple[int, Finding, float]  # the check's position, what was found, in how many seconds


def run_checks(request: RunRequest, *, jobs: int = 1, done: Collection[str] = ()) -> Iterator[CheckResult]:
    """Yield a result per check. A worker that dies or hangs is replaced, and its check has crashed.

    Args:
        request: what to run.
        jobs: how many processes run cases at once; what looks at threads, memory and time runs alone behind them.
        done: names of checks that are left out, their results being known.

    Raises:
        ExpectationError: the file of expected failures is not as it must be.
    """
    expectations = Expectations.read(request.profile.expected_failures)
    checks = request.checks()
    left = [position for position, check in enumerate(checks) if check.name not in done]
    together = [position for position in left if checks[position].is_case] if jobs > 1 else []
    alone = [position for position in left if not (jobs > 1 and checks[position].is_case)]
    for found in (_in_lanes(request, checks, together, jobs), _in_order(request, checks, alone)):
        for position, finding, duration_s in found:
            yield expectations.judge(checks[position].name, finding, duration_s)
    if not request.suites and request.share >= 1:
        yield from stale_entries(expectations, [check.name for check in catalogue()])


def _in_order(request: RunRequest, checks: Sequence[Check], positions: Sequence[int]) -> Iterator[_Found]:
    """Run the checks at some positions in one process, which is replaced when it dies."""
    left = list(positions)
    while left:
        worker = _Worker(request, tuple(left))
        try:
            while left:
                start = time.perf_counter()
                limit_s = LONG_TIME_LIMIT_S if checks[left[0]].is_long else TIME_LIMIT_S
                finding = worker.next_finding(limit_s)
                yield left.pop(0), finding, time.perf_counter() - start
                if finding.outcome is Outcome.CRASHED:
                    break
        finally:
            worker.stop()


def _in_lanes(request: RunRequest, checks: Sequence[Check], positions: Sequence[int], jobs: int) -> Iterator[_Found]:
    """Run the checks at some positions in several processes, each with every ``jobs``-th of them; in any order."""
    found: queue.Queue[_Found | Exception | None] = queue.Queue()
    is_stopped = threading.Event()

    def lane(own: Sequence[int]) -> None:
        try:
            for each in _in_order(request, checks, own):
                found.put(each)
                if is_stopped.is_set():
                    return
        except Exception as error:  # noqa: BLE001 - handed on: whoever asked for the results raises it
            found.put(error)
        finally:
            found.put(None)

    lanes = [threading.Thread(target=lane, args=(positions[n::jobs],), daemon=True) for n in range(jobs)]
    for each in lanes:
        each.start()
    try:
        running = len(lanes)
        while running:
            item = found.get()
            if item is None:
                running -= 1
            elif isinstance(item, Exception):
                raise item
            else:
                yield item
    finally:
        is_stopped.set()


def stale_entries(expectations: Expectations, names: Sequence[str]) -> Iterator[CheckResult]:
    """Yield a problem for every expected failure that names no check."""
    for entry in expectations.unknown(names):
        text = f"{expectations.source} expects {entry!r} to fail, and there is no such check"
        yield CheckResult(f"expected_failures/{entry}", Finding(Outcome.BROKEN, text))


class _Worker:
    """A process that runs the checks at some positions and sends each finding."""

    def __init__(self, request: RunRequest, positions: tuple[int, ...]) -> None:
        context = multiprocessing.get_context("spawn")  # providers and their threads do not survive a fork
        self._receiver, sender = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(request, positions, sender), daemon=True)
        self._process.start()
        sender.close()

    def next_finding(self, limit_s: float) -> Finding:
        """Wait for the next finding, no longer than ``limit_s``; a crash or a hang is one too."""
        if not self._receiver.poll(limit_s):
            return Finding(Outcome.CRASHED, f"no end after {limit_s:.0f} s")
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


def _work(request: RunRequest, positions: tuple[int, ...], sender: Connection) -> None:
    warnings.simplefilter("ignore")  # what matters is in the findings
    subject = Subject(request.profile)
    checks = request.checks()
    for position in positions:
        sender.send(run_one(checks[position], subject))


def run_one(check: Check, subject: Subject) -> Finding:
    """Run a check; an exception of the suite itself is shown as what it is."""
    try:
        return check.run(subject)
    except Exception as error:  # noqa: BLE001 - one broken check must not end the run; it is reported as a failure
        return Finding(Outcome.BROKEN, f"the check itself failed: {type(error).__name__}: {error}")
