"""Direct calls of a program: signatures learned as they come again, each run by a single native call.

``CpuDirectCalls`` is for a program that is a whole model, ``DirectStep`` for one among the steps of a partition.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from ort_core.cpu.direct.call_layout import MAX_ARRAYS
from ort_core.cpu.direct.python_layout import PythonLayout, find_python_layout
from ort_core.cpu.direct.records import KeptWords, build_call, build_entry, build_head, find_call_code
from ort_core.cpu.guarded.mode import GuardedMode, guarded_mode
from ort_core.cpu.program.program import NativeProgram
from ort_core.cpu.program.sources import NumberSource, input_of, numbers_of
from ort_core.plugin import DirectFunction, Rejection, frozen
from ort_core.plugin.forks import new_lock

if TYPE_CHECKING:
    from ort_core.cpu.direct.open_records import OpenSignatures
    from ort_core.cpu.program.program import BoundState
    from ort_core.cpu.program.sources import Source

MAX_ENTRIES = 8  # signatures with a direct call; each owns the memory of one run
MAX_SEEN = 64  # signatures remembered to tell which come again
OPEN_AFTER = 3  # signatures from which on it is worth while to take any: there will be more

Signature = tuple[tuple[int, ...], ...]  # shapes, and behind them the numbers that belong to it, if there are any
FedSource: TypeAlias = "str | np.ndarray | FedNumber"


@frozen
class FedNumber:
    """An input without elements, whose rows are the number in a feed; ``name`` is that feed's."""

    name: str


class StepFunction(Protocol):
    """A step's call: its outputs, or ``None`` when the arrays are of no signature that is known."""

    def __call__(self, *inputs: object) -> list[np.ndarray] | None:
        """Run once."""


class Bindable(Protocol):
    """What a direct call runs: a native program, or what runs as one."""

    @property
    def input_dtypes(self) -> tuple[np.dtype, ...]:
        """numpy's element types of the inputs."""

    @property
    def entry_points(self) -> tuple[int, int]:
        """The addresses of a function as ``ort_pool_run``, and of its first argument."""

    def bind(self, signature: Signature) -> BoundState | None:
        """Return a run state of its own for the shapes of the inputs; ``None`` where none is to be had."""


