"""Direct calls of a program: signatures learned as they come again, each run by a single native call.

``CpuDirectCalls`` is for a program that is a whole model, ``DirectStep`` for one among the steps of a partition.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ort_core.cpu.direct.call_layout import MAX_ARRAYS
from ort_core.cpu.direct.python_layout import PythonLayout, find_python_layout
from ort_core.cpu.direct.records import KeptWords, build_call, build_entry, build_head, find_call_code
from ort_core.cpu.guarded.mode import GuardedMode, guarded_mode
from ort_core.plugin import DirectFunction, Rejection
from ort_core.plugin.forks import new_lock

if TYPE_CHECKING:
    from ort_core.cpu.program.program import BoundState, NativeProgram

MAX_ENTRIES = 8  # signatures with a direct call; each owns the memory of one run
MAX_SEEN = 64  # signatures remembered to tell which come again

Signature = tuple[tuple[int, ...], ...]


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

    A signature gets an entry when it has come ``needed`` times, so that a loop whose shapes change at each step builds
    nothing; each entry that had to make room for another asks for one time more, so that programs with very many
    signatures come to rest.

    Args:
        program: what runs.
        layout: of this interpreter.
        names: of the inputs of the call.
        sources: for each input of the program the number of an input of the call, or a constant.
        order: which of the program's outputs each output of the call is.
        needed: times that a signature must come.
    """

    def __init__(
        self, program: Bindable, layout: PythonLayout, names: Sequence[str], sources: Sequence[int | np.ndarray],
        order: Sequence[int], needed: int = 2,
    ) -> None:  # fmt: skip
        self._program, self.layout, self.names = program, layout, tuple(names)
        self._sources, self._order = tuple(sources), tuple(order)
        of_input = {source: t for source, t in zip(sources, program.input_dtypes) if isinstance(source, int)}
        self._types = tuple(of_input[number] for number in range(len(names)))
        self._entries: OrderedDict[Signature, KeptWords] = OrderedDict()
        self._nbytes: dict[Signature, int] = {}
        self._seen: OrderedDict[Signature, int] = OrderedDict()
        self._needed = needed
        self._lock = new_lock()

    @property
    def nbytes(self) -> int:
        """The most bytes that a run of an entry takes."""
        return max(self._nbytes.values(), default=0)

    def learn(self, signature: Signature, accept: Callable[[KeptWords], None]) -> None:
        """Take note of a signature that was run; ``accept`` is given a new head when there is a new entry."""
        if signature in self._entries:
            return
        with self._lock:
            times = self._seen.pop(signature, 0) + 1
            if times >= self._needed and signature not in self._entries:
                head = self._added(signature)
                if head is not None:
                    accept(head)
                return
            self._seen[signature] = times
            if len(self._seen) > MAX_SEEN:
                self._seen.popitem(last=False)

    def forget(self) -> None:
        """Let all signatures be learned anew."""
        with self._lock:
            self._entries.clear()
            self._nbytes.clear()

    def _added(self, signature: Signature) -> KeptWords | None:
        shapes = [signature[source] if isinstance(source, int) else source.shape for source in self._sources]
        bound = self._program.bind(tuple(shapes))
        if bound is None:
            return None
        nbytes = [int(np.prod(s, dtype=np.int64)) * t.itemsize for s, t in zip(signature, self._types, strict=True)]
        self._entries[signature] = build_entry(bound, signature, nbytes, self._sources, self._order)
        self._nbytes[signature] = bound.nbytes
        if len(self._entries) > MAX_ENTRIES:
            self._nbytes.pop(self._entries.popitem(last=False)[0])
            self._needed += 1
        newest_first = list(reversed(self._entries.values()))
        return build_head(self.layout, self.names, self._types, len(self._order), self._program, newest_first)


class CpuDirectCalls:
    """The direct calls of a program that is a whole model: ``plugin.DirectCalls``."""

    def __init__(self, known: KnownSignatures) -> None:
        self._known = known
        self._call: DirectFunction = _no_feeds_known

    @property
    def call(self) -> DirectFunction:
        """The function over the signatures that are known now."""
        return self._call

    def learn(self, feeds: Mapping[str, object]) -> None:
        """Take note of the feeds of an ordinary run that succeeded."""
        arrays = [feeds.get(name) for name in self._known.names]
        signature = tuple([array.shape for array in arrays if isinstance(array, np.ndarray)])
        if len(signature) == len(arrays):
            self._known.learn(signature, self._accept)

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

    def learn(self, arrays: Sequence[np.ndarray]) -> None:
        """Take note of the inputs of an ordinary run that succeeded."""
        self._known.learn(tuple([array.shape for array in arrays]), self._accept)

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
    program: Bindable, sources: Sequence[str | np.ndarray], order: Sequence[int]
) -> CpuDirectCalls | Rejection:
    """Return the direct calls of what is a whole model, or why it has none.

    Args:
        program: what runs.
        sources: for each of its inputs the name of its feed, or the constant that it always is.
        order: which of its outputs each output of the call is.
    """
    places: dict[str, int] = {}
    numbered = [
        places.setdefault(s, len(places)) if isinstance(s, str) else np.asarray(s, order="C") for s in sources
    ]  # fmt: skip
    known = known_signatures(program, list(places), numbered, order)
    return known if isinstance(known, Rejection) else CpuDirectCalls(known)


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
    program: Bindable, names: Sequence[str], sources: Sequence[int | np.ndarray], order: Sequence[int],
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
