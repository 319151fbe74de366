"""TopK of a k that only a run knows, as one native call: the size of its results is data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from ort_core.cpu.codegen.indexing.sorted_top_k import held_records, scratch_words, sorted_top_k_kernel
from ort_core.cpu.codegen.indexing.top_k import is_inserted, top_k_kernel
from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.code_cache import compiled
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.guarded.arrays import GuardedArrays
from ort_core.cpu.guarded.mode import GuardedMode, guarded_mode
from ort_core.cpu.partition.single_steps import IdleStepsState
from ort_core.cpu.program.sizes import evaluate
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.plugin import Rejection
from ort_core.plugin.ir import DataType, Node, TensorType, Value, border_of
from ort_core.plugin.kernels import RunGuard, RuntimeValue
from ort_core.plugin.loops import SUPPORTED

PARALLEL_WORK = 10_000  # elements below which waking other threads costs more than it saves


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
        self._steps = IdleStepsState(pool)
        self.inputs: tuple[Value | None, ...] = tuple(node.inputs)

    @cached_property
    def _inserting(self) -> tuple[CompiledModule, int]:
        """The kernel for a small k and its address, compiled by the first run that needs it."""
        name, function = top_k_kernel(self._type, largest=self._is_largest)
        module = compiled(module_text([function]), self._target)
        return module, module.address(name)

    @cached_property
    def _sorting(self) -> tuple[CompiledModule, int]:
        """The kernel for any other k."""
        name = f"sorted_top_k_{self._type.text}_{int(self._is_largest)}"
        functions = sorted_top_k_kernel(name, self._type, self._target, largest=self._is_largest)
        module = compiled(module_text(functions), self._target)
        return module, module.address(name)

    def run(self, arguments: Sequence[RuntimeValue], guard: RunGuard) -> list[np.ndarray] | None:
        """Return values and indices, of them what is read; ``None`` where the reference must refuse.

        Raises:
            AllocationLimitExceeded: it would take more memory than the guard allows.
        """
        x, given = arguments
        if not isinstance(x, np.ndarray) or not isinstance(given, np.ndarray) or x.dtype != self._dtype:
            return None
        if given.shape != (1,) or not -x.ndim <= self._axis < x.ndim or not x.size:
            return None
        axis, k = self._axis % x.ndim, int(given.item(0))
        if not 0 < k <= x.shape[axis]:
            return None
        is_last = axis == x.ndim - 1
        rows = x if is_last else np.moveaxis(x, axis, -1)
        rows = rows if rows.flags.c_contiguous else np.ascontiguousarray(rows)
        found = self._selected(rows, (*rows.shape[:-1], k), guard)
        if not is_last:
            found = [np.ascontiguousarray(np.moveaxis(each, -1, axis)) for each in found]
        return [each for each, is_wanted in zip(found, self._wanted, strict=False) if is_wanted]

    def _selected(self, rows: np.ndarray, shape: tuple[int, ...], guard: RunGuard) -> list[np.ndarray]:
        length, k, guarded = rows.shape[-1], shape[-1], None
        guard.check_allocation(rows.size // length * k * (rows.itemsize + 8), "TopK")
        arrays = [np.empty(shape, rows.dtype), np.empty(shape, np.int64), rows]
        if self._mode is not GuardedMode.OFF:
            guarded = GuardedArrays([rows], arrays[:2], self._mode)
            arrays = [*guarded.arrays[1:], guarded.arrays[0]]
        step, words = self._steps.take(), [rows.size // length, length, k]
        if is_inserted(length, k):
            _, kernel = self._inserting
        else:
            _, kernel = self._sorting
            each = evaluate(scratch_words(length, k), {})
            guard.check_allocation(each * self._pool.num_threads * 8, "TopK")
            words += [evaluate(held_records(length, k), {}), step.memory(each * self._pool.num_threads)[1], each]
        step.run(kernel, arrays, words, is_alone=rows.size < PARALLEL_WORK)
        self._steps.give(step)
        if guarded is None:
            return arrays[:2]
        guarded.check("TopK")
        return [result.copy() for result in arrays[:2]]  # what is guarded goes with its pages
