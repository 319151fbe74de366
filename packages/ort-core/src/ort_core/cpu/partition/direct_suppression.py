"""DirectSuppression: a NonMaxSuppression of few boxes, whose limits are constants, as one direct call."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.cpu.codegen.indexing.suppression import COORDINATES
from ort_core.cpu.direct.direct_calls import DirectStep, Signature, build_direct_calls, known_signatures
from ort_core.cpu.direct.finished_calls import FinishedCalls
from ort_core.cpu.direct.moved_words import MovedWords, WordMemory
from ort_core.cpu.program.output_memory import OutputMemory
from ort_core.cpu.program.program import BoundState
from ort_core.cpu.threads.pool_code import ALONE, STEP_WORDS
from ort_core.plugin import AllocationLimitExceeded, DirectCalls, Rejection, frozen

if TYPE_CHECKING:
    from ort_core.cpu.threads.pool import ThreadPool
    from ort_core.plugin.kernels import RunGuard

MOST_NBYTES = 1 << 18  # of a run: an entry keeps its memory
MOST_TABLED = 2_048  # boxes whose rows of batch and class are kept in a table
LOCKED_WORK = 1_000  # scores below which the interpreter lock is kept


@frozen
class Limits:
    """How many boxes of a class are kept, how much they may overlap, and the least score, if there is one."""

    most: int
    overlap: float
    threshold: float | None


class BindableSuppression:
    """A node as what direct calls run: see ``direct.direct_calls.Bindable``.

    Its outputs are the kept boxes [batches, classes, most], and how many are kept of each class.
    """

    input_dtypes = (np.dtype(np.float32), np.dtype(np.float32))

    def __init__(self, kernel: int, limits: Limits, pool: ThreadPool, most_work: int) -> None:
        self._kernel, self._limits, self._pool, self._most_work = kernel, limits, pool, most_work
        self._memory = OutputMemory()

    @property
    def entry_points(self) -> tuple[int, int]:
        """What runs the one step: ``ort_pool_run`` and the pool."""
        return self._pool.entry_points

    def bind(self, signature: Signature) -> BoundState | None:
        """Return the step for shapes of boxes and scores that an ordinary run has taken."""
        batches, classes, count = signature[1]
        most, threshold = min(self._limits.most, count), self._limits.threshold
        if most <= 0 or not batches * classes or batches * classes * count >= self._most_work:
            return None
        fed = [np.zeros(shape, np.float32) for shape in signature]
        kept, counts = np.zeros((batches, classes, most), np.int64), np.zeros(batches * classes, np.int64)
        limits = np.array([self._limits.overlap, threshold or 0.0], np.float32)
        heap, coordinates = np.zeros(count, np.int64), np.zeros(-(-COORDINATES * most // 2), np.int64)
        nbytes = sum(each.nbytes for each in (kept, counts, heap, coordinates))
        if nbytes > MOST_NBYTES:
            return None
        own = [each.ctypes.data for each in (limits, kept, counts, heap, coordinates)]
        sizes = [batches, classes, count, most, threshold is not None]
        table = np.array([*(each.ctypes.data for each in fed), *sizes, *own], np.int64)
        step = np.zeros(STEP_WORDS, np.int64)
        step[0], step[1] = self._kernel, table.ctypes.data
        error = np.zeros(1, np.int64)
        moved = MovedWords(fed, [kept, counts])
        moved.add_table(table)
        return BoundState(
            WordMemory((table, step, limits, heap, coordinates, error)), step.ctypes.data, 1, ALONE, error.ctypes.data,
            moved.inputs, moved.outputs, (kept.shape, counts.shape), (kept.dtype, counts.dtype), nbytes, {},
            self._memory, batches * classes * count < LOCKED_WORK,
        )  # fmt: skip


class DirectSuppression:
    """The direct calls of a node: among other steps (``run``), and as a whole model (``direct_calls``)."""

    def __init__(self, node: BindableSuppression, step: DirectStep) -> None:
        self._node, self._step = node, step

    @classmethod
    def of(cls, kernel: int, limits: Limits, pool: ThreadPool, most_work: int) -> DirectSuppression | Rejection:
        """Return the direct calls of a node, or why it has none.

        Args:
            kernel: the address of its code.
            limits: its constants.
            pool: the threads.
            most_work: scores from which on several threads share them.
        """
        node = BindableSuppression(kernel, limits, pool, most_work)
        known = known_signatures(node, ["boxes", "scores"], [0, 1], [0, 1], needed=3)  # whole models come first
        return known if isinstance(known, Rejection) else cls(node, DirectStep(known))

    def run(self, boxes: object, scores: object, guard: RunGuard) -> list[np.ndarray] | None:
        """Return the output, ``None`` where the ordinary run must go on."""
        try:
            guard.check_allocation(self._step.nbytes, "NonMaxSuppression")
        except AllocationLimitExceeded:
            return None
        results = self._step.call(boxes, scores)
        return None if results is None else finished(results)

    def learn(self, boxes: np.ndarray, scores: np.ndarray) -> None:
        """Take note of an ordinary run that succeeded."""
        self._step.learn([boxes, scores])

    def direct_calls(self, sources: Sequence[str | np.ndarray]) -> DirectCalls | Rejection:
        """Return the direct calls of a model that is the node.

        Args:
            sources: for boxes and scores the name of the feed, or the constant that it always is.
        """
        calls = build_direct_calls(self._node, sources, [0, 1])
        return calls if isinstance(calls, Rejection) else FinishedCalls(calls, finished)


def finished(results: list[np.ndarray]) -> list[np.ndarray]:
    """Return the output of what native code has kept."""
    kept, counts = results
    return [triples(kept, counts, kept.shape[1])]


def triples(kept: np.ndarray, counts: np.ndarray, classes: int) -> np.ndarray:
    """Return (batch, class, box) for the first ``counts[row]`` boxes of each row of a batch and a class."""
    if len(counts) == 1:
        number = int(counts[0])
        found = np.zeros((number, 3), np.int64)
        found[:, 2] = kept.reshape(-1)[:number]
        return found
    kept = kept.reshape(len(counts), -1)
    if kept.size <= MOST_TABLED:
        table, places = _table(*kept.shape, classes)
        is_kept = places < counts[:, None]
        found = table[is_kept]
        found[:, 2] = kept[is_kept]
        return found
    row = np.repeat(np.arange(len(counts)), counts)
    found = np.empty((len(row), 3), np.int64)
    found[:, 0], found[:, 1] = np.divmod(row, classes)
    found[:, 2] = kept[np.arange(kept.shape[1]) < counts[:, None]]
    return found


@functools.lru_cache(16)
def _table(rows: int, most: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (batch, class, 0) for each place of each row of a batch and a class, and the numbers of places."""
    table = np.zeros((rows, most, 3), np.int64)
    table[:, :, 0], table[:, :, 1] = (each[:, None] for each in np.divmod(np.arange(rows), classes))
    return table, np.arange(most)
