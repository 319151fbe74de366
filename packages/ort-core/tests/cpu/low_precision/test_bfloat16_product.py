"""Products with bfloat16 weights against float64 over the rounded operands: tails, blocks, threads, instructions."""

from __future__ import annotations

import ctypes
import functools

import ml_dtypes
import numpy as np
import pytest
from kernel_calls import compiled
from plain_products import Bias, bfloat16_text

from ort_core.cpu.codegen.llvm_ir.matrix_tiles import ROWS
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.jit import assembly
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target, restricted_target, target_of
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.bfloat16_product import (
    has_pair_products,
    least_piece_sums,
    pack_pairs,
    pair_table,
    pair_tiles_text,
    pairs_shape,
    rounds_both,
    split_table,
    split_tiles_text,
    tiled_scratch,
    tiled_table,
    tiled_text,
)
from ort_core.cpu.codegen.products.bfloat16_tiles import BLOCKING, SHAPE, has_tile_products
from ort_core.cpu.codegen.products.matrix_product import ARGUMENTS, BATCH_DIMS, scratch_nbytes
from ort_core.cpu.codegen.products.microkernel import tile_shape
from ort_core.cpu.codegen.products.packing import aligned_empty
from ort_core.cpu.lowering.products.product_panels import Panels, least_piece_flops
from ort_core.cpu.threads.pool import ThreadPool

TARGETS = {
    "host": host_target,
    "of no name": functools.partial(restricted_target, "amx"),  # with dot products wherever the host can run them
    "without dot products": functools.partial(restricted_target, "avx512bf16"),
    "without AVX-512": functools.partial(restricted_target, "avx512", "amx"),
}
GUARD = np.float32(-12345.5)


@functools.cache
def modules(name: str) -> tuple[CompiledModule, CompiledModule, np.ndarray]:
    """Return the product with a bias, its tiles, and the table of them."""
    target = TARGETS[name]()
    product = compiled(bfloat16_text("product", target, epilogue=Bias(ARGUMENTS.count)), target, is_vectorized=True)
    if has_tile_products(target):
        tiles = compiled(tiled_text(target), target, is_vectorized=True)
        return product, tiles, tiled_table(tiles)
    if has_pair_products(target):
        tiles = compiled(pair_tiles_text(target), target, is_vectorized=True)
        return product, tiles, pair_table(tiles, target)
    tiles = compiled(split_tiles_text(target), target, is_vectorized=True)
    return product, tiles, split_table(tiles, target)


def rounded(array: np.ndarray) -> np.ndarray:
    return array.astype(ml_dtypes.bfloat16).astype(np.float64)