class KnownSignatures:
    """The entries of one program, newest last. Safe from many threads.

    A signature gets an entry when it has come ``needed`` times; each entry that had to make room for another asks for
    one time more, so that programs with very many signatures come to rest. When signatures keep being new, as in a loop
    whose shapes change at each step, native code plans those of a program that have no entry (``open_records``).

    Args:
        program: what runs.
        layout: of this interpreter.
        names: of the inputs of the call.
        sources: where each input of the program comes from.
        order: which of the program's outputs each output of the call is.
        needed: times that a signature must come.
    """

    def __init__(
        self, program: Bindable, layout: PythonLayout, names: Sequence[str], sources: Sequence[Source],
        order: Sequence[int], needed: int = 2,
    ) -> None:  # fmt: skip
        self._program, self.layout, self.names = program, layout, tuple(names)
        self._sources, self._order = tuple(sources), tuple(order)
        self.numbers = numbers_of(sources)
        known = zip(sources, program.input_dtypes)
        of_input = {input_of(source): dtype for source, dtype in known if not isinstance(source, np.ndarray)}
        self._types = tuple(of_input[number] for number in range(len(names)))
        self._entries: OrderedDict[Signature, KeptWords] = OrderedDict()
        self._nbytes: dict[Signature, int] = {}
        self._seen: OrderedDict[Signature, int] = OrderedDict()
        self._needed = needed
        self._open_after, self._new = OPEN_AFTER * (needed - 1), 0
        self._opened: OpenSignatures | Rejection | None = None
        self._lock = new_lock()

    @property
    def nbytes(self) -> int:
        """The most bytes that a run of an entry takes."""
        opened = self._opened
        most = 0 if opened is None or isinstance(opened, Rejection) else opened.most_nbytes
        return max([most, *self._nbytes.values()])

    def learn(self, signature: Signature, accept: Callable[[KeptWords], None], *, is_limited: bool = False) -> None:
        """Take note of a signature that was run.

        Args:
            signature: the shapes of the inputs of the call.
            accept: given a new head when more signatures are known.
            is_limited: runs may take no more memory than such as went the ordinary way.
        """
        if signature in self._entries:
            return
        with self._lock:
            is_opened = not is_limited and self._open(signature)
            times = self._seen.pop(signature, 0) + 1
            is_added = times >= self._needed and signature not in self._entries
            if not is_added:
                self._new += times == 1
                self._seen[signature] = times
                if len(self._seen) > MAX_SEEN:
                    self._seen.popitem(last=False)
            if (is_added and self._add(signature)) or is_opened:
                accept(self._head())

    def forget(self) -> None:
        """Let all signatures be learned anew."""
        with self._lock:
            self._entries.clear()
            self._nbytes.clear()

    def _open(self, signature: Signature) -> bool:
        """Let native code plan what is like a signature that was run; returns whether it plans any only from now on."""
        if not isinstance(self._program, NativeProgram):
            return False
        is_first = self._opened is None and self._new >= self._open_after
        if is_first:
            from ort_core.cpu.direct.open_records import OpenSignatures  # of most models signatures come again

            self._opened = OpenSignatures.of(self._program, self._types, self._sources, self._order)
        if self._opened is None or isinstance(self._opened, Rejection):
            return False
        plan = self._program.find_plan(self._shapes(signature))
        if plan is not None:
            self._opened.allow(plan)
        return is_first

    def _shapes(self, signature: Signature) -> Signature:
        """Return the shapes of the program's inputs."""
        return tuple([self._shape(signature, source) for source in self._sources])

    def _shape(self, signature: Signature, source: Source) -> tuple[int, ...]:
        if isinstance(source, NumberSource):
            return (signature[-1][self.numbers.index(source.number)], 0)
        return signature[source] if isinstance(source, int) else source.shape

    def _head(self) -> KeptWords:
        opened = None if self._opened is None or isinstance(self._opened, Rejection) else self._opened.words
        newest_first = list(reversed(self._entries.values()))
        return build_head(
            self.layout, self.names, self._types, len(self._order), self._program, newest_first, opened, self.numbers
        )

    def _add(self, signature: Signature) -> bool:
        bound = self._program.bind(self._shapes(signature))
        if bound is None:
            return False
        shapes, numbers = signature[: len(self._types)], signature[-1] if self.numbers else ()
        nbytes = [int(np.prod(s, dtype=np.int64)) * t.itemsize for s, t in zip(shapes, self._types, strict=True)]
        self._entries[signature] = build_entry(bound, shapes, nbytes, self._sources, self._order, numbers)
        self._nbytes[signature] = bound.nbytes
        if len(self._entries) > MAX_ENTRIES:
            self._nbytes.pop(self._entries.popitem(last=False)[0])
            self._needed += 1
        return True


class CpuDirectCalls:
    """The direct calls of a program that is a whole model: ``plugin.DirectCalls``."""

    def __init__(self, known: KnownSignatures) -> None:
        self._known = known
        self._call: DirectFunction = _no_feeds_known

    @property
    def call(self) -> DirectFunction:
        """The function over the signatures that are known now."""
        return self._call

    def learn(self, feeds: Mapping[str, object], *, is_limited: bool = False) -> None:
        """Take note of the feeds of an ordinary run that succeeded."""
        arrays = [feeds.get(name) for name in self._known.names]
        signature = tuple([array.shape for array in arrays if isinstance(array, np.ndarray)])
        if len(signature) != len(arrays):
            return
        if self._known.numbers:
            numbers = [arrays[index] for index in self._known.numbers]
            signature += (tuple([array.item() for array in numbers if isinstance(array, np.ndarray)]),)
        self._known.learn(signature, self._accept, is_limited=is_limited)

    def forget(self) -> None:
        """Let all signatures be learned anew."""
        self._known.forget()
        self._call = _no_feeds_known

    def _accept(self, head: KeptWords) -> None:
        self._call = build_call(self._known.layout, head, "ort_direct_call")


