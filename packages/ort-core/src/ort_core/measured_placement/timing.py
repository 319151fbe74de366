"""How long runs take: medians of turns, so that what disturbs the machine meanwhile meets all alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from ort_core.measured_placement.request import Clock

Run = Callable[[], object]
TURNS = 6  # even: each begins equally often
TURN_NS = 40_000_000  # of one turn: a model of 100 ms runs once in it, one of 100 us MAX_RUNS times
MAX_RUNS = 100
WARM_NS, MAX_WARM_RUNS = 3_000_000, 20  # at a turn's beginning: threads of the engine before may still spin
CLEAR_TURNS, CLEAR_FACTOR = 2, 1.5  # whose turns lie that far apart needs no more of them


def median_in_turns(runs: Sequence[Run], clock: Clock) -> list[float]:
    """Return the median time of each run in nanoseconds, all of them measured in turns.

    Fewer turns suffice where two runs are far apart. Raises what a run raises.
    """
    turns: list[list[float]] = [[] for _ in runs]
    for index in range(TURNS):
        places = range(len(runs))
        for place in places if index % 2 == 0 else reversed(places):
            turns[place].append(_median_of_turn(runs[place], clock))
        if index + 1 == CLEAR_TURNS and _is_clear(turns):
            break
    return [statistics.median(each) for each in turns]


def _is_clear(turns: Sequence[Sequence[float]]) -> bool:
    first, *others = sorted(turns, key=min)
    return all(min(each) > CLEAR_FACTOR * max(first) for each in others)


def _median_of_turn(run: Run, clock: Clock) -> float:
    begin = clock()
    for _ in range(MAX_WARM_RUNS):
        run()
        if clock() - begin > WARM_NS:
            break
    taken: list[int] = []
    while not taken or (len(taken) < MAX_RUNS and sum(taken) < TURN_NS):
        start = clock()
        run()
        taken.append(clock() - start)
    return statistics.median(taken)
