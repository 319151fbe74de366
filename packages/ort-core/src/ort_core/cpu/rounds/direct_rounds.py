"""DirectRounds: a Loop or Scan of few and small rounds as one direct call, from arrays to arrays without Python.

An ordinary run writes down the addresses that rounds read and write, which takes Python longer than a few rounds run.
Here they are written once for each signature of shapes, over arrays that stand for the operands and the results; a
direct call (``direct.call_code``) then replaces the addresses that lie in those by the ones of its own arrays, and runs
``ort_rounds_call`` where it would run a program. How many rounds there are is read by native code; where there is no
room for as many, or data is out of bounds, the call refuses, and the ordinary run follows.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.cpu.direct.direct_calls import (
    CpuDirectCalls,
    DirectStep,
    KnownSignatures,
    build_direct_calls,
    known_signatures,
)
from ort_core.cpu.direct.finished_calls import FinishAll, FinishedCalls
from ort_core.cpu.direct.moved_words import MovedWords, WordMemory
from ort_core.cpu.program.output_memory import OutputMemory
from ort_core.cpu.program.program import BoundState, SizesDiffer
from ort_core.cpu.rounds.bound_rounds import BoundRounds, Place, copy_rows, rounds_call_address
from ort_core.cpu.rounds.growing_rounds import MOST_ROUNDS, lay_out_growing
from ort_core.cpu.rounds.round_code import RoundsCall
from ort_core.cpu.rounds.round_layout import RoundLayout, lay_out
from ort_core.cpu.rounds.rounds_asked import contiguous
from ort_core.plugin import AllocationLimitExceeded, DirectCalls, Rejection, frozen
from ort_core.plugin.kernels import may_stop

if TYPE_CHECKING:
    from ort_core.cpu.rounds.body_wiring import BodyWiring
    from ort_core.cpu.rounds.growing_rounds import GrowingRounds
    from ort_core.cpu.rounds.rounds_asked import Question, RoundsAsked
    from ort_core.plugin.ir import TensorType
    from ort_core.plugin.kernels import RunGuard, RuntimeValue

MOST_NBYTES = 1 << 18  # of a run: an entry keeps its memory, and the time of larger ones is not Python's
MOST_GROWN_NBYTES = 1 << 22  # of rounds whose values change their shapes, of which Python takes 100 us each
FIRST_GROWN = 32  # rounds that are laid out where data end the loop: texts that were made so have 20 to 100 tokens
MOST_TAGS = 256  # entries of such rounds of which the shapes are known
TAG_BITS = 32  # below which a tagged word has the number of rounds
MOST_NS = 2_000_000  # that rounds may take: a direct call cannot be stopped
LOCKED_NS = 100_000  # below which the interpreter lock is kept
LOCKED_WORK = 300_000  # the same as estimated work
NO_LIMIT = (1 << 63) - 1
MOST_REFUSED = 8  # tries in a row to lay rounds out that failed, behind which there are no more
MOST_SEEN = 64  # signatures of which is remembered how many rounds they take
Signature = tuple[tuple[int, ...], ...]


@frozen
class NodeFacts:
    """A Loop or Scan.

    Attributes:
        wiring: how the program of its body is wired.
        question: reads its operands.
        given: how many of the values that it is given are its inputs; the others its body captures.
        inputs: the types of those values, ``None`` where one is left out.
        wanted: the outputs that are returned, by number.
        carried: how many values are carried; the outputs behind them pile up.
        is_loop: whether its first two inputs are the number of rounds and the condition.
        grows: whether a carried value may change its shape.
    """

    wiring: BodyWiring
    question: Question
    given: int
    inputs: tuple[TensorType | None, ...]
    wanted: tuple[int, ...]
    carried: int
    is_loop: bool
    grows: bool = False

    @property
    def stacked(self) -> int:
        """How many results pile up."""
        return len(self.wiring.made) - self.carried - self.is_loop

    @property
    def present(self) -> tuple[int, ...]:
        """The values that are there, by number."""
        return tuple(number for number, each in enumerate(self.inputs) if each is not None)


class BindableRounds:
    """A node as what direct calls run: see ``direct.direct_calls.Bindable``. Its inputs are those that are there.

    Its outputs are the wanted ones, and for a Loop whose results pile up, or whose carried values may change their
    shapes, one more: how many rounds ran. Such values are vectors, of which ``shapes_behind`` tells the shapes.
    """

    def __init__(self, facts: NodeFacts) -> None:
        self._facts = facts
        self._seen: dict[Signature, tuple[int, int]] = {}  # the room for rounds, and how long they took
        self._growing: dict[Signature, int] = {}  # the room for rounds whose values change their shapes
        self._laid = set[Signature]()  # of those that have been laid out
        self._shapes: OrderedDict[int, tuple[Sequence[tuple[int, ...]] | None, ...]] = OrderedDict()  # by tag
        self._tags = itertools.count(1)
        self.input_dtypes = tuple(kind.dtype.numpy for kind in facts.inputs if kind is not None)
        self.counts_rounds = facts.is_loop and (facts.stacked > 0 or facts.grows)
        self.fits = True  # as far as known
        self._refused = 0
        self._memory = OutputMemory()

    @property
    def entry_points(self) -> tuple[int, int]:
        """``ort_rounds_call``, whose first argument is not used."""
        return rounds_call_address(), 0

    def note(self, signature: Signature, rounds: int, took_ns: int) -> bool:
        """Take note of an ordinary run; returns whether entries of this signature have become too small."""
        room, least_ns = self._seen.get(signature, (0, took_ns))
        if rounds <= room:
            self._seen[signature] = (room, min(took_ns, least_ns))
            return False
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen[signature] = (1 << rounds.bit_length() if room else rounds, took_ns)  # more than once: room for more
        return room > 0

    def note_growing(self, signature: Signature, rounds: int | None) -> bool:
        """Take note of a run by kernels whose carried values change their shapes; returns what ``note`` does.

        Args:
            signature: its shapes.
            rounds: how many there are at most, ``None``: data end them.
        """
        room, is_laid = self._growing.get(signature, 0), signature in self._laid
        if rounds is None or rounds > MOST_ROUNDS:
            wanted = FIRST_GROWN if not room else room if not is_laid else 4 * room
        else:
            wanted = rounds if not room or rounds <= room else 1 << rounds.bit_length()
        if len(self._growing) >= MOST_SEEN:
            self._growing.clear()
        is_full = is_laid and room == MOST_ROUNDS  # and still too small
        self._growing[signature] = min(max(room, wanted), MOST_ROUNDS)
        if is_full or not room or self._growing[signature] == room:
            return False
        self._laid.discard(signature)
        return True

    def shapes_behind(self, tag: int, rounds: int) -> list[tuple[int, ...] | None] | None:
        """Return the shapes of carried values behind rounds, ``None`` for one whose result has its shape.

        Of an entry that was made long ago nothing is known.
        """
        known = self._shapes.get(tag)
        return None if known is None else [None if shapes is None else shapes[rounds - 1] for shapes in known]

    def bind(self, signature: Signature) -> BoundState | None:
        """Return the rounds for the shapes of the inputs, ``None`` where they are not few and small."""
        sizes = [math.prod(shape) * each.itemsize for shape, each in zip(signature, self.input_dtypes, strict=True)]
        capacity, took_ns = self._seen.get(signature, (0, MOST_NS))
        if signature in self._growing:
            capacity, took_ns = self._growing[signature], 0
        elif self._facts.is_loop and not self.counts_rounds:
            capacity = max(capacity, min(capacity * MOST_NS // (2 * max(took_ns, 1)), NO_LIMIT))
        if took_ns >= MOST_NS or self._refused >= MOST_REFUSED:
            return None
        found = None if sum(sizes) > MOST_NBYTES else self._bound(signature, capacity, took_ns)
        self._refused = self._refused + 1 if found is None else 0
        self.fits = found is not None
        return found

    def _bound(self, signature: Signature, capacity: int, took_ns: int) -> BoundState | None:
        facts, wiring = self._facts, self._facts.wiring
        fed = [np.zeros(shape, dtype) for shape, dtype in zip(signature, self.input_dtypes, strict=True)]
        arguments: list[np.ndarray | None] = [None] * len(facts.inputs)
        for number, array in zip(facts.present, fed, strict=True):
            arguments[number] = array
        if facts.is_loop:
            for argument, value in zip(arguments[: min(facts.given, 2)], (capacity, True)):
                if argument is not None:
                    argument[...] = value
        asked = facts.question(arguments[: facts.given])
        captured = [each for each in arguments[facts.given :] if each is not None]
        if asked is None or any(axis != 0 for axis, _ in asked.axes):
            return None
        more = iter(captured)
        others = [contiguous(each) if isinstance(each, np.ndarray) else next(more) for each in wiring.others]
        given = [*asked.formal[asked.first_carried :], *captured]
        if not all(not each.size or any(np.may_share_memory(each, array) for array in fed) for each in given):
            return None  # a sequence along another axis than the first was copied
        operands = [*asked.formal, *others]
        reads = [operands[number] for number in wiring.reads]
        if any(array.dtype != dtype for array, dtype in zip(reads, wiring.program.input_dtypes, strict=True)):
            return None
        try:
            rounds = BoundRounds(wiring.program.bound(tuple([array.shape for array in reads])), wiring.program.pool)
            layout = lay_out(wiring, asked, operands, rounds)
            if isinstance(layout, Rejection):
                return self._grown(signature, asked, fed, operands, capacity)
        except SizesDiffer:
            return None
        layout.take_room(capacity)
        if layout.nbytes > MOST_NBYTES:
            return None
        return self._relocated(layout, asked, fed, operands, rounds, capacity, took_ns)

    def _relocated(
        self, layout: RoundLayout, asked: RoundsAsked, fed: Sequence[np.ndarray], operands: Sequence[np.ndarray],
        rounds: BoundRounds, capacity: int, took_ns: int,
    ) -> BoundState:  # fmt: skip
        """Return the rounds of a layout."""
        facts = self._facts
        results = [
            np.empty_like(operands[asked.first_carried + number])
            if number < asked.carried
            else layout.stacks[number - asked.carried].array
            for number in facts.wanted
        ]
        layout.place(rounds)
        copies = _copies(layout, asked, operands, dict(zip(facts.wanted, results, strict=True)))
        words = {
            RoundsCall.LIMIT: NO_LIMIT if asked.limit is None else asked.limit, RoundsCall.CAPACITY: capacity,
            RoundsCall.HAS_STACKS: bool(layout.stacks),
        }  # fmt: skip
        is_short = took_ns < LOCKED_NS
        return self._moved([rounds], words, copies, fed, results, layout.nbytes, is_short, (layout, *operands))

    def _grown(
        self, signature: Signature, asked: RoundsAsked, fed: Sequence[np.ndarray], operands: Sequence[np.ndarray],
        capacity: int,
    ) -> BoundState | None:  # fmt: skip
        """Return rounds whose carried values change their shapes."""
        facts = self._facts
        if not facts.grows:
            return None
        grown = lay_out_growing(facts.wiring, asked, operands, capacity, MOST_GROWN_NBYTES)
        if isinstance(grown, Rejection):
            return None
        results, last = [], []
        for number in facts.wanted:
            if number >= asked.carried:
                results.append(grown.stacks[number - asked.carried])
                continue
            value, initial = grown.carried[number], operands[asked.first_carried + number]
            result = np.empty_like(initial) if value is None else np.empty(value.elements, value.dtype)
            last.append((Place.at(initial) if value is None else value.place, Place.at(result), result.nbytes))
            results.append(result)
        heads = np.array([rounds.head for rounds in grown.rounds], np.int64)
        words = {
            RoundsCall.LIMIT: NO_LIMIT if asked.limit is None else asked.limit, RoundsCall.CAPACITY: len(heads),
            RoundsCall.HEADS: heads.ctypes.data, RoundsCall.HAS_STACKS: True, RoundsCall.TAG: self._tagged(grown),
        }  # fmt: skip
        self._laid.add(signature)
        copies = copy_rows(()), copy_rows(last)
        is_short = grown.work < LOCKED_WORK and all(each.bound.holds_lock for each in grown.rounds)
        return self._moved(grown.rounds, words, copies, fed, results, grown.nbytes, is_short, (grown, heads, *operands))

    def _tagged(self, grown: GrowingRounds) -> int:
        """Keep the shapes of carried values, and return the word by which a call names them."""
        tag = next(self._tags)
        self._shapes[tag] = tuple([None if value is None else value.shapes for value in grown.carried])
        if len(self._shapes) > MOST_TAGS:
            self._shapes.popitem(last=False)
        return tag << TAG_BITS

    def _moved(
        self, rounds: Sequence[BoundRounds], words: Mapping[RoundsCall, int], copies: tuple[np.ndarray, np.ndarray],
        fed: Sequence[np.ndarray], results: list[np.ndarray], nbytes: int, is_short: bool, kept: tuple[object, ...],
    ) -> BoundState:  # fmt: skip
        """Return a run state; words that point into what stands for an operand or a result are the call's to write."""
        facts = self._facts
        first, last = copies
        record = np.zeros(RoundsCall.COUNT, np.int64)
        for word, value in words.items():
            record[word] = value
        record[RoundsCall.HEAD] = rounds[0].head
        record[RoundsCall.FIRST_COPIES], record[RoundsCall.FIRST_COUNT] = first.ctypes.data, len(first)
        record[RoundsCall.LAST_COPIES], record[RoundsCall.LAST_COUNT] = last.ctypes.data, len(last)
        if self.counts_rounds:
            results = [*results, np.zeros(1, np.int64)]
            record[RoundsCall.DONE] = results[-1].ctypes.data
        if facts.is_loop:
            for word, number in ((RoundsCall.TRIPS, 0), (RoundsCall.START, 1)):
                if number < facts.given and number in facts.present:
                    record[word] = fed[facts.present.index(number)].ctypes.data
        moved = MovedWords(fed, results)
        for each in rounds:
            for address, value, added in each.placed():
                moved.add(address, value, added)
        for table in (first, last, record):
            moved.add_table(table)
        bound = rounds[0].bound
        return BoundState(
            WordMemory((*rounds, record, first, last, *kept)), record.ctypes.data, 0, bound.wanted, bound.error,
            moved.inputs, moved.outputs, tuple([each.shape for each in results]),
            tuple([each.dtype for each in results]), nbytes + sum(each.nbytes for each in results), {}, self._memory,
            bound.holds_lock and is_short,
        )  # fmt: skip


