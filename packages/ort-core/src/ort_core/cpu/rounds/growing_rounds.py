"""GrowingRounds: rounds whose carried values change their shapes, each laid out by itself, to be run by direct calls.

    for number in range(25):  tokens = Concat(tokens, Argmax(scores(tokens)))

The shapes of a round follow from those of the one before. Where a loop always runs as many rounds, as text is made
token by token, all of them are planned once. A round needs what the one before has left, and nothing older: a carried
value lies in one of two places in turn, each as large as it gets, and behind the last round in one of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.cpu.rounds.bound_rounds import BoundRounds, Place
from ort_core.cpu.rounds.round_layout import is_always_true, wired
from ort_core.plugin import Rejection, frozen

if TYPE_CHECKING:
    from ort_core.cpu.rounds.body_wiring import BodyWiring
    from ort_core.cpu.rounds.rounds_asked import RoundsAsked

MOST_ROUNDS = 64
MOST_WORK = 6_000_000  # estimated work (2 ms) of all rounds: a direct call cannot be stopped


@frozen
class GrowingRounds:
    """The rounds of a Loop.

    Attributes:
        rounds: the records of each round.
        memory: what rounds carry on: they read and write it by addresses.
        finals: the carried values behind the last one; operands that no round changes among them.
        stacks: the results that pile up.
        goes_on: the bool that each round leaves; ``None``: every round is followed by another.
        nbytes: what they take.
        work: estimated, of all.
    """

    rounds: tuple[BoundRounds, ...]
    memory: tuple[np.ndarray, ...]
    finals: tuple[np.ndarray, ...]
    stacks: tuple[np.ndarray, ...]
    goes_on: np.ndarray | None
    nbytes: int
    work: int


@frozen
class _Round:
    """One round: what follows it has the shapes of ``following``, whose elements stand nowhere.

    ``sizes`` are the bytes of each output of the body, ``carried`` says of each carried value whether no round changes
    it, and how many bytes are written, ``stacked`` are the shapes and types of what piles up, ``nbytes`` is scratch.
    """

    rounds: BoundRounds
    following: list[np.ndarray]
    sizes: list[int]
    carried: tuple[tuple[bool, int], ...]
    stacked: tuple[tuple[tuple[int, ...], np.dtype], ...]
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
    current, laid, scratch, work = list(operands), list[_Round](), 0, 0
    for _ in range(limit):
        found = _round_behind(wiring, asked, current)
        if isinstance(found, Rejection):
            return found
        laid.append(found)
        scratch, work, current = scratch + found.nbytes, work + found.rounds.bound.work, found.following
        if work > MOST_WORK or scratch + 2 * sum(size for _, size in found.carried) > most_nbytes:
            return Rejection("the rounds are not small")
    largest = [max(each.carried[number][1] for each in laid) for number in range(asked.carried)]
    shapes = [each.stacked for each in laid]
    if any(each != shapes[0] for each in shapes):
        return Rejection("a result changes its shape")
    sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in shapes[0]]
    nbytes = scratch + 2 * sum(largest) + sum(size for _, size in laid[-1].carried) + limit * sum(sizes)
    if nbytes > most_nbytes:
        return Rejection("the rounds are not small")
    places = [(np.empty(size, np.uint8), np.empty(size, np.uint8)) for size in largest]
    stacks = [np.empty((limit, *shape), dtype) for shape, dtype in shapes[0]]
    current = list(operands)
    for number, each in enumerate(laid):
        targets: list[Place | None] = [None if goes_on is None else Place.at(goes_on)]
        following = list(current)
        for carried, (is_kept, size) in enumerate(each.carried):
            formal = asked.first_carried + carried
            if not is_kept:
                shown = each.following[formal]
                own = places[carried][number % 2][:size].view(shown.dtype).reshape(shown.shape)
                following[formal] = own if number < limit - 1 else np.empty(shown.shape, shown.dtype)
            targets.append(None if is_kept else Place.at(following[formal]))
        targets += [Place.at(stack[number : number + 1]) for stack in stacks]
        read = [Place.at(array) for array in current]
        read[0] = Place.at(each.rounds.number)
        each.rounds.place(*wired(wiring, read, targets, each.sizes), goes_on)
        current = following
    finals = current[asked.first_carried : asked.first_carried + asked.carried]
    memory = tuple(array for pair in places for array in pair)
    return GrowingRounds(
        tuple(each.rounds for each in laid), memory, tuple(finals), tuple(stacks), goes_on, nbytes, work
    )


def _round_behind(wiring: BodyWiring, asked: RoundsAsked, current: Sequence[np.ndarray]) -> _Round | Rejection:
    """Return the round that reads what has these types and shapes."""
    bound = wiring.program.bound(tuple([current[place].shape for place in wiring.reads]))
    outputs = [
        (bound.shapes[own], bound.dtypes[own])
        if own is not None
        else (current[wiring.passed[output]].shape, current[wiring.passed[output]].dtype)
        for output, own in enumerate(wiring.made)
    ]
    sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in outputs]
    if math.prod(outputs[0][0]) != 1 or outputs[0][1] != np.bool_:
        return Rejection("the condition is not one bool")
    if any(dtype.hasobject for _, dtype in outputs):
        return Rejection("a value is text")
    following, carried = list(current), list[tuple[bool, int]]()
    for number in range(asked.carried):
        formal, (shape, dtype) = asked.first_carried + number, outputs[1 + number]
        if dtype != current[formal].dtype or len(shape) != current[formal].ndim:
            return Rejection("a carried value changes its type or its rank")
        is_kept = wiring.is_kept(1 + number, formal)
        carried.append((is_kept, 0 if is_kept else sizes[1 + number]))
        if not is_kept:
            following[formal] = np.broadcast_to(np.zeros((), dtype), shape)
    own = sum(math.prod(shape) * dtype.itemsize for shape, dtype in zip(bound.shapes, bound.dtypes, strict=True))
    rounds = BoundRounds(bound, wiring.program.pool)
    return _Round(rounds, following, sizes, tuple(carried), tuple(outputs[1 + asked.carried :]), bound.nbytes - own)
