"""NonMaxSuppression as one native call: its result's size is data, so it is not a step of a program."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ort_core.cpu.codegen.indexing.suppression import COORDINATES, suppression_kernels
from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.code_cache import compiled
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.guarded.arrays import GuardedArrays
from ort_core.cpu.guarded.mode import GuardedMode, guarded_mode
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.cpu.threads.pool_code import STEP_WORDS
from ort_core.plugin.ir import Node, Value
from ort_core.plugin.kernels import RunGuard, RuntimeValue

_TABLE_WORDS = 13  # that the kernel is told
PARALLEL_WORK = 10_000  # scores below which waking other threads costs more than it saves


class Suppression:
    """A compiled NonMaxSuppression node, to be run from any thread.

    Args:
        node: the node.
        target: what to compile for.
        pool: the threads, which share the classes.
    """

    def __init__(self, node: Node, target: Target, pool: ThreadPool) -> None:
        name, functions = suppression_kernels(center_point_box=bool(node.int_attribute("center_point_box", 0)))
        self._module = compiled(module_text(functions), target)
        self._address = self._module.address(name)
        self._pool, self._mode = pool, guarded_mode()
        self.inputs: tuple[Value | None, ...] = tuple(node.inputs)

    def run(self, arguments: Sequence[RuntimeValue], guard: RunGuard) -> list[np.ndarray] | None:
        """Return the kept boxes [K, 3] as (batch, class, box), or ``None`` where the reference must say what is wrong.

        Raises:
            AllocationLimitExceeded: it would take more memory than the guard allows.
        """
        given = [*arguments, *([None] * (5 - len(arguments)))]
        boxes, scores = given[:2]
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
        return [self._kept(boxes, scores, most, overlap or 0.0, threshold, guard)]

    def _kept(
        self, boxes: np.ndarray, scores: np.ndarray, most: int, overlap: float, threshold: float | None, guard: RunGuard
    ) -> np.ndarray:
        batches, classes, count = scores.shape
        threads = self._pool.num_threads
        guard.check_allocation(
            8 * batches * classes * (most + 1) + threads * (8 * count + 20 * most), "NonMaxSuppression"
        )
        boxes, scores = np.ascontiguousarray(boxes), np.ascontiguousarray(scores)
        rows = batches * classes
        sizes = (1, rows * most, rows, threads * count, -(-threads * COORDINATES * most // 2))  # in words of 8 bytes
        places = [*itertools.accumulate(sizes, initial=STEP_WORDS + _TABLE_WORDS)]
        memory = np.empty(places[-1], np.int64)  # one for all: an array and its address take 2 us
        limits, kept, counts, heap, coordinates = (memory[a:b] for a, b in itertools.pairwise(places))
        limits.view(np.float32)[:] = overlap, 0.0 if threshold is None else threshold
        start, guarded = memory.ctypes.data, None
        addresses = [boxes.ctypes.data, scores.ctypes.data, *(start + 8 * place for place in places[:-1])]
        if self._mode is not GuardedMode.OFF:
            guarded = GuardedArrays([boxes, scores, limits], [kept, counts, heap, coordinates], self._mode)
            addresses = [array.ctypes.data for array in guarded.arrays]
            kept, counts = guarded.arrays[3:5]
        of_boxes, of_scores, of_limits, *others = addresses
        memory[: STEP_WORDS + _TABLE_WORDS] = 0
        memory[:2] = self._address, start + 8 * STEP_WORDS
        memory[STEP_WORDS : STEP_WORDS + _TABLE_WORDS] = [
            of_boxes, of_scores, batches, classes, count, most, of_limits, of_limits + 4, int(threshold is not None),
            *others,
        ]  # fmt: skip
        self._pool.run(start, 1, 1 if scores.size < PARALLEL_WORK else 1 << 30)
        if guarded is not None:
            guarded.check("NonMaxSuppression")
        return _triples(kept.reshape(rows, most), counts, classes)


def _triples(kept: np.ndarray, counts: np.ndarray, classes: int) -> np.ndarray:
    """Return (batch, class, box) for the first ``counts[row]`` boxes of each row of a batch and a class."""
    if len(counts) == 1:
        found = np.zeros((int(counts[0]), 3), np.int64)
        found[:, 2] = kept[0, : len(found)]
        return found
    row = np.repeat(np.arange(len(counts)), counts)
    found = np.empty((len(row), 3), np.int64)
    found[:, 0], found[:, 1] = np.divmod(row, classes)
    found[:, 2] = kept[np.arange(kept.shape[1]) < counts[:, None]]
    return found


def _are_sound(boxes: np.ndarray, scores: np.ndarray) -> bool:
    if boxes.dtype != np.float32 or scores.dtype != np.float32 or boxes.ndim != 3 or scores.ndim != 3:
        return False
    return boxes.shape[2] == 4 and boxes.shape[0] == scores.shape[0] and boxes.shape[1] == scores.shape[2]


def _scalar(value: RuntimeValue) -> float | None:
    return float(value.item(0)) if isinstance(value, np.ndarray) else None
