"""Products with weights of 4 and 8 bits in blocks, against float64 over the unpacked weights."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import TARGETS, compiled

from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.quantized.integer_convolution import integer_convolution_kernel
from ort_core.cpu.codegen.quantized.integer_convolution_plan import ARGUMENTS
from ort_core.cpu.codegen.quantized.nbits_tile import NBitsProduct, NBitsTile, pack_nbits
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import element
from ort_core.tolerances import compare


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("has_zero_points", [False, True], ids=["symmetric", "zero points"])
@pytest.mark.parametrize(("bits", "block"), [(4, 16), (4, 32), (4, 256), (8, 32), (8, 64)])
@pytest.mark.parametrize(
    ("rows", "columns", "depth"), [(1, 1, 1), (1, 40, 128), (2, 17, 77), (3, 16, 512), (31, 48, 260), (0, 8, 32)]
)
def test_product_equals_float64(
    rows: int, columns: int, depth: int, bits: int, block: int, has_zero_points: bool, target: object, pool: ThreadPool
) -> None:
    machine = target()  # type: ignore[operator]  # a function that gives a target
    random = np.random.default_rng(rows + columns)
    blocks = -(-depth // block)
    integers = random.integers(0, 2**bits, (columns, blocks * block)).astype(np.uint8)
    scales = random.uniform(0.001, 0.1, (columns, blocks)).astype(np.float32)
    zeros = random.integers(0, 2**bits, (columns, blocks)).astype(np.float32) if has_zero_points else None
    x = random.standard_normal((rows, depth)).astype(np.float32)
    spec = NBitsProduct(
        depth, columns, element(0, DataType.FLOAT), bits=bits, block=block, has_zero_points=has_zero_points,
        x_pixel=depth * 4,
    )  # fmt: skip
    memory = product_of(spec, x, integers, scales, zeros, machine, pool)
    middle = 2.0 ** (bits - 1) if zeros is None else np.repeat(zeros, block, axis=1)
    real = (integers - middle) * np.repeat(scales.astype(np.float64), block, axis=1)
    expected = (x.astype(np.float64) @ real[:, :depth].T).astype(np.float32)
    comparison = compare(memory[: rows * columns].reshape(rows, columns), expected, "approximate")
    assert comparison.passes, comparison
    assert (memory[rows * columns :] == 7.0).all(), "wrote past the end"


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize(("bits", "block"), [(4, 32), (8, 32)])
def test_a_row_is_the_same_beside_any_number_of_others(bits: int, block: int, target: object, pool: ThreadPool) -> None:
    machine = target()  # type: ignore[operator]  # a function that gives a target
    random, columns, depth = np.random.default_rng(5), 17, 77
    blocks = -(-depth // block)
    integers = random.integers(0, 2**bits, (columns, blocks * block)).astype(np.uint8)
    scales = random.uniform(0.001, 0.1, (columns, blocks)).astype(np.float32)
    x = random.standard_normal((16, depth)).astype(np.float32)
    spec = NBitsProduct(depth, columns, element(0, DataType.FLOAT), bits=bits, block=block)
    whole = product_of(spec, x, integers, scales, None, machine, pool)[: 16 * columns]
    for rows in (1, 2, 3, 4, 5, 7, 9, 15):
        part = product_of(spec, x[:rows], integers, scales, None, machine, pool)[: rows * columns]
        assert part.tobytes() == whole[: rows * columns].tobytes(), rows


def product_of(
    spec: NBitsProduct, x: np.ndarray, integers: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None,
    machine: Target, pool: ThreadPool,
) -> np.ndarray:  # fmt: skip
    """Return the rows of a product one after another, and behind them 64 numbers that nothing writes."""
    (rows, depth), (columns, blocks) = x.shape, scales.shape
    tiles = spec.tiling_for(machine)
    text = module_text(integer_convolution_kernel("kernel", spec, machine, NBitsTile, tiles))
    module = compiled(text, machine, is_vectorized=True)
    shifts = np.arange(spec.per_word, dtype=np.uint32) * np.uint32(spec.bits)
    words = integers.astype(np.uint32).reshape(columns, blocks, -1, spec.per_word) << shifts
    packed = pack_nbits(spec, np.bitwise_or.reduce(words, axis=-1), scales, zeros, machine)
    memory = np.full(rows * columns + 64, 7.0, np.float32)
    words = [0] * ARGUMENTS.epilogue
    words[:3] = [x.ctypes.data, packed.ctypes.data, memory.ctypes.data]
    words[ARGUMENTS.batch : ARGUMENTS.width + 1] = [1, 1, rows]
    words[ARGUMENTS.x_pixel], words[ARGUMENTS.y_pixel] = depth * 4, columns
    table = np.array(words, np.int64)
    steps = np.array([module.address("kernel"), table.ctypes.data, 1, 0], np.int64)
    pool.run(int(steps.ctypes.data), 1)
    return memory
