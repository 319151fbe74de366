"""The attention kernel against float64: head counts, odd lengths, masks, windows, caps, strides, both vector widths."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import pytest
from kernel_calls import TARGETS

from ort_core.cpu.codegen.attention.attention import ARGUMENTS, AttentionFacts, attention_text, scratch_count
from ort_core.cpu.codegen.attention.attention_pairs import (
    attention_pair_table,
    pair_attention_text,
    pair_scratch_count,
)
from ort_core.cpu.codegen.attention.attention_rows import ScoreMask
from ort_core.cpu.codegen.attention.attention_tiles import (
    attention_tile_table,
    attention_tiles_text,
    tile_attention_text,
    tile_scratch_count,
)
from ort_core.cpu.codegen.attention.few_queries import FEW_QUERIES
from ort_core.cpu.codegen.attention.stored_rows import Scales
from ort_core.cpu.codegen.llvm_ir.scalar_printer import converts_halves
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.jit import compile_module
from ort_core.cpu.codegen.machine_code.llvm_targets import restricted_target
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.bfloat16_product import pair_tiles_text
from ort_core.cpu.codegen.products.bfloat16_tiles import has_tile_products
from ort_core.cpu.codegen.products.microkernel import tile_table, tiles_text
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.plugin.ir import DataType
from ort_core.tolerances import compare

GUARD = np.float32(-12345.5)


@dataclass(frozen=True)
class Sizes:
    """The sizes of a case."""

    batch: int = 1
    key_heads: int = 1
    group: int = 1
    queries: int = 1
    keys: int = 1
    depth: int = 8
    width: int = 8
    offset: int = 0


SIZES = [
    Sizes(),
    Sizes(2, 3, 1, 7, 7, 16, 16),
    Sizes(1, 2, 2, 15, 33, 20, 40, 18),
    Sizes(1, 1, 1, 29, 300, 64, 64, 271),
    Sizes(2, 2, 4, 1, 523, 64, 64, 522),
    Sizes(1, 12, 1, 1, 33, 64, 64, 32),
    Sizes(3, 1, 2, 2, 257, 5, 3, 255),
    Sizes(2, 1, 8, 1, 16, 64, 64, 15),  # queries that read keys where they are, up to FEW_QUERIES, and one more
    Sizes(1, 2, 3, 2, 40, 24, 32, 38),
    Sizes(2, 2, 1, 8, 300, 33, 96, 292),
    Sizes(1, 3, 3, 3, 47, 130, 64, 44),
    Sizes(1, 5, 1, 14, 256, 80, 33, 0),
    Sizes(1, 1, 3, 40, 511, 7, 100, 471),
    Sizes(2, 2, 1, 3, 0, 8, 8),
    Sizes(2, 0, 1, 3, 4, 8, 8),
    Sizes(1, 2, 1, 0, 4, 8, 8),
]
VARIANTS = {
    "plain": AttentionFacts(0.3),
    "causal": AttentionFacts(0.3, is_causal=True),
    "window": AttentionFacts(0.3, is_causal=True, window=19),
    "capped": AttentionFacts(1.5, softcap=2.0),
    "added": AttentionFacts(-0.7, mask=ScoreMask.ADDED),
    "added to all keys": AttentionFacts(0.3, mask=ScoreMask.ADDED, mask_is_dense=False),
    "allowed": AttentionFacts(0.3, mask=ScoreMask.ALLOWED),
    "capped, added, causal": AttentionFacts(0.3, mask=ScoreMask.ADDED, is_causal=True, softcap=3.0),
}


@pytest.fixture(scope="module")
def pools() -> Iterator[list[ThreadPool]]:
    made = [ThreadPool(1), ThreadPool(2), ThreadPool(5)]
    yield made
    for pool in made:
        pool.close()


@functools.cache
def tiles(target: Target) -> tuple[CompiledModule, np.ndarray]:
    module = compile_module(tiles_text(target), target, is_vectorized=True)
    return module, tile_table(module, target)


@functools.cache
def pair_tiles(target: Target) -> tuple[CompiledModule, np.ndarray]:
    module = compile_module(pair_tiles_text(target), target, is_vectorized=True)
    return module, attention_pair_table(module, target)


@functools.cache
def matrix_tiles(target: Target) -> tuple[CompiledModule, np.ndarray]:
    module = compile_module(attention_tiles_text(target), target, is_vectorized=True)
    return module, attention_tile_table(module)


FORMS = {
    "floats": (attention_text, scratch_count, tiles),
    "pairs": (pair_attention_text, pair_scratch_count, pair_tiles),
    "tiles": (tile_attention_text, tile_scratch_count, matrix_tiles),
}


@functools.cache
def kernel(facts: AttentionFacts, target: Target, form: str) -> CompiledModule:
    return compile_module(FORMS[form][0]("attention", target, facts), target, is_vectorized=True)


@dataclass
class Case:
    """Operands of a case; queries and results lie as (batch, length, heads, size)."""

    sizes: Sizes
    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    mask: np.ndarray | None = None
    lengths: np.ndarray | None = None
    scales: tuple[np.ndarray, np.ndarray] | None = None

    @classmethod
    def random(cls, seed: int, sizes: Sizes, facts: AttentionFacts) -> Case:
        rng, s = np.random.default_rng(seed), sizes
        heads = s.key_heads * s.group
        query = rng.standard_normal((s.batch, s.queries, heads, s.depth + 3), np.float32)[..., : s.depth]
        key = rng.standard_normal((s.batch, s.key_heads, s.keys, s.depth), np.float32)
        value = rng.standard_normal((s.batch, s.keys, s.key_heads, s.width), np.float32).transpose(0, 2, 1, 3)
        mask = None
        if facts.mask is ScoreMask.ADDED:
            mask = rng.standard_normal((s.batch, 1, s.queries, s.keys if facts.mask_is_dense else 1), np.float32)
            mask[rng.random(mask.shape) < 0.2] = -np.inf
            mask[rng.random(mask.shape) < 0.1] = np.finfo(np.float32).min
            mask[:, :, : s.queries // 3] = -np.inf  # rows that see nothing
        elif facts.mask is ScoreMask.ALLOWED:
            mask = rng.random((1, heads, s.queries, s.keys)) < 0.6
            mask[:, :, : s.queries // 3] = False
        return cls(sizes, query.transpose(0, 2, 1, 3), key, value, mask)


def expected(case: Case, facts: AttentionFacts) -> np.ndarray:
    """Return the result in float64; rows that see no key are 0."""
    s = case.sizes
    q, k, v = (a.astype(np.float64) for a in (case.query, case.key, case.value))
    k, v = np.repeat(k, s.group, axis=1), np.repeat(v, s.group, axis=1)
    scores = q @ k.swapaxes(2, 3) * np.float32(facts.scale)
    if facts.softcap:
        scores = facts.softcap * np.tanh(scores / facts.softcap)
    keys = np.arange(s.keys)
    length = np.full((s.batch, 1, 1, 1), s.keys)
    offset = np.full((s.batch, 1, 1, 1), s.offset)
    if case.lengths is not None:
        length = case.lengths.reshape(-1, 1, 1, 1) + facts.lengths_rest
        offset = length - s.queries
        if facts.lengths_cover_queries:
            offset = np.maximum(offset, 0)
    seen = np.broadcast_to(keys < length, scores.shape).copy()
    if facts.is_causal:
        own = offset + np.arange(s.queries)[:, None]
        if facts.lengths_cover_queries:
            own = np.minimum(own, length - 1)  # queries behind the length are padding
        seen &= keys <= own
        if facts.window:
            seen &= keys > own - facts.window
    if facts.mask is ScoreMask.ADDED:
        assert case.mask is not None
        with np.errstate(over="ignore"):
            scores = (scores + case.mask).astype(np.float32).astype(np.float64)  # the lowest float swallows a score
    elif facts.mask is ScoreMask.ALLOWED:
        assert case.mask is not None
        seen &= case.mask
    scores = np.where(seen, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = weights.sum(axis=-1, keepdims=True)
    return (weights / np.where(total == 0, 1, total)) @ v


def strides(array: np.ndarray) -> list[int]:
    return [0 if size == 1 else step // array.itemsize for step, size in zip(array.strides, array.shape, strict=True)]


def attend(
    case: Case, facts: AttentionFacts, target: Target, pool: ThreadPool, form: str = "floats"
) -> tuple[np.ndarray, int]:
    """Return the kernel's result and its error word; checks that nothing is written beside the result."""
    s = case.sizes
    heads = s.key_heads * s.group
    memory = np.full((s.batch, s.queries, heads, s.width + 2), GUARD, np.float32)
    out = memory[..., 1 : s.width + 1].transpose(0, 2, 1, 3)
    count = FORMS[form][1](target, s.group * s.queries, s.depth, s.width, facts.stored)
    scales = [each.ctypes.data for each in case.scales or (case.query, case.query)]
    heads_apart = (s.depth, s.width) if facts.scales is Scales.CHANNEL else (0, 0)
    assert isinstance(count, int)
    scratch = np.full(pool.num_threads * count + 32, np.nan, np.float32)  # what is read before it is written shows
    error = np.zeros(1, np.int64)
    mask = case.mask if case.mask is not None else error.reshape(1, 1, 1, 1)
    lengths = case.lengths if case.lengths is not None else error
    skip = -scratch.ctypes.data % 64
    table = np.array(
        [
            *(a.ctypes.data for a in (case.query, case.key, case.value, out, mask, lengths, error)),
            scratch.ctypes.data + skip, count * 4, FORMS[form][2](target)[1].ctypes.data,
            s.batch, s.key_heads, s.group, s.queries, s.keys, s.depth, s.width, s.offset,
            *(step // a.itemsize for a in (case.query, case.key, case.value, out) for step in a.strides[:3]),
            *strides(mask), *scales, *heads_apart, facts.scale_word,
        ],
        np.int64,
    )  # fmt: skip
    assert len(table) == ARGUMENTS.count
    steps = np.array([kernel(facts, target, form).address("attention"), table.ctypes.data, 1, 0], np.int64)
    pool.run(int(steps.ctypes.data), 1)
    assert (memory[..., [0, -1]] == GUARD).all(), "wrote beside the result"
    assert np.isnan(scratch[skip // 4 + pool.num_threads * count :]).all(), "wrote behind its scratch"
    return out, int(error[0])


def agrees(case: Case, facts: AttentionFacts, target: Target, pools: list[ThreadPool]) -> None:
    want = expected(case, facts)
    for pool in pools:
        found, error = attend(case, facts, target, pool)
        assert error == 0
        comparison = compare(found, want.astype(np.float32), "approximate")
        assert comparison.passes, f"{case.sizes} on {pool.num_threads} threads: {comparison}"


@pytest.mark.parametrize("machine", list(TARGETS))
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_attention_is_that_of_float64_for_all_sizes(variant: str, machine: str, pools: list[ThreadPool]) -> None:
    facts = VARIANTS[variant]
    for seed, sizes in enumerate(SIZES):
        agrees(Case.random(seed, sizes, facts), facts, TARGETS[machine](), pools)


STORED = {
    "float16": (DataType.FLOAT16, Scales.NONE), "bfloat16": (DataType.BFLOAT16, Scales.NONE),
    "int8": (DataType.INT8, Scales.TENSOR), "int8 by elements of heads": (DataType.INT8, Scales.CHANNEL),
}  # fmt: skip


def stored(case: Case, facts: AttentionFacts) -> tuple[Case, Case]:
    """Return a case with keys and values as they are stored, and the same numbers in float32."""
    s, rng = case.sizes, np.random.default_rng(5)
    if facts.scales is Scales.NONE:
        kept = replace(case, key=case.key.astype(facts.stored.numpy), value=case.value.astype(facts.stored.numpy))
        return kept, replace(case, key=kept.key.astype(np.float32), value=kept.value.astype(np.float32))
    shapes = [(s.key_heads, 1, size) if facts.scales is Scales.CHANNEL else (1,) for size in (s.depth, s.width)]
    scales = tuple(rng.uniform(0.01, 0.03, shape).astype(np.float32) for shape in shapes)
    levels = [rng.integers(-128, 128, each.shape, np.int8) for each in (case.key, case.value)]
    wide = [each.astype(np.float32) * scale for each, scale in zip(levels, scales, strict=True)]
    kept = replace(case, key=levels[0], value=levels[1], scales=(scales[0], scales[1]))
    return kept, replace(case, key=wide[0], value=wide[1])


@pytest.mark.parametrize("machine", list(TARGETS))
@pytest.mark.parametrize("kind", list(STORED))
def test_keys_and_values_of_other_types_are_read_as_their_numbers(
    kind: str, machine: str, pools: list[ThreadPool]
) -> None:
    target = TARGETS[machine]()
    if kind == "float16" and not converts_halves(target):
        pytest.skip("this processor does not convert float16: such nodes are not compiled for it")
    facts = AttentionFacts(0.3, is_causal=True, stored=STORED[kind][0], scales=STORED[kind][1])
    for seed, sizes in enumerate(SIZES):
        case, wide = stored(Case.random(seed, sizes, facts), facts)
        want = expected(wide, facts).astype(np.float32)
        for pool in pools[1:]:
            found, error = attend(case, facts, target, pool)
            assert error == 0
            comparison = compare(found, want, "approximate")
            assert comparison.passes, f"{sizes} on {pool.num_threads} threads: {comparison}"


def rounding_target(form: str) -> Target:
    """Return the target of a form whose products round their operands, or skip the test."""
    if form == "tiles":
        target = restricted_target()
        if not has_tile_products(target):
            pytest.skip("needs a processor with AMX, and a system that permits it")
        return target
    target = restricted_target("amx")  # without its name, which alone tells that dot products are slow
    if target.lanes != 16 or not target.has("avx512bf16"):
        pytest.skip("this processor has no dot products of bfloat16")
    return target


@pytest.mark.parametrize("form", ["pairs", "tiles"])
@pytest.mark.parametrize("kind", list(STORED))
def test_rounded_products_of_other_types_are_those_of_their_numbers(
    kind: str, form: str, pools: list[ThreadPool]
) -> None:
    target = rounding_target(form)
    facts = AttentionFacts(0.3, stored=STORED[kind][0], scales=STORED[kind][1])
    plain = AttentionFacts(0.3)
    for seed, sizes in enumerate(SIZES):
        case, wide = stored(Case.random(seed, sizes, facts), facts)
        found, _ = attend(case, facts, target, pools[1], form)
        want, _ = attend(wide, plain, target, pools[1], form)
        np.testing.assert_array_equal(found, want, err_msg=str(sizes))


def rounded(array: np.ndarray) -> np.ndarray:
    return array.astype(ml_dtypes.bfloat16).astype(np.float64)


@pytest.mark.parametrize("form", ["pairs", "tiles"])
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_rounded_products_are_those_of_float64_but_for_the_rounding_of_weights(
    variant: str, form: str, pools: list[ThreadPool]
) -> None:
    target = rounding_target(form)
    facts = replace(VARIANTS[variant], may_be_few=False)
    in_log2 = facts.is_in_log2 and not facts.softcap
    factor = np.float32(facts.scale * (math.log2(math.e) if in_log2 else 1))
    for seed, sizes in enumerate(SIZES):
        case = Case.random(seed, sizes, facts)
        query = rounded(case.query * factor) / np.float64(factor)
        exact = replace(case, query=query, key=rounded(case.key), value=rounded(case.value))
        want, size = expected(exact, facts), expected(replace(exact, value=np.abs(exact.value)), facts)
        for pool in pools[:2]:
            found, error = attend(case, facts, target, pool, form)
            assert error == 0
            assert (np.abs(found - want) <= (2.0**-8 + 1e-4) * size).all(), f"{sizes} on {pool.num_threads} threads"


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_few_queries_read_a_cache_in_float32_where_others_use_tiles(variant: str, pools: list[ThreadPool]) -> None:
    target, facts = rounding_target("tiles"), VARIANTS[variant]
    for seed, sizes in enumerate(each for each in SIZES if each.group * each.queries <= FEW_QUERIES):
        case = Case.random(seed, sizes, facts)
        for pool in pools[:2]:
            found, error = attend(case, facts, target, pool, "tiles")
            assert error == 0
            comparison = compare(found, expected(case, facts).astype(np.float32), "approximate")
            assert comparison.passes, f"{sizes} on {pool.num_threads} threads: {comparison}"


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("covers", [False, True])
def test_lengths_say_how_many_keys_of_each_batch_entry_count(bits: int, covers: bool, pools: list[ThreadPool]) -> None:
    facts = AttentionFacts(
        0.3, is_causal=True, lengths_bits=bits, lengths_rest=1 if covers else 0, lengths_cover_queries=covers
    )
    for seed, sizes in enumerate([Sizes(4, 2, 2, 3, 70, 16, 16), Sizes(4, 2, 3, 1, 300, 16, 20)]):
        case = Case.random(seed, sizes, facts)
        lengths = np.array([1, 69, 0, 41], np.int32 if bits == 32 else np.int64)
        agrees(replace_lengths(case, lengths), facts, TARGETS["host"](), pools)


def replace_lengths(case: Case, lengths: np.ndarray) -> Case:
    return replace(case, lengths=lengths)


@pytest.mark.parametrize("length", [-1, 71, 2**31 - 1, -(2**31)])
def test_a_length_out_of_bounds_is_an_error_and_no_access(length: int, pools: list[ThreadPool]) -> None:
    facts = AttentionFacts(0.3, lengths_bits=32)
    case = Case.random(0, Sizes(2, 2, 1, 3, 70, 16, 16), facts)
    case = replace_lengths(case, np.array([70, length], np.int32))
    _, error = attend(case, facts, TARGETS["host"](), pools[1])
    assert error == 1


def test_scores_of_any_size_neither_overflow_nor_lose_a_nan(pools: list[ThreadPool]) -> None:
    facts = AttentionFacts(1 / math.sqrt(16))
    case = Case.random(0, Sizes(1, 2, 1, 20, 300, 16, 16), facts)
    case.query[0, 0] *= 1e4
    agrees(case, facts, TARGETS["host"](), pools)
    case.key[0, 1, 299, 3] = np.nan
    found, _ = attend(case, facts, TARGETS["host"](), pools[0])
    assert np.isnan(found[0, 1]).all(), "a NaN among the keys has no effect"
    assert np.isfinite(found[0, 0]).all(), "a NaN crosses heads"
