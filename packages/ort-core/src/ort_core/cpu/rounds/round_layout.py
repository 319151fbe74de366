"""RoundLayout: the memory of one run's rounds, and where each operand and result of the body lies in it."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.cpu.rounds.body_wiring import BodyWiring, shared_results
from ort_core.cpu.rounds.bound_rounds import BoundRounds, Place
from ort_core.cpu.rounds.round_memory import Carried, Stack
from ort_core.plugin import AllocationLimitExceeded, Rejection

if TYPE_CHECKING:
    from ort_core.cpu.rounds.rounds_asked import RoundsAsked
    from ort_core.plugin.kernels import RunGuard


class RoundLayout:
    """What ``lay_out`` gives.

    Args:
        wiring: how the body's program is wired.
        asked: the rounds.
        operands: what the first round reads: formal inputs, then the others.
        rounds: the records of the rounds.
        outputs: shape and element type of each output of the body.
    """

    def __init__(
        self, wiring: BodyWiring, asked: RoundsAsked, operands: Sequence[np.ndarray], rounds: BoundRounds,
        outputs: Sequence[tuple[tuple[int, ...], np.dtype]],
    ) -> None:  # fmt: skip
        self._wiring, self._asked, self._operands, self._rounds = wiring, asked, operands, rounds
        at = int(asked.has_condition)
        self.carried: dict[int, Carried] = {}  # by output of the body; those that every round keeps need no memory
        for number in range(asked.carried):
            if not wiring.is_kept(at + number, asked.first_carried + number):
                self.carried[at + number] = Carried(operands[asked.first_carried + number])
        self._first_stack = at + asked.carried
        self.stacks = [Stack(shape, dtype, asked.limit) for shape, dtype in outputs[self._first_stack :]]
        self._condition = np.ones(1, np.bool_) if asked.has_condition and not is_always_true(wiring, operands) else None
        self._nbytes = [math.prod(shape) * dtype.itemsize for shape, dtype in outputs]

    @property
    def nbytes(self) -> int:
        """What a run takes, the stacks as they are now."""
        carried = 2 * sum(self._nbytes[output] for output in self.carried)
        return self._rounds.bound.nbytes + carried + self._stacked_nbytes(self.capacity or 0)

    @property
    def capacity(self) -> int | None:
        """Rounds for which there is room; ``None`` where nothing piles up."""
        return min((stack.capacity for stack in self.stacks), default=None)

    @property
    def goes_on(self) -> bool:
        """Whether the last round said that another one follows."""
        return self._condition is None or bool(self._condition[0])

    def take_room(self, rounds: int) -> None:
        """Have room for exactly so many rounds, of results in the very order in which the node gives them."""
        for stack, (_, is_backward) in zip(self.stacks, self._asked.axes, strict=True):
            stack.take_room(rounds, is_backward)

    def grow(self, limit: int | None, guard: RunGuard, what: str) -> None:
        """Make room for twice as many rounds, or for as many as the guard allows.

        Raises:
            AllocationLimitExceeded: the guard does not allow one more.
        """
        filled = self.capacity or 0
        wanted = 2 * filled if limit is None else min(2 * filled, limit)
        guard.check_allocation(self._stacked_nbytes(filled + 1), what)
        tries = range(filled + 1, wanted + 1)
        refused = bisect.bisect_left(tries, True, key=lambda rounds: not self._may_stack(rounds, guard))
        for stack in self.stacks:
            stack.grow(filled + refused)

    def _may_stack(self, rounds: int, guard: RunGuard) -> bool:
        try:
            guard.check_allocation(self._stacked_nbytes(rounds), "scan outputs")
        except AllocationLimitExceeded:
            return False
        return True

    def place(self, rounds: BoundRounds) -> None:
        """Let the next rounds read and write here."""
        rounds.place(*wired(self._wiring, self._places(), self._targets(), self._nbytes), self._condition)

    def results(self, rounds: int) -> list[np.ndarray]:
        """Return the outputs of the node behind so many rounds."""
        at, asked = int(self._asked.has_condition), self._asked
        finals = [
            self.carried[at + number].after(rounds)
            if at + number in self.carried
            else self._operands[asked.first_carried + number]
            for number in range(asked.carried)
        ]
        stacked = [stack.after(rounds) for stack in self.stacks]
        turned = [np.moveaxis(s[::-1] if back else s, 0, axis) for s, (axis, back) in zip(stacked, asked.axes)]
        return [*finals, *turned]

    def _stacked_nbytes(self, rounds: int) -> int:
        return rounds * sum(stack.nbytes for stack in self.stacks)

    def _places(self) -> list[Place]:
        """Return where a round finds each operand."""
        asked = self._asked
        places = [asked.sliced.get(n) or Place.at(array) for n, array in enumerate(self._operands)]
        if asked.has_condition:
            places[0] = Place.at(self._rounds.number)
        for output, carried in self.carried.items():
            places[output - int(asked.has_condition) + asked.first_carried] = carried.read
        return places

    def _targets(self) -> list[Place | None]:
        """Return where a round leaves each output of the body; ``None`` for what it need not leave anywhere."""
        targets: list[Place | None] = [None] * len(self._wiring.made)
        if self._condition is not None:
            targets[0] = Place.at(self._condition)
        for output, carried in self.carried.items():
            targets[output] = carried.written
        for number, stack in enumerate(self.stacks):
            targets[self._first_stack + number] = stack.place
        return targets


def lay_out(
    wiring: BodyWiring, asked: RoundsAsked, operands: Sequence[np.ndarray], rounds: BoundRounds
) -> RoundLayout | Rejection:
    """Return the layout of a run, or why its rounds cannot be native."""
    bound = rounds.bound
    outputs = [
        (bound.shapes[number], bound.dtypes[number])
        if number is not None
        else (operands[wiring.passed[output]].shape, operands[wiring.passed[output]].dtype)
        for output, number in enumerate(wiring.made)
    ]
    at = int(asked.has_condition)
    if at and (math.prod(outputs[0][0]) != 1 or outputs[0][1] != np.bool_):
        return Rejection("the condition is not one bool")
    for number in range(asked.carried):
        initial = operands[asked.first_carried + number]
        if outputs[at + number] != (initial.shape, initial.dtype):
            return Rejection("a carried value changes its shape or its type")
        if initial.dtype.hasobject and not wiring.is_kept(at + number, asked.first_carried + number):
            return Rejection("a carried value is text")
    stacked = outputs[at + asked.carried :]
    if any(dtype.hasobject for _, dtype in stacked) or len(stacked) != len(asked.axes):
        return Rejection("a stacked result is text")
    if any(not -len(shape) - 1 <= axis <= len(shape) for (shape, _), (axis, _) in zip(stacked, asked.axes)):
        return Rejection("a stacked result has no such axis")
    return RoundLayout(wiring, asked, operands, rounds, outputs)


def wired(
    wiring: BodyWiring, operands: Sequence[Place], targets: Sequence[Place | None], nbytes: Sequence[int]
) -> tuple[list[Place], list[tuple[Place, Place, int]]]:
    """Return where a program reads and writes, and the copies behind it.

    Args:
        wiring: how it is wired.
        operands: where a round finds each operand.
        targets: where it leaves each output of the body; ``None`` for what it need not leave anywhere.
        nbytes: of each output of the body.
    """
    first = shared_results(wiring.made)
    results = [targets[first[number]] for number in range(len(first))]
    copies: list[tuple[Place, Place, int]] = []
    for output, (target, number) in enumerate(zip(targets, wiring.made, strict=True)):
        if target is None or (number is not None and first[number] == output):
            continue
        source = operands[wiring.passed[output]] if number is None else targets[first[number]]
        assert source is not None
        copies.append((source, target, nbytes[output]))
    reads = [operands[number] for number in wiring.reads]
    return [*reads, *[place for place in results if place is not None]], copies


def is_always_true(wiring: BodyWiring, operands: Sequence[np.ndarray]) -> bool:
    """Return whether a body passes on its condition, which holds whenever a round runs, or a constant that is true."""
    passed = wiring.passed[0]
    if passed < 0:
        return False
    formal = len(wiring.inputs)
    is_constant = passed >= formal and isinstance(wiring.others[passed - formal], np.ndarray)
    return passed == 1 or (is_constant and bool(operands[passed].all()))
