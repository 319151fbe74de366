"""CpuDirectCalls: the signatures of one program that run by a single native call, learned as they come again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np

from ort_core.cpu.direct.python_layout import PythonLayout, find_python_layout
from ort_core.cpu.direct.records import KeptWords, build_entry, build_head
from ort_core.cpu.program import NativeProgram
from ort_core.plugin import DirectFunction, Rejection

MAX_ENTRIES = 4  # signatures with a direct call; each owns the memory of one run
MAX_SEEN = 64  # signatures remembered to tell which come again
MAX_ARRAYS = 256  # inputs and outputs: their addresses lie on the stack

Signature = tuple[tuple[int, ...], ...]


class CpuDirectCalls:
    """The direct calls of a program that is a whole model.

    A signature gets an entry when it comes for the second time, so that a loop whose shapes change at each step builds
    nothing. Safe from many threads.
    """

    def __init__(
        self, program: NativeProgram, layout: PythonLayout, sources: Sequence[str | np.ndarray], order: Sequence[int]
    ) -> None:
        names = list(dict.fromkeys(source for source in sources if isinstance(source, str)))
        self._program, self._layout = program, layout
        self._order = tuple(order)
        self._sources = [names.index(s) if isinstance(s, str) else np.asarray(s, order="C") for s in sources]
        dtypes = {source: dtype for source, dtype in zip(sources, program.input_dtypes) if isinstance(source, str)}
        self._names = names
        self._types = [dtypes[name] for name in names]
        self._entries: OrderedDict[Signature, KeptWords] = OrderedDict()
        self._seen: OrderedDict[Signature, None] = OrderedDict()
        self._lock = threading.Lock()
        self._call: DirectFunction = _nothing_known

    @property
    def call(self) -> DirectFunction:
        """The function over the signatures that are known now."""
        return self._call

    def learn(self, feeds: Mapping[str, object]) -> None:
        """Take note of the feeds of an ordinary run that succeeded."""
        arrays = [feeds.get(name) for name in self._names]
        signature = tuple([array.shape for array in arrays if isinstance(array, np.ndarray)])
        if len(signature) != len(arrays) or signature in self._entries:
            return
        with self._lock:
            if signature in self._seen:
                self._add(signature)
                return
            self._seen[signature] = None
            if len(self._seen) > MAX_SEEN:
                self._seen.popitem(last=False)

    def _add(self, signature: Signature) -> None:
        shapes = tuple(signature[source] if isinstance(source, int) else source.shape for source in self._sources)
        bound = self._program.bind(shapes)
        if bound is None or signature in self._entries:
            return
        nbytes = [int(np.prod(s, dtype=np.int64)) * t.itemsize for s, t in zip(signature, self._types, strict=True)]
        self._entries[signature] = build_entry(bound, signature, nbytes, self._sources, self._order)
        if len(self._entries) > MAX_ENTRIES:
            self._entries.popitem(last=False)
        self._call = self._head()

    def _head(self) -> DirectFunction:
        newest_first = list(reversed(self._entries.values()))
        pool = self._program.pool
        return build_head(self._layout, self._names, self._types, len(self._order), pool, newest_first)


def _nothing_known(feeds: object, outputs: object) -> None:
    """Stand for the function until there is an entry: a load compiles nothing for runs that may never come."""


def build_direct_calls(
    program: NativeProgram, sources: Sequence[str | np.ndarray], order: Sequence[int]
) -> CpuDirectCalls | Rejection:
    """Return the direct calls of a program, or why it has none.

    Args:
        program: what runs.
        sources: for each of its inputs the name of its feed, or the constant that it always is.
        order: which of its outputs each output of the call is.
    """
    layout = find_python_layout()
    if isinstance(layout, Rejection):
        return layout
    if len(sources) + len(order) > MAX_ARRAYS:
        return Rejection(f"{len(sources)} inputs and {len(order)} outputs are too many for a direct call")
    return CpuDirectCalls(program, layout, sources, order)
