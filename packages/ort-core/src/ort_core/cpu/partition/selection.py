"""TopK of a k that only a run knows, as one native call: the size of its results is data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from ort_core.cpu.codegen.indexing.top_k import MAX_K, top_k_kernel
from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.code_cache import compiled
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.guarded.arrays import GuardedArrays
from ort_core.cpu.guarded.mode import GuardedMode, guarded_mode
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.cpu.threads.pool_code import STEP_WORDS
from ort_core.plugin import Rejection
from ort_core.plugin.ir import DataType, Node, TensorType, Value, border_of
from ort_core.plugin.kernels import RunGuard, RuntimeValue
from ort_core.plugin.loops import SUPPORTED

PARALLEL_WORK = 10_000  # elements below which waking other threads costs more than it saves
_TABLE_WORDS = 6


def selection_of(node: Node, target: Target, pool: ThreadPool) -> Selection | Rejection:
    """Return the call of a TopK node, or why there is none: a program has the others."""
    x, k = node.input(0), node.input(1)
    if x is None or k is None or k.constant is not None:
        return Rejection("k is known")
    if not isinstance(x.type, TensorType) or x.type.dtype not in SUPPORTED - {DataType.BOOL}:
        return Rejection("elements of this type are not compared by generated code")
    return Selection(node, x.type.dtype, target, pool)


class Selection:
    """A compiled TopK node, to be run from any thread.

    Args:
        node: the node.
        dtype: of the elements.
        target: what to compile for.
        pool: the threads, which share the rows.
    """

    def __init__(self, node: Node, dtype: DataType, target: Target, pool: ThreadPool) -> None:
        self._is_largest, self._target, self._type = bool(node.int_attribute("largest", 1)), target, dtype
        self._dtype = dtype.numpy
        self._axis, self._pool, self._mode = node.int_attribute("axis", -1), pool, guarded_mode()
        read = border_of([node]).outputs
        self._wanted = [any(output is each for each in read) for output in node.outputs]
        self.inputs: tuple[Value | None, ...] = tuple(node.inputs)

    @cached_property
    def _code(self) -> tuple[CompiledModule, int]:
        """The kernel and its address, compiled by the first run: where k is a size, a program has the node."""
        name, function = top_k_kernel(self._type, largest=self._is_largest)
        module = compiled(module_text([function]), self._target)
        return module, module.address(name)

    def run(self, arguments: Sequence[RuntimeValue], guard: RunGuard) -> list[np.ndarray] | None:
        """Return values and indices, of them what is read; ``None`` where the reference sorts sooner or must refuse.

        Raises:
            AllocationLimitExceeded: it would take more memory than the guard allows.
        """
        x, given = arguments
        if not isinstance(x, np.ndarray) or not isinstance(given, np.ndarray) or x.dtype != self._dtype:
            return None
        if given.shape != (1,) or not -x.ndim <= self._axis < x.ndim or not x.size:
            return None
        axis, k = self._axis % x.ndim, int(given.item(0))
        if not 0 < k <= min(x.shape[axis], MAX_K):
            return None
        is_last = axis == x.ndim - 1
        rows = np.ascontiguousarray(x if is_last else np.moveaxis(x, axis, -1))
        shape = (*rows.shape[:-1], k)
        guard.check_allocation(math.prod(shape) * (rows.itemsize + 8), "TopK")
        found = self._selected(rows, shape)
        if not is_last:
            found = [np.ascontiguousarray(np.moveaxis(each, -1, axis)) for each in found]
        return [each for each, is_wanted in zip(found, self._wanted, strict=False) if is_wanted]

    def _selected(self, rows: np.ndarray, shape: tuple[int, ...]) -> list[np.ndarray]:
        values, indices = np.empty(shape, rows.dtype), np.empty(shape, np.int64)
        guarded = None
        if self._mode is not GuardedMode.OFF:
            guarded = GuardedArrays([rows], [values, indices], self._mode)
            rows, values, indices = guarded.arrays
        memory = np.zeros(STEP_WORDS + _TABLE_WORDS, np.int64)
        start = memory.ctypes.data
        memory[:2] = self._code[1], start + 8 * STEP_WORDS
        memory[STEP_WORDS:] = [
            values.ctypes.data, indices.ctypes.data, rows.ctypes.data, math.prod(shape[:-1]), rows.shape[-1], shape[-1],
        ]  # fmt: skip
        self._pool.run(start, 1, 1 if rows.size < PARALLEL_WORK else 1 << 30)
        if guarded is None:
            return [values, indices]
        guarded.check("TopK")
        return [values.copy(), indices.copy()]  # what is guarded goes with its pages
