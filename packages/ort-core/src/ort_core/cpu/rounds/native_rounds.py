"""NativeRounds: a Loop or Scan whose body is one native program, run by one call for many rounds.

    for number in range(limit):  goes_on, h, y = body(number, goes_on, h, x)      h is carried on, y piles up

Carried values must keep their shapes, which the program's plan tells before anything runs. Everything else (no round
at all, a state that grows, operands that are not as the body declares them, data out of bounds) is left to the kernels
of ``kernels.reference.control_flow``, which give the result or the precise error.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ort_core.cpu.guarded.mode import GuardedMode, guarded_mode
from ort_core.cpu.partition.native_calls import LEAST_ROUNDS
from ort_core.cpu.program.program import DataError, SizesDiffer
from ort_core.cpu.rounds.body_wiring import BodyWiring, wire_body
from ort_core.cpu.rounds.bound_rounds import BoundRounds, prepare_rounds
from ort_core.cpu.rounds.direct_rounds import DirectRounds, NodeFacts
from ort_core.cpu.rounds.round_layout import RoundLayout, lay_out
from ort_core.cpu.rounds.rounds_asked import Question, contiguous, question_of
from ort_core.plugin import AllocationLimitExceeded, DirectCalls, Rejection
from ort_core.plugin.forks import new_lock
from ort_core.plugin.ir import DataType, TensorType

if TYPE_CHECKING:
    from ort_core.cpu.partition.bodies import CompiledBody
    from ort_core.cpu.partition.partition import CpuPartition
    from ort_core.plugin.ir import Graph, Node, Value
    from ort_core.plugin.kernels import RunGuard, RuntimeValue

MAX_SIGNATURES = 8  # whose records are kept: the newest
MAX_IDLE = 4  # records kept for a signature; more runs at once make some that are dropped again
TURN_NS = 2_000_000  # how long rounds run, as far as can be told, before the guard is asked again

_NO_NUMBERS = (DataType.STRING, DataType.UNDEFINED)

Signature: TypeAlias = tuple[tuple[int, ...], ...]


class NativeRounds:
    """A Loop or Scan as one native call; a ``NativeCall``.

    Args:
        node: the node.
        wiring: how the program of its body is wired.
        question: reads the node's operands.
        wanted: the outputs of the node that are returned, by number.
        inputs: the values that it is given: the node's inputs, then those that its body captures.
    """

    def __init__(
        self, node: Node, wiring: BodyWiring, question: Question, wanted: Sequence[int], inputs: Sequence[Value | None]
    ) -> None:
        self._op_type, self._given, self._wanted = node.op_type, len(node.inputs), tuple(wanted)
        self._wiring, self._question = wiring, question
        self._direct = _direct_of(node, wiring, question, wanted, inputs)
        self._idle: OrderedDict[Signature, deque[BoundRounds]] = OrderedDict()
        self._lock = new_lock()
        self.inputs = tuple(inputs)

    def run(self, arguments: Sequence[RuntimeValue], guard: RunGuard) -> list[np.ndarray] | None:
        """Return the outputs that are wanted, ``None`` where the kernels must run.

        Raises:
            AllocationLimitExceeded: the stacked results would take more memory than the guard allows.
            RunTerminated, RunTimeout: the guard wants the run to stop.
        """
        direct = self._direct
        if direct is not None and (found := direct.run(arguments, guard)) is not None:
            return found
        asked = self._question(arguments[: self._given])
        others = self._others(arguments[self._given :])
        if asked is None or others is None or guard.in_place:
            return None
        is_direct = direct is not None and direct.fits
        if asked.limit is not None and asked.limit < (1 if is_direct else LEAST_ROUNDS):
            return None
        operands = [*asked.formal, *others]
        reads = [operands[number] for number in self._wiring.reads]
        if any(array.dtype != dtype for array, dtype in zip(reads, self._wiring.program.input_dtypes, strict=True)):
            return None
        signature = tuple([array.shape for array in reads])
        try:
            rounds = self._take(signature)
            layout = lay_out(self._wiring, asked, operands, rounds)
            if isinstance(layout, Rejection) or not _is_allowed(guard, layout.nbytes):
                self._give_back(signature, rounds)  # unused
                if direct is not None and isinstance(layout, Rejection):
                    direct.learn_growing(arguments, asked.limit)
                return None
            begin = time.perf_counter_ns()
            done = self._go(rounds, layout, asked.limit, guard)
            took = time.perf_counter_ns() - begin
        except (SizesDiffer, DataError, MemoryError):
            return None
        self._give_back(signature, rounds)
        if direct is not None and done:
            direct.learn(arguments, done, took)
        results = layout.results(done)
        return [results[number] for number in self._wanted]

    def direct_calls(self, sources: Sequence[str | np.ndarray], order: Sequence[int]) -> DirectCalls | Rejection:
        """Return the direct calls of a model that is the node.

        Args:
            sources: for each of ``inputs`` that is there the name of its feed, or the constant that it always is.
            order: which of the results each output of the call is.
        """
        if self._direct is None:
            return Rejection(f"a value that {self._op_type} is given is no tensor of known type, or no call is direct")
        return self._direct.direct_calls(sources, order)

    def _others(self, captured: Sequence[RuntimeValue]) -> list[np.ndarray] | None:
        """Return what the body reads besides its formal inputs, in order."""
        found = iter(captured)
        given = [each if isinstance(each, np.ndarray) else next(found) for each in self._wiring.others]
        arrays = [contiguous(each) for each in given if isinstance(each, np.ndarray)]
        return arrays if len(arrays) == len(given) else None

    def _go(self, rounds: BoundRounds, layout: RoundLayout, limit: int | None, guard: RunGuard) -> int:
        """Run all rounds and return how many there were."""
        done, turn = 0, 1
        layout.place(rounds)
        while True:
            guard.check()
            if done == layout.capacity:
                layout.grow(limit, guard, f"scan outputs of {self._op_type}")
                layout.place(rounds)
            end = min(each for each in (done + turn, limit, layout.capacity) if each is not None)
            first, begin = done, time.perf_counter_ns()
            done = rounds.run(first, end)
            if done < end or done == limit or not layout.goes_on:
                return done
            turn = next_turn(done - first, time.perf_counter_ns() - begin)

    def _take(self, signature: Signature) -> BoundRounds:
        with self._lock:
            idle = self._idle.get(signature)
            if idle:
                return idle.pop()
        program = self._wiring.program
        return BoundRounds(program.bound(signature), program.pool)

    def _give_back(self, signature: Signature, rounds: BoundRounds) -> None:
        with self._lock:
            idle = self._idle.setdefault(signature, deque(maxlen=MAX_IDLE))
            idle.append(rounds)
            self._idle.move_to_end(signature)
            if len(self._idle) > MAX_SIGNATURES:
                self._idle.popitem(last=False)


def _direct_of(
    node: Node, wiring: BodyWiring, question: Question, wanted: Sequence[int], inputs: Sequence[Value | None]
) -> DirectRounds | None:
    types = [None if value is None else value.type for value in inputs]
    known = [each for each in types if each is None or (isinstance(each, TensorType) and each.dtype not in _NO_NUMBERS)]
    if len(known) < len(types):
        return None
    given, is_loop = len(node.inputs), node.op_type == "Loop"
    grows = is_loop and _may_grow(wiring, question.carried)
    found = DirectRounds.of(
        NodeFacts(wiring, question, given, tuple(known), tuple(wanted), question.carried, is_loop, grows)
    )
    return None if isinstance(found, Rejection) else found


def _may_grow(wiring: BodyWiring, carried: int) -> bool:
    """Return whether a carried value of a Loop is not known to keep its shape."""
    body = wiring.inputs[0].graph
    assert body is not None
    pairs = zip(body.inputs[2 : 2 + carried], body.outputs[1 : 1 + carried], strict=True)
    return any(inside.type is None or inside.type != left.type for inside, left in pairs)


def native_rounds(
    node: Node,
    bodies: Mapping[Graph, CompiledBody[CpuPartition]],
    outputs: Sequence[Value],
    originals: Mapping[Value, Value],
) -> NativeRounds | Rejection:
    """Return a Loop or Scan as a native call, or why its rounds are run one by one.

    Args:
        node: any node.
        bodies: the bodies that were compiled, among them the node's, by their graphs.
        outputs: the outputs that are wanted.
        originals: the values of the partition for those that the node is given.
    """
    body = next((bodies[own] for own in node.subgraphs() if own in bodies), None)
    if body is None:
        return Rejection(f"{node.op_type} has no compiled body")
    if guarded_mode() is not GuardedMode.OFF:
        return Rejection("guarded programs run one by one")
    question = question_of(node, body.graph)
    if question is None:
        return Rejection(f"{node.op_type} runs no rounds")
    wiring = wire_body(body)
    if isinstance(wiring, Rejection):
        return wiring
    prepare_rounds()
    wanted = [list(node.outputs).index(value) for value in outputs]
    given = [None if value is None else originals[value] for value in (*node.inputs, *wiring.captured)]
    return NativeRounds(node, wiring, question, wanted, given)


def next_turn(rounds: int, took_ns: int) -> int:
    """Return how many rounds to run before the guard is asked again, after so many took so long."""
    if took_ns > 2 * TURN_NS:
        return max(1, rounds * TURN_NS // took_ns)
    return rounds * (16 if 16 * took_ns < TURN_NS else 2 if took_ns < TURN_NS else 1)


def _is_allowed(guard: RunGuard, nbytes: int) -> bool:
    try:
        guard.check_allocation(nbytes, "a native program")
    except AllocationLimitExceeded:
        return False  # rounds that are run one by one take less
    return True
