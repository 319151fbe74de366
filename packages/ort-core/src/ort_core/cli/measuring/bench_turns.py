"""Two engines measured against each other: each in its own process, in turns, the one that waits is stopped."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from ort_core.cli.measuring.bench_worker import OpenAnswer, OpenRequest, TurnAnswer, TurnRequest
from ort_core.errors import Fail

_RESAMPLES = 2000  # of the bootstrap: enough for two digits of an interval


class EngineProcess:
    """A measured engine. Suspended whenever it has nothing to do, so that its spinning threads disturb nobody."""

    def __init__(self, engine: str) -> None:
        import psutil

        self.engine = engine
        self._child = subprocess.Popen(
            [sys.executable, "-m", "ort_core.cli.measuring.bench_worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._process = psutil.Process(self._child.pid)

    def open(self, request: OpenRequest) -> OpenAnswer:
        """Load a model and run it once.

        Raises:
            Fail: the engine cannot.
        """
        answer = self._ask(request)
        assert isinstance(answer, OpenAnswer)
        return answer

    def turn(self, request: TurnRequest) -> TurnAnswer:
        """Measure one turn. Raises as ``open``."""
        answer = self._ask(request)
        assert isinstance(answer, TurnAnswer)
        return answer

    def _ask(self, request: OpenRequest | TurnRequest) -> OpenAnswer | TurnAnswer:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._process.resume()
        try:
            pickle.dump(request, self._child.stdin)
            self._child.stdin.flush()
            answer = pickle.load(self._child.stdout)  # from our own child
        except (EOFError, OSError) as error:
            raise Fail(f"the process of {self.engine} ended with code {self._child.wait()}") from error
        if answer.error:
            raise Fail(f"{self.engine}: {answer.error}")
        self._process.suspend()
        return answer

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.kill()
        self._child.communicate()


@dataclass(frozen=True, slots=True)
class Contest:
    """Latencies by round of both engines, and what opening them told."""

    opened: tuple[OpenAnswer, OpenAnswer]
    rounds: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    peaks: tuple[int, int]

    def ratios(self) -> list[float]:
        """Return by round how many times faster the first engine was than the second, by their medians."""
        return [float(np.median(theirs) / np.median(ours)) for ours, theirs in self.rounds]

    def interval(self, seed: int = 0) -> tuple[float, float]:
        """Return the 95 % interval of the median ratio, by resampling the rounds."""
        ratios = np.array(self.ratios())
        drawn = np.random.default_rng(seed).choice(ratios, (_RESAMPLES, len(ratios)))
        low, high = np.percentile(np.median(drawn, axis=1), (2.5, 97.5))
        return float(low), float(high)


def contest(
    requests: Sequence[OpenRequest], turn: TurnRequest, num_rounds: int, advance: Callable[[float], None]
) -> Contest:
    """Measure two engines in turns; who begins changes each round.

    Raises:
        Fail: an engine cannot load or run the model.
    """
    with EngineProcess(requests[0].engine) as first, EngineProcess(requests[1].engine) as second:
        opened = first.open(requests[0]), second.open(requests[1])
        rounds, peaks = [], [0, 0]
        for index in range(num_rounds):
            answers: list[TurnAnswer | None] = [None, None]
            for place in (0, 1) if index % 2 == 0 else (1, 0):
                answer = answers[place] = (first, second)[place].turn(turn)
                peaks[place] = max(peaks[place], answer.peak_nbytes)
            ours, theirs = answers
            assert ours is not None
            assert theirs is not None
            rounds.append((ours.latencies_ns, theirs.latencies_ns))
            advance(index + 1)
    return Contest(opened, tuple(rounds), (peaks[0], peaks[1]))