def run(
    name: str, pool: ThreadPool, a: np.ndarray, b: np.ndarray, bias: np.ndarray, c: np.ndarray, pieces: int = 0
) -> None:
    """Run a product on a pool, or in so many pieces, the last one first."""
    target: Target = TARGETS[name]()
    product, _, table = modules(name)
    width = tile_shape(target).columns
    packed = aligned_empty(pairs_shape(b.shape, width, ROWS if has_tile_products(target) else 1))
    pack_pairs(b, width, packed)
    each = scratch_nbytes(target)
    scratch = aligned_empty((pool.num_threads, each // 4))
    scratch[:] = np.nan  # what is read before it is written shows
    words = np.zeros(ARGUMENTS.count + 1, np.int64)
    words[ARGUMENTS.a : ARGUMENTS.a + 3] = a.ctypes.data, packed.ctypes.data, c.ctypes.data
    words[ARGUMENTS.m : ARGUMENTS.m + 3] = a.shape[0], b.shape[1], a.shape[1]
    words[[ARGUMENTS.a_row, ARGUMENTS.a_k, ARGUMENTS.c_row]] = a.strides[0] // 4, 1, c.strides[0] // 4
    words[[ARGUMENTS.scratch, ARGUMENTS.scratch_stride]] = scratch.ctypes.data, each
    words[ARGUMENTS.tiles], words[ARGUMENTS.count] = table.ctypes.data, bias.ctypes.data
    words[ARGUMENTS.batch : ARGUMENTS.batch + BATCH_DIMS] = 1
    if pieces:
        kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)(product.address("product"))
        for piece in reversed(range(pieces)):
            kernel(words.ctypes.data, piece, pieces, 0)
        return
    steps = np.array([product.address("product"), words.ctypes.data, 1, 0], np.int64)
    pool.run(int(steps.ctypes.data), 1)


def check(name: str, pool: ThreadPool, m: int, n: int, k: int) -> None:
    random = np.random.default_rng(m + n + k)
    a, b = (random.standard_normal(shape, np.float32) for shape in ((m, k + 3), (k, n)))
    a = a[:, :k]
    bias = random.standard_normal(n, np.float32)
    memory = np.full((m + 2, n + 40), GUARD, np.float32)
    c = memory[1 : m + 1, 19 : 19 + n]
    run(name, pool, a, b, bias, c)
    left = rounded(a) if rounds_both(TARGETS[name]()) else a.astype(np.float64)
    right = rounded(b)
    bound = (np.abs(left) @ np.abs(right) + np.abs(bias)) * (k + 4) * 2.0**-24
    distance = np.abs(c - (left @ right + bias))
    assert (distance <= bound).all(), f"off by {distance.max()} for {m} x {k} @ {k} x {n}"
    memory[1 : m + 1, 19 : 19 + n] = GUARD
    assert (memory == GUARD).all(), f"wrote outside C for {m} x {k} @ {k} x {n}"


@pytest.mark.parametrize("name", TARGETS)
def test_product_agrees_with_float64_of_the_rounded_operands_for_all_kinds_of_tails(
    name: str, pools: list[ThreadPool]
) -> None:
    random = np.random.default_rng(1)
    for m in range(1, 40):
        n, k = (int(each) for each in random.integers(1, 80, 2))
        check(name, pools[m % 3], m, n, k)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 512, 2001),
        (300, 100, 1700),
        (1500, 33, 65),
        (30, 770, 3),
        (5, 64, 1537),
        (450, 70, 1),
        (700, 40, 800),
        (330, 70, 4000),
    ],
    ids=str,
)
def test_product_agrees_with_float64_over_several_blocks(
    name: str, sizes: tuple[int, int, int], pools: list[ThreadPool]
) -> None:
    for pool in pools[:2]:
        check(name, pool, *sizes)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    "sizes", [(513, 70, 40), (513, 2100, 40), (100, 64, 33), (31, 33, 70), (197, 700, 90), (60, 1000, 35)], ids=str
)
def test_any_pieces_of_a_product_give_the_same_numbers(
    name: str, sizes: tuple[int, int, int], pools: list[ThreadPool]
) -> None:
    (m, n, k), random = sizes, np.random.default_rng(sum(sizes))
    a, b = (random.standard_normal(shape, np.float32) for shape in ((m, k), (k, n)))
    bias, whole = random.standard_normal(n, np.float32), np.empty((m, n), np.float32)
    run(name, pools[0], a, b, bias, whole)
    for pieces in (1, 2, 3, 7, 16, 40):
        c = np.full((m, n), GUARD, np.float32)
        run(name, pools[0], a, b, bias, c, pieces)
        np.testing.assert_array_equal(c, whole, err_msg=f"{pieces} pieces")


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("shape", [(1, 1), (7, 33), (64, 96), (5, 20), (301, 1300)], ids=str)
def test_packed_pairs_hold_the_nearest_bfloat16_and_zeros_elsewhere(shape: tuple[int, int], dtype: type) -> None:
    matrix = np.random.default_rng(2).standard_normal(shape).astype(dtype)
    for given in (matrix, np.ascontiguousarray(matrix.T).T):
        out = aligned_empty(pairs_shape(shape, 32))
        out[:] = np.nan
        pack_pairs(given, 32, out)
        pairs = out.view(ml_dtypes.bfloat16).reshape(*out.shape, 2)  # [panels, k / 2, column, odd]
        found = pairs.transpose(1, 3, 0, 2).reshape(-1, out.shape[0] * 32).astype(np.float32)
        expected = np.zeros(found.shape, np.float32)
        expected[: shape[0], : shape[1]] = matrix.astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(found, expected)


def test_dot_products_are_one_instruction_and_other_processors_need_none() -> None:
    x86 = target_of("x86_64-unknown-linux-gnu", "x86-64-v4", "+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512bf16,+fma")
    assert "vdpbf16ps" in assembly(pair_tiles_text(x86), x86, is_vectorized=True)
    arm = target_of("aarch64-unknown-linux-gnu", "generic", "+neon")
    assert not has_pair_products(arm)
    assert "product:" in assembly(bfloat16_text("product", arm), arm, is_vectorized=True)


def test_cores_whose_dot_products_are_slower_than_two_multiply_adds_take_words_apart() -> None:
    features = "+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512bf16,+fma"
    slow, fast = (target_of("x86_64-unknown-linux-gnu", name, features) for name in ("sapphirerapids", "znver5"))
    assert has_pair_products(fast)
    assert not has_pair_products(slow)
    assert "vdpbf16ps" not in assembly(split_tiles_text(slow), slow, is_vectorized=True)


def test_scratch_of_products_holds_what_tiles_need() -> None:
    target = target_of("x86_64-unknown-linux-gnu", "sapphirerapids", "+avx512f,+avx512bf16,+amx-tile,+amx-bf16")
    assert has_tile_products(target)
    assert tiled_scratch(SHAPE, BLOCKING).count * 4 <= scratch_nbytes(target)


def test_pieces_are_long_where_they_round_and_of_any_length_elsewhere() -> None:
    features = "+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512bf16,+fma"
    tiles = target_of("x86_64-unknown-linux-gnu", "sapphirerapids", f"{features},+amx-tile,+amx-bf16")
    pairs = target_of("x86_64-unknown-linux-gnu", "znver5", features)
    apart = target_of("x86_64-unknown-linux-gnu", "sapphirerapids", features)
    assert least_piece_sums(tiles) > least_piece_sums(pairs) > least_piece_sums(apart) == 0
    panels = Panels(np.zeros((2, 48, 32), np.float32), is_bfloat16=True)
    assert least_piece_flops(tiles, panels) == 2 * 96 * least_piece_sums(tiles)
    assert least_piece_flops(tiles, Panels(panels.words)) == least_piece_flops(tiles, None) == 0
