"""Calls of generated kernels on numpy arrays."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from ort_core.cpu.codegen.llvm_ir.deferred_kernel import DeferredKernel
from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.jit import compile_module
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target, restricted_target
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import (
    BROADCAST,
    DENSE,
    STRIDED,
    ElementwiseNest,
    NestInput,
    elementwise_kernel,
)
from ort_core.cpu.codegen.nests.row_nests import RowNest, row_kernel
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar

TARGETS = {"host": host_target, "AVX2": functools.partial(restricted_target, "avx512", "amx")}
BYTE_TARGETS = {
    **TARGETS,
    "without registers of tiles": functools.partial(restricted_target, "amx"),
    "without byte products": functools.partial(restricted_target, "avx512vnni", "avxvnni", "amx"),
    "SSE": functools.partial(restricted_target, "avx", "fma", "f16c"),
}
"""Targets whose code multiplies bytes by different instructions."""
GUARD = 99
_DTYPES = {
    np.dtype(np.float32): DataType.FLOAT, np.dtype(np.int64): DataType.INT64, np.dtype(np.int32): DataType.INT32,
    np.dtype(np.bool_): DataType.BOOL,
}  # fmt: skip


def elementwise(
    expression: Scalar, shape: Sequence[int], arrays: Sequence[np.ndarray], pool: ThreadPool, target: Target
) -> np.ndarray:
    """Compute an expression over arrays that broadcast to a shape; checks that nothing is written past the result."""
    rank = max(1, len(shape))
    wide = [np.broadcast_to(a, shape) if shape else a.reshape(1) for a in arrays]
    sizes = list(shape) or [1]
    inner = [_inner(a) for a in wide]
    nest_inputs = tuple(NestInput(_DTYPES[a.dtype], i) for a, i in zip(wide, inner, strict=True))
    nest = ElementwiseNest(rank, nest_inputs, ((expression, expression.dtype),))
    kernel = elementwise_kernel(nest, target)
    dtype = next(d for d, known in _DTYPES.items() if known is expression.dtype)
    memory = np.full(int(np.prod(sizes)) + 64, GUARD, dtype)
    out = memory[: int(np.prod(sizes))].reshape(sizes)
    words = [out.ctypes.data, *(a.ctypes.data for a in wide), *sizes, *_strides(out)[:-1]]
    for array in wide:
        words.extend(_strides(array))
    call(kernel, words, pool, target)
    assert (memory[out.size :] == np.full(64, GUARD, dtype)).all(), "wrote past the end"
    return out.reshape(tuple(shape))


def rows(
    nest: RowNest, outputs: Sequence[np.ndarray], inputs: Sequence[np.ndarray], shape: Sequence[int], pool: ThreadPool,
    target: Target,
) -> None:  # fmt: skip
    """Run a row nest; scalar outputs come behind the others, inputs broadcast to the shape."""
    kernel = row_kernel(nest, target)
    wide = [np.broadcast_to(a, shape) for a in inputs]
    words = [*(a.ctypes.data for a in outputs), *(a.ctypes.data for a in wide), *shape]
    for array in (*outputs[: len(nest.outputs)], *wide):
        words.extend(_strides(array)[:-1])
    call(kernel, words, pool, target)


def call(kernel: DeferredKernel, words: Sequence[int], pool: ThreadPool, target: Target) -> None:
    """Compile and call a kernel with an argument table."""
    module = compiled(module_text(kernel.generate(kernel.name)), target, is_vectorized=kernel.is_vectorized)
    table = np.array(words, np.int64)
    steps = np.array([module.address(kernel.name), table.ctypes.data, 1, 0], np.int64)
    pool.run(int(steps.ctypes.data), 1)


@functools.cache
def compiled(text: str, target: Target, *, is_vectorized: bool) -> CompiledModule:
    """Compile a module once for all tests of it, by the passes of LLVM that programs put it through."""
    return compile_module(text, target, is_vectorized=is_vectorized)


def _inner(array: np.ndarray) -> int:
    step = array.strides[-1] // array.itemsize
    return BROADCAST if step == 0 else DENSE if step == 1 else STRIDED


def _strides(array: np.ndarray) -> list[int]:
    return [stride // array.itemsize for stride in array.strides]
