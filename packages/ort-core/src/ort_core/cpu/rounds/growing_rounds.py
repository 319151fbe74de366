"""GrowingRounds: rounds whose carried values change their shapes, each laid out by itself, to be run by direct calls.

    for number in range(25):  tokens = Concat(tokens, Argmax(scores(tokens)))

The shapes of a round follow from those of the one before. Where a loop always runs as many rounds, as text is made
token by token, all of them are planned once, and every round has memory of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.cpu.rounds.bound_rounds import BoundRounds, Place
from ort_core.cpu.rounds.round_layout import is_always_true, wired
from ort_core.cpu.threads.pool_code import ALONE
from ort_core.plugin import Rejection, frozen

if TYPE_CHECKING:
    from ort_core.cpu.rounds.body_wiring import BodyWiring
    from ort_core.cpu.rounds.rounds_asked import RoundsAsked

MOST_ROUNDS = 64


@frozen
class GrowingRounds:
    """The rounds of a Loop.

    Attributes:
        rounds: the records of each round.
        values: all that rounds carry on: rounds read and write them by their addresses.
        finals: the carried values behind the last one; operands that no round changes among them.
        stacks: the results that pile up.
        goes_on: the bool that each round leaves; ``None``: every round is followed by another.
        nbytes: what they take.
    """

    rounds: tuple[BoundRounds, ...]
    values: tuple[np.ndarray, ...]
    finals: tuple[np.ndarray, ...]
    stacks: tuple[np.ndarray, ...]
    goes_on: np.ndarray | None
    nbytes: int


def lay_out_growing(
    wiring: BodyWiring, asked: RoundsAsked, operands: Sequence[np.ndarray], most_nbytes: int
) -> GrowingRounds | Rejection:
    """Return the rounds of a Loop that runs ``asked.limit`` of them, or why they cannot be laid out.

    What they say of a round behind them is left to the caller: a Loop that ends sooner has other results.

    Args:
        wiring: how the body's program is wired.
        asked: the rounds.
        operands: what the first round reads: formal inputs, then the others.
        most_nbytes: what they may take.

    Raises:
        SizesDiffer: the shapes of a round are not as its body declares them.
    """
    limit = asked.limit
    if not asked.has_condition or limit is None or not 0 < limit <= MOST_ROUNDS:
        return Rejection("nobody knows how many rounds there are, or there are many")
    goes_on = None if is_always_true(wiring, operands) else np.ones(1, np.bool_)
    current, made, nbytes = list(operands), list[BoundRounds](), 0
    values, stacks = list[np.ndarray](), list[np.ndarray]()
    for number in range(limit):
        read = [current[place] for place in wiring.reads]
        bound = wiring.program.bound(tuple([array.shape for array in read]))
        rounds = BoundRounds(bound, wiring.program.pool)
        outputs = [
            (bound.shapes[own], bound.dtypes[own])
            if own is not None
            else (current[wiring.passed[output]].shape, current[wiring.passed[output]].dtype)
            for output, own in enumerate(wiring.made)
        ]
        sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in outputs]
        nbytes += bound.nbytes + sum(sizes)
        if bound.wanted != ALONE or nbytes > most_nbytes:
            return Rejection("the rounds are not small")
        if math.prod(outputs[0][0]) != 1 or outputs[0][1] != np.bool_:
            return Rejection("the condition is not one bool")
        if any(dtype.hasobject for _, dtype in outputs):
            return Rejection("a value is text")
        following, targets = list(current), list[Place | None]([None if goes_on is None else Place.at(goes_on)])
        for carried in range(asked.carried):
            formal, (shape, dtype) = asked.first_carried + carried, outputs[1 + carried]
            if dtype != current[formal].dtype or len(shape) != current[formal].ndim:
                return Rejection("a carried value changes its type or its rank")
            if wiring.is_kept(1 + carried, formal):
                targets.append(None)
                continue
            following[formal] = np.empty(shape, dtype)
            values.append(following[formal])
            targets.append(Place.at(following[formal]))
        for index, (shape, dtype) in enumerate(outputs[1 + asked.carried :]):
            if not number:
                stacks.append(np.empty((limit, *shape), dtype))
            if shape != stacks[index].shape[1:]:
                return Rejection("a result changes its shape")
            targets.append(Place.at(stacks[index][number : number + 1]))
        places = [Place.at(array) for array in current]
        places[0] = Place.at(rounds.number)
        rounds.place(*wired(wiring, places, targets, sizes), goes_on)
        made.append(rounds)
        current = following
    finals = current[asked.first_carried : asked.first_carried + asked.carried]
    return GrowingRounds(tuple(made), tuple(values), tuple(finals), tuple(stacks), goes_on, nbytes)