class DirectRounds:
    """The direct calls of a node: as a step among others (``run``), and as a whole model (``direct_calls``)."""

    def __init__(self, facts: NodeFacts, rounds: BindableRounds, step: KnownSignatures) -> None:
        self._facts, self._rounds, self._present = facts, rounds, facts.present
        self._step = DirectStep(step)
        self._calls: list[DirectStep | CpuDirectCalls] = [self._step]
        self._finish = self._finished_in(range(len(facts.wanted))) if rounds.counts_rounds else None

    @classmethod
    def of(cls, facts: NodeFacts) -> DirectRounds | Rejection:
        """Return the direct calls of a node, or why it has none."""
        rounds = BindableRounds(facts)
        names = [str(number) for number in facts.present]
        results = range(len(facts.wanted) + rounds.counts_rounds)
        known = known_signatures(rounds, names, range(len(names)), results, needed=3)  # whole models come first
        return known if isinstance(known, Rejection) else cls(facts, rounds, known)

    @property
    def fits(self) -> bool:
        """Whether rounds are few and small, as far as is known."""
        return self._rounds.fits

    def run(self, arguments: Sequence[RuntimeValue], guard: RunGuard) -> list[np.ndarray] | None:
        """Return the outputs that are wanted, ``None`` where the ordinary run must go on."""
        if may_stop(guard):
            return None
        try:
            guard.check_allocation(self._step.nbytes, "a native program")
        except AllocationLimitExceeded:
            return None
        results = self._step.call(*[arguments[number] for number in self._present])
        return results if results is None or self._finish is None else self._finish(results)

    def learn(self, arguments: Sequence[RuntimeValue], rounds: int, took_ns: int) -> None:
        """Take note of an ordinary run that succeeded."""
        self._learn(arguments, lambda signature: self._rounds.note(signature, rounds, took_ns))

    def learn_growing(self, arguments: Sequence[RuntimeValue], rounds: int | None) -> None:
        """Take note of arguments that kernels are to run, as carried values change their shapes."""
        self._learn(arguments, lambda signature: self._rounds.note_growing(signature, rounds))

    def _learn(self, arguments: Sequence[RuntimeValue], note: Callable[[Signature], bool]) -> None:
        arrays = [each for each in arguments if isinstance(each, np.ndarray)]
        if len(arrays) == len(self._present):
            if note(tuple([each.shape for each in arrays])):
                for calls in self._calls:
                    calls.forget()
            self._step.learn(arrays)

    def direct_calls(self, sources: Sequence[str | np.ndarray], order: Sequence[int]) -> DirectCalls | Rejection:
        """Return the direct calls of a model that is the node.

        Args:
            sources: for each value that is there the name of its feed, or the constant that it always is.
            order: which of the wanted outputs each output of the call is.
        """
        count = [len(self._facts.wanted)] if self._rounds.counts_rounds else []
        calls = build_direct_calls(self._rounds, sources, [*order, *count])
        if isinstance(calls, Rejection):
            return calls
        self._calls.append(calls)
        return FinishedCalls(calls, self._finished_in(order)) if count else calls

    def _finished_in(self, order: Sequence[int]) -> FinishAll:
        """Return what takes the last result, how many rounds there were, and gives results the shapes that they have.

        Of stacks that is as many rows, of carried values that change their shapes what ``shapes_behind`` tells.
        """
        facts, rounds = self._facts, self._rounds
        stacks = [place for place, number in enumerate(order) if facts.wanted[number] >= facts.carried]
        states = [
            (place, facts.wanted[number]) for place, number in enumerate(order) if facts.wanted[number] < facts.carried
        ]

        def finished(results: list[np.ndarray]) -> list[np.ndarray] | None:
            tag, done = divmod(int(results.pop()[0]), 1 << TAG_BITS)
            for place in stacks:
                if len(results[place]) != done:
                    results[place] = results[place][:done].copy()
            shapes = rounds.shapes_behind(tag, done) if tag else None
            if shapes is None:
                return None if tag else results
            for place, number in states:
                shape = shapes[number]
                if shape is not None:
                    results[place] = _first_elements(results[place], shape)
            return results

        return finished


def _first_elements(vector: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the first elements of a vector in a shape, in memory of no more than these."""
    count = math.prod(shape)
    return (vector if count == len(vector) else vector[:count].copy()).reshape(shape)


def _copies(
    layout: RoundLayout, asked: RoundsAsked, operands: Sequence[np.ndarray], results: Mapping[int, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of ``Copy`` in front of the first round and behind the last, for results by number."""
    at = int(asked.has_condition)
    initial = {at + number: operands[asked.first_carried + number] for number in range(asked.carried)}
    first = [
        (Place.at(initial[output]), Place.at(carried.even), carried.even.nbytes)
        for output, carried in layout.carried.items()
    ]
    last = []
    for number in range(asked.carried):
        if number in results:
            kept = layout.carried.get(at + number)
            source = Place.at(initial[at + number]) if kept is None else kept.read
            last.append((source, Place.at(results[number]), results[number].nbytes))
    return copy_rows(first), copy_rows(last)