class DirectStep:
    """The direct calls of a program among the steps of a partition. ``call(*arrays)`` takes the program's inputs."""

    def __init__(self, known: KnownSignatures) -> None:
        self._known = known
        self.call: StepFunction = _no_arrays_known
        self.nbytes = 0  # the most that a run takes, for the guard

    def learn(self, arrays: Sequence[np.ndarray], *, is_limited: bool = False) -> None:
        """Take note of the inputs of an ordinary run that succeeded."""
        self._known.learn(tuple([array.shape for array in arrays]), self._accept, is_limited=is_limited)
        self.nbytes = self._known.nbytes

    def forget(self) -> None:
        """Let all signatures be learned anew."""
        self._known.forget()
        self.call = _no_arrays_known

    def _accept(self, head: KeptWords) -> None:
        self.nbytes = self._known.nbytes
        self.call = build_call(self._known.layout, head, "ort_direct_step")


def _no_feeds_known(feeds: object, outputs: object) -> None:
    """Stand for the function until there is an entry: a load compiles nothing for runs that may never come."""


def _no_arrays_known(*inputs: object) -> None:
    """Stand for the function of a step until there is an entry."""


def build_direct_calls(
    program: Bindable, sources: Sequence[FedSource], order: Sequence[int]
) -> CpuDirectCalls | Rejection:
    """Return the direct calls of what is a whole model, or why it has none.

    Args:
        program: what runs.
        sources: for each of its inputs the name of its feed, the constant that it always is, or a feed's number.
        order: which of its outputs each output of the call is.
    """
    places: dict[str, int] = {}
    numbered = [_source(each, places) for each in sources]
    known = known_signatures(program, list(places), numbered, order)
    return known if isinstance(known, Rejection) else CpuDirectCalls(known)


def _source(source: FedSource, places: dict[str, int]) -> Source:
    """Return where an input comes from by number; ``places`` numbers the feeds by name as they come."""
    if isinstance(source, FedNumber):
        return NumberSource(places.setdefault(source.name, len(places)))
    return places.setdefault(source, len(places)) if isinstance(source, str) else np.asarray(source, order="C")


def build_direct_step(program: NativeProgram, is_alone: bool = False) -> DirectStep | Rejection:
    """Return the direct calls of a step, or why it has none.

    Args:
        program: of the step.
        is_alone: there is no other step: direct calls of the whole model come first and take the memory of the first
            runs; a call of the step, for callers who have none of the whole, takes memory of its own.
    """
    names, results = program.record.inputs, range(len(program.record.outputs))
    known = known_signatures(program, names, range(len(names)), results, 3 if is_alone else 2)
    return known if isinstance(known, Rejection) else DirectStep(known)


def known_signatures(
    program: Bindable, names: Sequence[str], sources: Sequence[Source], order: Sequence[int],
    needed: int = 2,
) -> KnownSignatures | Rejection:  # fmt: skip
    """Return the signatures of what runs, none of which is known yet; the arguments are those of the class."""
    if guarded_mode() is not GuardedMode.OFF:
        return Rejection("guarded runs are not direct calls")
    layout = find_python_layout()
    if isinstance(layout, Rejection):
        return layout
    code = find_call_code(layout)
    if isinstance(code, Rejection):
        return code
    if len(sources) + len(order) > MAX_ARRAYS:
        return Rejection(f"{len(sources)} inputs and {len(order)} outputs are too many for a direct call")
    return KnownSignatures(program, layout, names, sources, order, needed)


def prepare_direct_calls() -> None:
    """Have the code of direct calls made, for those who store it; where this Python allows none there is none."""
    layout = find_python_layout()
    if not isinstance(layout, Rejection):
        find_call_code(layout)
