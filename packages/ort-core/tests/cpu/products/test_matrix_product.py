"""Matrix products of the CPU engine against wider numpy: every tail, strides, batches, threads, epilogues, bounds."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from plain_products import Bias, Chain, Rectifier, Residual, Scale, product_text

from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.jit import compile_module
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target, restricted_target
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.epilogue import Epilogue
from ort_core.cpu.codegen.products.matrix_product import ARGUMENTS, BATCH_DIMS, Blocking, scratch_nbytes
from ort_core.cpu.codegen.products.microkernel import tile_shape, tile_table, tiles_text
from ort_core.cpu.codegen.products.packing import aligned_empty, pack_panels
from ort_core.cpu.codegen.products.partial_sums import CHAIN
from ort_core.cpu.threads.pool import ThreadPool

Matrix = np.ndarray  # of float32 or float64
SMALL = Blocking(depth=24, tiles=2)  # so that few rows make several blocks
GUARD = -12345.5
TARGETS = {"host": host_target, "without AVX-512": functools.partial(restricted_target, "avx512", "amx")}
WORDS = {"float": np.float32, "double": np.float64}
CLOSE = {"float": 1e-4, "double": 1e-13}
WIDER = {np.float32: np.float64, np.float64: np.longdouble}


@functools.cache
def library(target: Target, word: str) -> tuple[CompiledModule, npt.NDArray[np.int64]]:
    module = compile_module(tiles_text(target, word), target, is_vectorized=True)
    return module, tile_table(module, target)


@dataclass
class Product:
    """A compiled product and how to call it on numpy arrays."""

    target: Target
    packed: bool
    blocking: Blocking | None
    word: str
    module: CompiledModule

    @classmethod
    def build(
        cls, target: Target, word: str, packed: bool, epilogue: Epilogue | None = None, blocking: Blocking | None = None
    ) -> Product:
        text = product_text("product", target, packed=packed, epilogue=epilogue, blocking=blocking, word=word)
        return cls(target, packed, blocking, word, compile_module(text, target, is_vectorized=True))

    def __call__(self, pool: ThreadPool, a: Matrix, b: Matrix, c: Matrix, extra: Sequence[int] = ()) -> None:
        assert a.dtype == b.dtype == c.dtype == WORDS[self.word]
        columns = tile_shape(self.target, self.word).columns
        packed = pack_panels(np.ascontiguousarray(b), columns) if self.packed else b
        each = scratch_nbytes(self.target, self.blocking, self.word)
        scratch = aligned_empty((pool.num_threads, each // a.itemsize), a.dtype)
        scratch[:] = np.nan  # what is read before it is written shows
        args = np.zeros(ARGUMENTS.count + len(extra), np.int64)
        args[ARGUMENTS.a : ARGUMENTS.a + 3] = a.ctypes.data, packed.ctypes.data, c.ctypes.data
        args[ARGUMENTS.m : ARGUMENTS.m + 3] = c.shape[-2], c.shape[-1], a.shape[-1]
        args[[ARGUMENTS.a_row, ARGUMENTS.a_k]] = strides(a)[-2:]
        args[[ARGUMENTS.b_k, ARGUMENTS.b_n]] = strides(b)[-2:]
        args[ARGUMENTS.c_row] = strides(c)[-2]
        args[[ARGUMENTS.scratch, ARGUMENTS.scratch_stride]] = scratch.ctypes.data, each
        args[ARGUMENTS.tiles] = library(self.target, self.word)[1].ctypes.data
        batch = c.shape[:-2]
        args[ARGUMENTS.batch : ARGUMENTS.batch + BATCH_DIMS] = (1,) * (BATCH_DIMS - len(batch)) + batch
        operands = (
            (ARGUMENTS.a_batch, a, 2),
            (ARGUMENTS.b_batch, packed, 3 if self.packed else 2),
            (ARGUMENTS.c_batch, c, 2),
        )
        for start, array, tail in operands:
            args[start : start + BATCH_DIMS] = batch_strides(array, tail)
        args[ARGUMENTS.count :] = extra
        steps = np.array([self.module.address("product"), args.ctypes.data, 1, 0], np.int64)
        pool.run(int(steps.ctypes.data), 1)


def strides(array: Matrix) -> list[int]:
    return [stride // array.itemsize for stride in array.strides]


def batch_strides(array: Matrix, tail: int) -> list[int]:
    dims = array.ndim - tail
    own = [0 if size == 1 else stride for size, stride in zip(array.shape[:dims], strides(array)[:dims], strict=True)]
    return [0] * (BATCH_DIMS - dims) + own


@functools.cache
def product(
    target: str, word: str, packed: bool, epilogue: Epilogue | None = None, blocking: Blocking | None = None
) -> Product:
    return Product.build(TARGETS[target](), word, packed, epilogue, blocking)


def random(word: str, seed: int, *shape: int) -> Matrix:
    return np.random.default_rng(seed).standard_normal(shape, WORDS[word])


def guarded(word: str, *shape: int) -> tuple[Matrix, Matrix]:
    """Return a C with other memory around it and between its rows, and all of that memory."""
    *batch, rows, columns = shape
    memory = np.full((*batch, rows + 2, columns + 40), GUARD, WORDS[word])
    return memory[..., 1 : rows + 1, 19 : 19 + columns], memory


def widened(array: Matrix) -> Matrix:
    return array.astype(WIDER[array.dtype.type])


def check(c: Matrix, memory: Matrix, a: Matrix, b: Matrix, expected: Matrix | None = None) -> None:
    wide_a, wide_b = widened(a), widened(b)
    expected = wide_a @ wide_b if expected is None else expected
    bound = (np.abs(wide_a) @ np.abs(wide_b) + np.abs(expected)) * (a.shape[-1] + 4) * np.finfo(a.dtype).epsneg
    assert (np.abs(c - expected) <= bound).all(), f"off by {np.abs(c - expected).max()} for {a.shape} @ {b.shape}"
    kept = memory.copy()
    rows, columns = c.shape[-2:]
    kept[..., 1 : rows + 1, 19 : 19 + columns] = GUARD
    assert (kept == GUARD).all(), f"wrote outside C for {a.shape} @ {b.shape}"


SIZES = [1, 2, 3, 4, 5, 7, 8, 13, 14, 15, 16, 17, 27, 28, 29, 31, 32, 33, 47, 48, 63, 64, 65, 70]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "strided"])
def test_product_agrees_with_wider_sums_for_all_kinds_of_tails(
    target: str, word: str, packed: bool, pools: list[ThreadPool]
) -> None:
    generator = np.random.default_rng(1)
    for m in range(1, 71):
        for n in generator.choice(SIZES, 5):
            k = int(generator.choice(SIZES))
            a, b = random(word, m, m, k), random(word, int(n), k, int(n))
            c, memory = guarded(word, m, int(n))
            product(target, word, packed, None, SMALL)(pools[m % 3], a, b, c)
            check(c, memory, a, b)


@pytest.mark.sweep(parts=2)  # any three of the four meet
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "strided"])
@pytest.mark.parametrize(
    "sizes",
    [(1, 3072, 768), (8, 770, 1000), (128, 256, 1024), (300, 100, 800), (1500, 33, 65), (257, 1, 400), (450, 515, 1)],
    ids=str,
)
def test_product_agrees_with_wider_sums_for_large_sizes(
    target: str, word: str, packed: bool, sizes: tuple[int, int, int], pools: list[ThreadPool]
) -> None:
    m, n, k = sizes
    a, b = random(word, m, m, k), random(word, n, k, n)
    for pool in pools[:2]:
        c, memory = guarded(word, m, n)
        product(target, word, packed)(pool, a, b, c)
        check(c, memory, a, b)


def exact_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a product of float64 matrices whose sums are rounded once: longdouble is no wider on Windows."""
    (a_high, a_low), (b_high, b_low) = halves(a), halves(b)
    out = np.empty((a.shape[0], b.shape[1]))
    for column in range(b.shape[1]):
        high, low = b_high[:, column], b_low[:, column]
        rounded = a * b[:, column]
        rests = ((a_high * high - rounded) + a_high * low + a_low * high) + a_low * low
        out[:, column] = [math.fsum(row) for row in np.concatenate([rounded, rests], axis=1)]
    return out


