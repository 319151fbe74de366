"""NonMaxSuppression as one native call: its result's size is data, so it is not a step of a program."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence

import numpy as np

from ort_core.cpu.codegen.indexing.suppression import COORDINATES, suppression_kernels
from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.code_cache import compiled
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.guarded.arrays import GuardedArrays
from ort_core.cpu.guarded.mode import GuardedMode, guarded_mode
from ort_core.cpu.partition.direct_suppression import DirectSuppression, Limits, triples
from ort_core.cpu.partition.single_steps import IdleStepsState
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.plugin import DirectCalls, Rejection
from ort_core.plugin.ir import Node, Value
from ort_core.plugin.kernels import RunGuard, RuntimeValue

_PAIR, _WORD = struct.Struct("=ff"), struct.Struct("=q")
PARALLEL_WORK = 10_000  # scores below which waking other threads costs more than it saves


class Suppression:
    """A compiled NonMaxSuppression node, to be run from any thread.

    Args:
        node: the node.
        target: what to compile for.
        pool: the threads, which share the classes.
        is_direct: whether there may be direct calls.
    """

    def __init__(self, node: Node, target: Target, pool: ThreadPool, *, is_direct: bool = True) -> None:
        name, functions = suppression_kernels(center_point_box=bool(node.int_attribute("center_point_box", 0)))
        self._module = compiled(module_text(functions), target)
        self._address = self._module.address(name)
        self._pool, self._mode = pool, guarded_mode()
        self._steps = IdleStepsState(pool)
        self.inputs: tuple[Value | None, ...] = tuple(node.inputs)
        self._direct = self._direct_of(node) if is_direct else None

    def run(self, arguments: Sequence[RuntimeValue], guard: RunGuard) -> list[np.ndarray] | None:
        """Return the kept boxes [K, 3] as (batch, class, box), or ``None`` where the reference must say what is wrong.

        Raises:
            AllocationLimitExceeded: it would take more memory than the guard allows.
        """
        boxes, scores = arguments[:2]
        if self._direct is not None and (known := self._direct.run(boxes, scores, guard)) is not None:
            return known
        given = [*arguments, *([None] * (5 - len(arguments)))]
        if not isinstance(boxes, np.ndarray) or not isinstance(scores, np.ndarray) or not _are_sound(boxes, scores):
            return None
        if any(isinstance(value, np.ndarray) and not value.size for value in given[2:]):
            return None
        limit, overlap, threshold = (_scalar(value) for value in given[2:])
        if overlap is not None and not 0 <= overlap <= 1:
            return None
        batches, classes, count = scores.shape
        most = min(int(limit or 0), count)
        if most <= 0 or batches * classes == 0:
            return [np.zeros((0, 3), np.int64)]
        found = [self._kept(boxes, scores, most, overlap or 0.0, threshold, guard)]
        if self._direct is not None:
            self._direct.learn(boxes, scores)
        return found

    def direct_calls(self, sources: Sequence[str | np.ndarray], order: Sequence[int]) -> DirectCalls | Rejection:
        """Return the direct calls of a model that is the node.

        Args:
            sources: for each of ``inputs`` that is there the name of its feed, or the constant that it always is.
            order: which outputs there are: the one.
        """
        if self._direct is None or list(order) != [0]:
            return Rejection("limits of NonMaxSuppression are no constants, or no call is direct")
        return self._direct.direct_calls(sources[:2])

    def _direct_of(self, node: Node) -> DirectSuppression | None:
        constants = [None if value is None else value.constant for value in node.inputs[2:]]
        given = [None if each is None else each.array() for each in constants]
        is_known = all((a is None) == (v is None) for a, v in zip(given, node.inputs[2:], strict=True))
        if not is_known or any(array is not None and not array.size for array in given):
            return None
        limit, overlap, threshold = (*map(_scalar, given), None, None, None)[:3]
        if overlap is not None and not 0 <= overlap <= 1:
            return None
        limits = Limits(int(limit or 0), overlap or 0.0, threshold)
        found = DirectSuppression.of(self._address, limits, self._pool, PARALLEL_WORK)
        return None if isinstance(found, Rejection) else found

    def _kept(
        self, boxes: np.ndarray, scores: np.ndarray, most: int, overlap: float, threshold: float | None, guard: RunGuard
    ) -> np.ndarray:
        batches, classes, count = scores.shape
        rows, threads = batches * classes, self._pool.num_threads
        counts = 1 + rows * most  # places in memory, in words of 8 bytes: limits, kept boxes, counts, scratch
        heap = counts + rows
        coordinates = heap + threads * count
        end = coordinates - (-threads * COORDINATES * most // 2)
        guard.check_allocation(8 * end, "NonMaxSuppression")
        boxes = boxes if boxes.flags.c_contiguous else np.ascontiguousarray(boxes)
        scores = scores if scores.flags.c_contiguous else np.ascontiguousarray(scores)
        step = self._steps.take()
        memory, start = step.memory(end)
        memory[0] = _two_floats(overlap, 0.0 if threshold is None else threshold)
        sizes = [batches, classes, count, most, threshold is not None]
        words = [start, start + 8, start + 8 * counts, start + 8 * heap, start + 8 * coordinates]
        arrays, guarded = [boxes, scores], None
        if self._mode is not GuardedMode.OFF:
            cuts = [memory[a:b] for a, b in itertools.pairwise((0, 1, counts, heap, coordinates, end))]
            guarded = GuardedArrays([boxes, scores, cuts[0]], cuts[1:], self._mode)
            arrays, words = guarded.arrays[:2], [int(each.ctypes.data) for each in guarded.arrays[2:]]
        step.run(self._address, arrays, [*sizes, *words], is_alone=scores.size < PARALLEL_WORK)
        if guarded is not None:
            guarded.check("NonMaxSuppression")
            memory[1:heap] = np.concatenate(guarded.arrays[3:5])
        found = triples(memory[1:counts], memory[counts:heap], classes)
        self._steps.give(step)
        return found


def _two_floats(first: float, second: float) -> int:
    """Return a word of two float32, as memory has them."""
    word: int = _WORD.unpack(_PAIR.pack(first, second))[0]
    return word


def _are_sound(boxes: np.ndarray, scores: np.ndarray) -> bool:
    if boxes.dtype != np.float32 or scores.dtype != np.float32 or boxes.ndim != 3 or scores.ndim != 3:
        return False
    return boxes.shape[2] == 4 and boxes.shape[0] == scores.shape[0] and boxes.shape[1] == scores.shape[2]


def _scalar(value: RuntimeValue) -> float | None:
    return float(value.item(0)) if isinstance(value, np.ndarray) else None
