"""How much a model gains from batches, measured once before it serves.

Runs of 1, 2, 4, … rows are timed on zeros. The largest batch is the last that still adds a tenth to the rows per
second; where none does, nothing is joined, and the curve is the reason. Other programs may be in the way of a run: a
size that seems to gain nothing is timed again, beside the best before it, and of short runs the next size is tried,
too. Whether joined rows give what they give alone is tried on random rows: a model that mixes rows, or whose
quantization depends on all of them, is not joined by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Run = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
_GAIN = 1.1  # rows per second of one size over the smaller; below, a batch only adds latency
_LARGEST = 64
_TIME_LIMIT_S = 1.5  # for the whole measurement
_FEWEST, _MOST = 3, 50  # runs of one size: of short ones many, since the least is what counts
_ENOUGH_S = 0.02
_SLOW_S = 0.2  # one run of that length is measured once
_SHORT_S = 0.005  # other programs may make a run of that length twice as long: one size is not enough to go by
_CLOSE = 1e-3  # of the largest magnitude: sums in another order stay far below, other scales of quantization far above


@dataclass(frozen=True)
class BatchCurve:
    """What was measured.

    Attributes:
        seconds: of a run, by rows.
        max_rows: what is joined at most; 1: nothing.
        reason: why no more.
    """

    seconds: Mapping[int, float]
    max_rows: int
    reason: str


def measure_batches(
    run: Run, one_row: dict[str, np.ndarray], clock: Callable[[], float] = time.perf_counter
) -> BatchCurve:
    """Measure a model whose inputs all have the batch as first axis.

    Args:
        run: runs the model.
        one_row: zeros of one row each.
        clock: seconds.
    """
    difference = rows_beside_matter(run, random_rows(one_row))
    if difference:
        return BatchCurve({}, 1, difference)
    seconds: dict[int, float] = {}

    def time_again(rows: int) -> None:
        feeds = {name: np.repeat(array, rows, axis=0) for name, array in one_row.items()}
        seconds[rows] = min(seconds.get(rows, np.inf), _timed(run, feeds, clock))

    def gains(rows: int) -> bool:
        doublings = (rows // best).bit_length() - 1
        return rows / seconds[rows] >= _GAIN**doublings * best / seconds[best]

    time_again(1)
    best, until, rows, is_last = 1, clock() + _TIME_LIMIT_S, 2, False
    while rows <= _LARGEST and clock() <= until:
        time_again(rows)
        if not gains(rows) and seconds[rows] < _SHORT_S:
            time_again(best)
            time_again(rows)
        if gains(rows):
            best, is_last = rows, False
        elif is_last or seconds[rows] >= _SHORT_S:
            break
        else:
            is_last = True
        rows *= 2
    told = ", ".join(
        f"{count} {'row' if count == 1 else 'rows'} {taken * 1e3:.3g} ms" for count, taken in seconds.items()
    )
    advice = f"joined up to {best} rows" if best > 1 else "not joined: two rows take about twice the time of one"
    return BatchCurve(seconds, best, f"{advice} ({told})")


def _timed(run: Run, feeds: dict[str, np.ndarray], clock: Callable[[], float]) -> float:
    run(feeds)  # the first run of a shape plans
    taken: list[float] = []
    while len(taken) < _FEWEST or (sum(taken) < _ENOUGH_S and len(taken) < _MOST):
        begin = clock()
        run(feeds)
        taken.append(clock() - begin)
        if taken[0] > _SLOW_S:
            break
    return min(taken)


def random_rows(one_row: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Return three rows that differ, like one."""
    generator = np.random.default_rng(0)
    return [{name: _random_like(array, generator, index) for name, array in one_row.items()} for index in range(3)]


def rows_beside_matter(run: Run, rows: Sequence[dict[str, np.ndarray]]) -> str:
    """Return why joined rows are not what they are alone; empty where they are.

    Args:
        run: runs the model.
        rows: of equal shapes, each with a first axis of 1.
    """
    joined = run({name: np.concatenate([row[name] for row in rows]) for name in rows[0]})
    for index, row in enumerate(rows):
        for name, expected in run(row).items():
            found = joined[name][index : index + 1] if joined[name].ndim else joined[name]
            if (
                joined[name].shape[:1] != (len(rows),)
                or found.shape != expected.shape
                or not _is_close(found, expected)
            ):
                return f"not joined: output {name!r} of a row depends on the rows beside it"
    return ""


def _random_like(array: np.ndarray, generator: np.random.Generator, index: int) -> np.ndarray:
    """Return a row unlike the one before: rows that are all alike show nothing of how a model mixes them."""
    kind = array.dtype.kind
    if kind in "fV":
        return generator.standard_normal(array.shape).astype(array.dtype)
    found = generator.integers(0, 2, array.shape)
    found.reshape(-1)[:1] = index % 2  # of one element all three would be drawn alike one time in four
    return found.astype(array.dtype) if kind in "biu" else found.astype(str).astype(object)


def _is_close(found: np.ndarray, expected: np.ndarray) -> bool:
    if expected.dtype.kind not in "fV":
        return np.array_equal(found, expected)
    a, b = found.astype(np.float64), expected.astype(np.float64)
    return bool(
        np.allclose(a, b, rtol=_CLOSE, atol=_CLOSE * np.abs(b[np.isfinite(b)]).max(initial=0.0), equal_nan=True)
    )
