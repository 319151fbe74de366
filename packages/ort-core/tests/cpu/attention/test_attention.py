"""The attention kernel against float64: head counts, odd lengths, masks, windows, caps, strides, both vector widths."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from attention_cases import Case, Sizes, attend, expected, factor_of, rounded, rounding_target
from kernel_calls import TARGETS

from ort_core.cpu.codegen.attention.attention import AttentionFacts
from ort_core.cpu.codegen.attention.attention_rows import ScoreMask
from ort_core.cpu.codegen.attention.few_queries import FEW_QUERIES
from ort_core.cpu.codegen.attention.stored_rows import Scales
from ort_core.cpu.codegen.llvm_ir.scalar_printer import converts_halves
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.plugin.ir import DataType
from ort_core.tolerances import compare

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


@pytest.mark.parametrize("form", ["pairs", "tiles"])
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_rounded_products_are_those_of_float64_but_for_the_rounding_of_weights(
    variant: str, form: str, pools: list[ThreadPool]
) -> None:
    target = rounding_target(form)
    facts = replace(VARIANTS[variant], may_be_few=False)
    factor = factor_of(facts)
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
