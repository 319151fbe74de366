"""Products of two computed matrices of bytes against sums of int64, in code for several targets, on guarded memory."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import BYTE_TARGETS, TARGETS, compiled

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, module_text
from ort_core.cpu.codegen.machine_code.jit import assembly
from ort_core.cpu.codegen.machine_code.llvm_targets import target_of
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.quantized.byte_matrices import (
    ByteMatrices,
    ByteOperand,
    byte_matrices_kernel,
    shift_of,
)
from ort_core.cpu.codegen.quantized.byte_panels import byte_panels_kernel, panel_columns, rows_of_words
from ort_core.cpu.guarded.arrays import GuardedArrays
from ort_core.cpu.guarded.mode import GuardedMode
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.cpu.threads.pool_code import BARRIER, PIECES_AT
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import cast, element, unary

SUM = element(0, DataType.INT32)
SIZES = [(1, 1, 1), (5, 3, 7), (16, 64, 32), (33, 67, 40), (17, 130, 5), (50, 63, 33), (31, 4, 64), (2, 200, 300)]


def call(functions: list[Emitter], words: list[int], target: Target, pool: ThreadPool, pieces: int = 0) -> None:
    """Run the last of the functions with an argument table."""
    module = compiled(module_text(functions), target, is_vectorized=True)
    table = np.array(words, np.int64)
    steps = [module.address(functions[-1].name), table.ctypes.data, BARRIER | pieces << PIECES_AT, 0]
    memory = np.array(steps, np.int64)
    pool.run(int(memory.ctypes.data), 1)


def packed(
    b: np.ndarray, target: Target, pool: ThreadPool, edge: GuardedMode, pieces: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the panels of matrices and the sums of their columns."""
    batch, depth, columns = b.shape
    whole = rows_of_words(target)
    words, width = -(-depth // (4 * whole)) * whole, panel_columns(target)
    panels = np.zeros((batch, -(-columns // width), words, width, 4), np.int8)
    guarded = GuardedArrays([b], [panels, np.zeros((batch, columns), np.int32)], edge)
    table = [guarded.address(1), guarded.address(2), guarded.address(0), depth, columns, words, columns]
    table += [1, 1, 1, batch, 0, 0, 0, depth * columns]
    call(byte_panels_kernel("pack", b.dtype == np.int8, target), table, target, pool, pieces)
    guarded.check("packing")
    return guarded.arrays[1].copy(), guarded.arrays[2].copy()


def product(
    spec: ByteMatrices, a: np.ndarray, panels: np.ndarray, columns: int, operands: list[np.ndarray], target: Target,
    pool: ThreadPool, edge: GuardedMode = GuardedMode.END, pieces: int = 0,
) -> np.ndarray:  # fmt: skip
    """Return the product of matrices with panels; operands are of the result's shape, or of sizes 1."""
    batch, rows, depth = a.shape
    result = np.zeros((batch, rows, columns), spec.expression.dtype.numpy)
    guarded = GuardedArrays([a, panels, *operands], [result], edge)
    table = [guarded.address(0), guarded.address(1), guarded.address(2 + len(operands)), rows, columns, depth]
    table += [panels.shape[2], depth, columns, 1, 1, 1, batch]
    for step in (rows * depth, panels[0].size, rows * columns):
        table += [0, 0, 0, step]
    for number, operand in enumerate(operands, 2):
        steps = [0 if size == 1 else stride // operand.itemsize for size, stride in zip(operand.shape, operand.strides)]
        table += [guarded.address(number), steps[1], 0, 0, 0, steps[0]]
    call(byte_matrices_kernel("product", spec, target), table, target, pool, pieces)
    guarded.check("a product of bytes")
    return guarded.arrays[-1].copy()


def drawn(kind: type, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Return bytes half of which are the ends of their type."""
    span = np.iinfo(kind)
    ends = random.choice([span.min, span.max], shape)
    return np.where(random.random(shape) < 0.5, ends, random.integers(span.min, span.max + 1, shape)).astype(kind)


@pytest.mark.parametrize("target", BYTE_TARGETS.values(), ids=BYTE_TARGETS)
@pytest.mark.parametrize("kinds", [(np.uint8, np.int8), (np.int8, np.uint8)], ids=["u8 s8", "s8 u8"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sums_are_exact(
    sizes: tuple[int, int, int], kinds: tuple[type, type], target: object, pool: ThreadPool
) -> None:
    machine = target()  # type: ignore[operator]  # a function that gives a target
    (rows, depth, columns), random = sizes, np.random.default_rng(3)
    is_signed = kinds[0] is np.int8
    for edge in (GuardedMode.END, GuardedMode.BEGIN):
        a, b = drawn(kinds[0], (2, rows, depth), random), drawn(kinds[1], (2, depth, columns), random)
        panels, sums = packed(b, machine, pool, edge)
        signed = b.astype(np.int64) - (128 if kinds[1] is np.uint8 else 0)
        np.testing.assert_array_equal(sums, signed.sum(axis=1))
        found = product(ByteMatrices(SUM, (), is_signed), a, panels, columns, [], machine, pool, edge)
        np.testing.assert_array_equal(found, (a.astype(np.int64) + shift_of(is_signed, machine)) @ signed)


@pytest.mark.parametrize("threads", [1, 3, 4])
def test_threads_share_units_in_any_number_of_pieces(threads: int) -> None:
    target, random = TARGETS["host"](), np.random.default_rng(5)
    a, b = drawn(np.uint8, (3, 70, 131), random), drawn(np.int8, (3, 131, 197), random)
    pool = ThreadPool(threads)
    try:
        for pieces in (0, 1, 5):
            panels, _ = packed(b, target, pool, GuardedMode.END, pieces)
            found = product(ByteMatrices(SUM, (), False), a, panels, 197, [], target, pool, pieces=pieces)
            np.testing.assert_array_equal(found, a.astype(np.int64) @ b.astype(np.int64))
    finally:
        pool.close()


@pytest.mark.parametrize("target", BYTE_TARGETS.values(), ids=BYTE_TARGETS)
@pytest.mark.parametrize("stored", [DataType.UINT8, DataType.INT8, DataType.INT32, DataType.FLOAT], ids=str)
def test_expressions_read_every_kind_of_operand(stored: DataType, target: object, pool: ThreadPool) -> None:
    machine, random = target(), np.random.default_rng(9)  # type: ignore[operator]  # a function that gives a target
    (rows, depth, columns), batch = (21, 70, 37), 2
    a, b = drawn(np.uint8, (batch, rows, depth), random), drawn(np.int8, (batch, depth, columns), random)
    panels, _ = packed(b, machine, pool, GuardedMode.END)
    own = random.integers(-9999, 9999, (batch, 1, columns)).astype(np.int32)
    of_row = random.integers(-50, 50, (batch, rows, 1)).astype(np.int32)
    scale, other = np.full((1, 1, 1), 2.0**-10, np.float32), random.integers(0, 256, (batch, rows, columns))
    operands = [own, of_row, scale, other.astype(np.uint8)]
    kinds = [
        ByteOperand("column", DataType.INT32), ByteOperand("row", DataType.INT32), ByteOperand("one", DataType.FLOAT),
        ByteOperand("tensor", DataType.UINT8),
    ]  # fmt: skip
    read = [element(index + 1, kind.dtype) for index, kind in enumerate(kinds)]
    value = cast(SUM + read[0] - read[1], DataType.FLOAT) * read[2] + cast(read[3], DataType.FLOAT)
    spec = ByteMatrices(cast(unary("rint", value), stored), tuple(kinds), is_signed=False)
    found = product(spec, a, panels, columns, operands, machine, pool)
    real = np.rint((a.astype(np.int64) @ b.astype(np.int64) + own - of_row) * 2.0**-10 + other)  # exact in float32
    if stored is not DataType.FLOAT:
        limits = np.iinfo(stored.numpy)
        real = np.clip(real, limits.min, limits.max)
    np.testing.assert_array_equal(found, real.astype(stored.numpy))


def test_nothing_to_add_up_gives_zeros(pool: ThreadPool) -> None:
    target = TARGETS["host"]()
    panels, sums = packed(np.zeros((1, 0, 3), np.int8), target, pool, GuardedMode.END)
    assert not sums.any()
    found = product(ByteMatrices(SUM, (), False), np.zeros((1, 2, 0), np.uint8), panels, 3, [], target, pool)
    np.testing.assert_array_equal(found, np.zeros((1, 2, 3)))


@pytest.mark.parametrize(
    ("target", "instruction"),
    [
        (target_of("x86_64-unknown-linux-gnu", "znver4", "+avx512f,+avx512bw,+avx512vl,+avx512vnni"), "vpdpbusd"),
        (target_of("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma"), "vpmaddwd"),
        (target_of("aarch64-unknown-linux-gnu", "generic", "+neon"), "mla"),
    ],
    ids=["AVX512-VNNI", "AVX2", "NEON"],
)
def test_products_use_the_instruction_of_the_target(target: Target, instruction: str) -> None:
    text = assembly(module_text(byte_matrices_kernel("kernel", ByteMatrices(SUM, (), False), target)), target,
                    is_vectorized=True)  # fmt: skip
    assert instruction in text


def test_products_run_in_registers_of_tiles_where_they_may() -> None:
    """A step of 32 rows and columns is four products and four loads; tiles are configured once for a kernel."""
    features = "+amx-int8,+amx-tile,+avx512bw,+avx512dq,+avx512f,+avx512vl,+avx512vnni"
    target = target_of("x86_64-unknown-linux-gnu", "sapphirerapids", features)
    for is_signed, instruction in ((False, "tdpbusd"), (True, "tdpbssd")):
        kernel = byte_matrices_kernel("kernel", ByteMatrices(SUM, (), is_signed), target)
        text = assembly(module_text(kernel), target, is_vectorized=True)
        assert text.count("\tldtilecfg") == text.count("\ttilerelease") == 1
        assert f"\t{instruction}" in text
        assert "vpdpbusd" not in text