def halves(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split float64 numbers in two of 26 bits each, whose products are exact."""
    scaled = array * (2.0**27 + 1)
    high = scaled - (scaled - array)
    return high, array - high


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "strided"])
@pytest.mark.parametrize("m", [1, 3, 20])
def test_errors_of_a_product_stay_those_of_one_chain_of_sums(
    target: str, word: str, packed: bool, m: int, pools: list[ThreadPool]
) -> None:
    """Of random numbers a chain of n sums is wrong by about 0.15 eps sqrt(n): 2.9 eps of ``CHAIN``, 12 of 6,002."""
    a, b = random(word, m, m, 6002), random(word, 70, 6002, 70)
    c, _ = guarded(word, m, 70)
    product(target, word, packed)(pools[0], a, b, c)
    is_exact = np.finfo(np.longdouble).eps < np.finfo(a.dtype).eps
    expected = widened(a) @ widened(b) if is_exact else exact_product(a, b)
    error = np.sqrt(np.mean((c - expected) ** 2) / np.mean(expected**2))
    assert error < 0.2 * np.finfo(a.dtype).eps * CHAIN**0.5


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "strided"])
@pytest.mark.parametrize("sizes", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0), (20, 40, 0)], ids=str)
def test_product_of_empty_operands_is_empty_or_zero(
    word: str, packed: bool, sizes: tuple[int, int, int], pools: list[ThreadPool]
) -> None:
    m, n, k = sizes
    c, memory = guarded(word, m, n)
    a, b = random(word, 1, m, k), random(word, 2, k, n)
    product("host", word, packed)(pools[1], a, b, c)
    check(c, memory, np.zeros_like(a), np.zeros_like(b))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("transposed", ["a", "b", "both"])
@pytest.mark.parametrize("sizes", [(40, 70, 35), (1, 5, 3), (33, 32, 64), (17, 100, 50)], ids=str)
def test_product_reads_transposed_and_strided_operands_in_place(
    target: str, word: str, transposed: str, sizes: tuple[int, int, int], pools: list[ThreadPool]
) -> None:
    m, n, k = sizes
    a = random(word, 1, k, 2 * m)[:, :m].T if transposed in ("a", "both") else random(word, 1, m, k)
    b = random(word, 2, n, k + 3)[:, 3:].T if transposed in ("b", "both") else random(word, 2, k, n)
    for kind in (True, False):
        c, memory = guarded(word, m, n)
        product(target, word, kind, None, SMALL)(pools[1], a, b, c)
        check(c, memory, a, b)
    every_other = random(word, 3, 2 * m, 3 * k)[::2, ::3], random(word, 4, k, 2 * n)[:, ::2]
    c, memory = guarded(word, m, n)
    product(target, word, False, None, SMALL)(pools[1], *every_other, c)
    check(c, memory, *every_other)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "strided"])
@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [((12, 20, 8), (12, 8, 20)), ((2, 3, 5, 40), (3, 40, 33)), ((2, 1, 3, 15, 6), (4, 1, 6, 37)), ((7, 1, 9), (9, 50))],
    ids=str,
)
def test_product_broadcasts_batches_as_matmul_does(
    word: str, packed: bool, a_shape: tuple[int, ...], b_shape: tuple[int, ...], pools: list[ThreadPool]
) -> None:
    a, b = random(word, 1, *a_shape), random(word, 2, *b_shape)
    for pool in pools:
        c, memory = guarded(word, *(a @ b).shape)
        product("host", word, packed)(pool, a, b, c)
        check(c, memory, a, b)


@pytest.mark.parametrize("word", WORDS)
def test_product_reads_heads_of_attention_through_strides(word: str, pools: list[ThreadPool]) -> None:
    query, key = random(word, 1, 2, 50, 4, 16), random(word, 2, 2, 50, 4, 16)  # [batch, token, head, channel]
    a, b = query.transpose(0, 2, 1, 3), key.transpose(0, 2, 3, 1)
    c, memory = guarded(word, 2, 4, 50, 50)
    product("host", word, False)(pools[1], a, b, c)
    check(c, memory, a, b)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "strided"])
def test_product_spreads_nan_and_infinity_as_numpy_does(word: str, packed: bool, pools: list[ThreadPool]) -> None:
    a, b = random(word, 1, 30, 40), random(word, 2, 40, 45)
    a[3, 7], a[20, 1], b[5, 44], b[8, 2] = np.nan, np.inf, -np.inf, np.nan
    c, _ = guarded(word, 30, 45)
    product("host", word, packed)(pools[1], a, b, c)
    with np.errstate(invalid="ignore"):
        expected = widened(a) @ widened(b)
    kind = np.isnan(expected) * 2 + np.isposinf(expected) * 3 + np.isneginf(expected) * 4
    np.testing.assert_array_equal(np.isnan(c) * 2 + np.isposinf(c) * 3 + np.isneginf(c) * 4, kind)
    finite = np.isfinite(expected)
    np.testing.assert_allclose(c[finite], expected[finite], atol=CLOSE[word])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "strided"])
def test_epilogue_adds_bias_and_residual_scales_and_rectifies(
    target: str, word: str, packed: bool, pools: list[ThreadPool]
) -> None:
    count = ARGUMENTS.count
    epilogue = Chain((Scale(count), Bias(count + 1), Residual(count + 2), Rectifier()))
    built = Product.build(TARGETS[target](), word, packed, epilogue, SMALL)
    for m, n, k in [(1, 1, 1), (3, 70, 30), (40, 33, 100), (15, 64, 24), (29, 20, 0)]:
        a, b, bias = random(word, 1, 2, m, k), random(word, 2, k, n), random(word, 3, n)
        residual = random(word, 4, 2, m, n + 3)
        alpha = WORDS[word](0.37)
        c, memory = guarded(word, 2, m, n)
        bits = int(alpha.view(f"i{alpha.itemsize}"))
        extra = [bits, bias.ctypes.data, residual.ctypes.data, n + 3, 0, 0, 0, m * (n + 3)]
        built(pools[1], a, b, c, extra)
        summed = widened(alpha) * (widened(a) @ b) + bias + residual[..., :n]
        np.testing.assert_allclose(c, np.maximum(summed, 0), atol=CLOSE[word])
        check(c, memory, a, b, widened(c))


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "strided"])
def test_product_does_not_depend_on_the_number_of_threads(word: str, packed: bool, pools: list[ThreadPool]) -> None:
    a, b = random(word, 1, 3, 150, 500), random(word, 2, 500, 100)
    results = []
    for pool in pools:
        c, _ = guarded(word, 3, 150, 100)
        product("host", word, packed)(pool, a, b, c)
        results.append(c.tobytes())
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "strided"])
def test_product_of_whole_numbers_is_exact(target: str, word: str, packed: bool, pools: list[ThreadPool]) -> None:
    generator, most = np.random.default_rng(1), {"float": 30, "double": 1_000_000}[word]
    for m, n, k in [(1, 1, 1), (29, 17, 1000), (40, 70, 401)]:
        a, b = (generator.integers(-most, most, shape) for shape in ((m, k), (k, n)))
        c, memory = guarded(word, m, n)
        product(target, word, packed)(pools[2], a.astype(WORDS[word]), b.astype(WORDS[word]), c)
        np.testing.assert_array_equal(c, (a @ b).astype(WORDS[word]))
        check(c, memory, a.astype(WORDS[word]), b.astype(WORDS[word]), widened(c))
