"""GrowingRounds: rounds whose carried values change their shapes, each laid out by itself, to be run by direct calls.

    for number in range(25):  tokens = Concat(tokens, Argmax(scores(tokens)))

The shapes of a round follow from those of the one before, so as many rounds as were seen, as text is made token by
token, are planned once; a run may end sooner. A round needs what the one before has left, and nothing older: a carried
value lies in one of two places in turn, each as large as it gets, from where its last state is copied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.cpu.program.program import SizesDiffer
from ort_core.cpu.rounds.bound_rounds import BoundRounds, Place
from ort_core.cpu.rounds.round_layout import is_always_true, wired
from ort_core.plugin import Rejection, frozen

if TYPE_CHECKING:
    from ort_core.cpu.rounds.body_wiring import BodyWiring
    from ort_core.cpu.rounds.rounds_asked import RoundsAsked

MOST_ROUNDS = 256
MOST_WORK = 6_000_000  # estimated work (2 ms) of all rounds: a direct call cannot be stopped


@frozen
class GrownValue:
    """A carried value that changes its shape.

    Attributes:
        dtype: of its elements.
        shapes: behind one round, two, and so on.
        even: where it lies behind an even number of rounds; as many bytes as it ever takes.
        odd: where it lies behind an odd number.
    """

    dtype: np.dtype
    shapes: tuple[tuple[int, ...], ...]
    even: np.ndarray
    odd: np.ndarray

    @property
    def elements(self) -> int:
        """The most elements that it has."""
        return self.even.nbytes // self.dtype.itemsize

    @property
    def place(self) -> Place:
        """Where it lies behind a number of rounds."""
        return Place.in_turn(self.even, self.odd)


@frozen
class GrowingRounds:
    """The rounds of a Loop.

    Attributes:
        rounds: the records of each round.
        carried: what is carried on; ``None`` for a value that no round changes.
        stacks: the results that pile up.
        goes_on: the bool that each round leaves; ``None``: every round is followed by another.
        nbytes: what they take.
        work: estimated, of all.
    """

    rounds: tuple[BoundRounds, ...]
    carried: tuple[GrownValue | None, ...]
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
    wiring: BodyWiring, asked: RoundsAsked, operands: Sequence[np.ndarray], limit: int, most_nbytes: int
) -> GrowingRounds | Rejection:
    """Return the first rounds of a Loop, or why they cannot be laid out: ``limit``, or as many as are small.

    Args:
        wiring: how the body's program is wired.
        asked: the rounds.
        operands: what the first round reads: formal inputs, then the others.
        limit: how many rounds are wanted.
        most_nbytes: what they may take.

    Raises:
        SizesDiffer: the shapes of the first round are not as its body declares them.
    """
    if not asked.has_condition or not 0 < limit <= MOST_ROUNDS:
        return Rejection("nobody knows how many rounds there are, or there are many")
    laid = _planned(wiring, asked, operands, limit, most_nbytes)
    if isinstance(laid, Rejection):
        return laid
    goes_on = None if is_always_true(wiring, operands) else np.ones(1, np.bool_)
    carried = [_grown_value(laid, operands, asked, number) for number in range(asked.carried)]
    stacks = [np.empty((len(laid), *shape), dtype) for shape, dtype in laid[0].stacked]
    current = list(operands)
    for number, each in enumerate(laid):
        following = list(current)
        for place, value in enumerate(carried):
            if value is not None:
                memory, shape = (value.even if number % 2 else value.odd), value.shapes[number]
                size = math.prod(shape) * value.dtype.itemsize
                following[asked.first_carried + place] = memory[:size].view(value.dtype).reshape(shape)
        left = following[asked.first_carried : asked.first_carried + asked.carried]
        targets: list[Place | None] = [None if goes_on is None else Place.at(goes_on)]
        targets += [None if v is None else Place.at(array) for v, array in zip(carried, left, strict=True)]
        targets += [Place.at(stack[number : number + 1]) for stack in stacks]
        read = [Place.at(array) for array in current]
        read[0] = Place.at(each.rounds.number)
        each.rounds.place(*wired(wiring, read, targets, each.sizes), goes_on)
        current = following
    nbytes, work = _taken(laid), sum(each.rounds.bound.work for each in laid)
    return GrowingRounds(tuple(each.rounds for each in laid), tuple(carried), tuple(stacks), goes_on, nbytes, work)


def _planned(
    wiring: BodyWiring, asked: RoundsAsked, operands: Sequence[np.ndarray], limit: int, most_nbytes: int
) -> list[_Round] | Rejection:
    """Return the plans of rounds, of which there is at least one."""
    current, laid, work = list(operands), list[_Round](), 0
    while len(laid) < limit:
        try:
            found = _round_behind(wiring, asked, current)
        except SizesDiffer:
            if not laid:
                raise
            break
        if isinstance(found, Rejection):
            return found
        if laid and found.stacked != laid[0].stacked:
            return Rejection("a result changes its shape")
        work += found.rounds.bound.work
        if work > MOST_WORK or _taken([*laid, found]) > most_nbytes:
            break
        laid.append(found)
        current = found.following
    return laid or Rejection("the rounds are not small")


def _taken(laid: Sequence[_Round]) -> int:
    """Return the bytes of rounds: their scratch, each carried value twice, and what piles up."""
    largest = [max(each.carried[number][1] for each in laid) for number in range(len(laid[0].carried))]
    stacked = sum(math.prod(shape) * dtype.itemsize for shape, dtype in laid[0].stacked)
    return sum(each.nbytes for each in laid) + 2 * sum(largest) + len(laid) * stacked


def _grown_value(
    laid: Sequence[_Round], operands: Sequence[np.ndarray], asked: RoundsAsked, number: int
) -> GrownValue | None:
    if laid[0].carried[number][0]:
        return None
    formal, size = asked.first_carried + number, max(each.carried[number][1] for each in laid)
    shapes = tuple(each.following[formal].shape for each in laid)
    return GrownValue(operands[formal].dtype, shapes, np.empty(size, np.uint8), np.empty(size, np.uint8))


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
