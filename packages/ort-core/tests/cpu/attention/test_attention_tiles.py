"""Attention in registers of tiles: sizes of usual models, long and rising rows of scores, what is no number."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
from attention_cases import Case, Sizes, attend, expected, factor_of, rounded, rounding_target

from ort_core.cpu.codegen.attention.attention import AttentionFacts
from ort_core.cpu.codegen.attention.attention_rows import ScoreMask
from ort_core.cpu.codegen.attention.attention_tiles import keys_packed, tile_attention_text
from ort_core.cpu.codegen.llvm_ir import rounded_powers
from ort_core.cpu.codegen.machine_code.jit import assembly
from ort_core.cpu.codegen.machine_code.llvm_targets import target_of
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.threads.pool import ThreadPool

HEADS = (32, 40, 64, 72, 80, 128)
FLOAT_HALF_ULP = 2.0**-24


@pytest.fixture(scope="module")
def target() -> Target:
    return rounding_target("tiles")


def agrees(case: Case, facts: AttentionFacts, target: Target, pools: list[ThreadPool]) -> np.ndarray:
    """Check a case against float64 on rounded operands, and that the number of threads makes no difference.

    A weight may be off by its rounding, and as all weights by the polynomial and by the rounding of the score's sums.
    """
    factor = np.float64(factor_of(facts))
    query = rounded((case.query * factor_of(facts)).astype(np.float32)) / factor
    exact = replace(case, query=query, key=rounded(case.key), value=rounded(case.value))
    want, size = expected(exact, facts), expected(replace(exact, value=np.abs(exact.value)), facts)
    keys = np.repeat(np.abs(exact.key), case.sizes.group, axis=1)
    products = np.abs(query) @ keys.swapaxes(2, 3) * abs(facts.scale)
    scores = (case.sizes.depth + 4) * FLOAT_HALF_ULP * np.nanmax(products, initial=0.0)
    sums = (case.sizes.keys + 8) * FLOAT_HALF_ULP
    bound = 2.0**-8 + 2 * (rounded_powers.MAX_ERROR + scores + sums)
    found = [attend(case, facts, target, pool, "tiles")[0] for pool in pools]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    off = np.abs(found[0] - want) > bound * size
    assert not off.any(), f"{case.sizes}: {np.argwhere(off)[:3]}, {np.abs(found[0] - want).max()} of {bound}"
    return found[0]


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("length", [77, 128, 197, 384])
def test_heads_of_usual_models(length: int, is_causal: bool, target: Target, pools: list[ThreadPool]) -> None:
    for seed, head in enumerate(HEADS):
        facts = AttentionFacts(head**-0.5, is_causal=is_causal, may_be_few=False)
        agrees(Case.random(seed, Sizes(1, 2, 1, length, length, head, head), facts), facts, target, pools)


@pytest.mark.parametrize("mask", list(ScoreMask))
@pytest.mark.parametrize("queries", [9, 16, 17, 32, 33, 65])
def test_more_keys_than_are_packed_at_once(
    queries: int, mask: ScoreMask, target: Target, pools: list[ThreadPool]
) -> None:
    facts = AttentionFacts(0.2, mask, may_be_few=False)
    for keys in (keys_packed(target) - 1, keys_packed(target) + 1, 2 * keys_packed(target) + 100):
        agrees(Case.random(keys, Sizes(1, 1, 2, queries, keys, 24, 33), facts), facts, target, pools)


@pytest.mark.parametrize("window", [0, 40, 700])
def test_causal_rows_that_begin_in_any_block(window: int, target: Target, pools: list[ThreadPool]) -> None:
    keys = keys_packed(target) + 150
    for offset in (0, 5, 127, keys - 90):
        facts = AttentionFacts(0.3, is_causal=True, window=window, may_be_few=False)
        agrees(Case.random(offset, Sizes(1, 1, 1, 90, keys, 16, 16, offset), facts), facts, target, pools)


@pytest.mark.parametrize("step", [-30.0, -1.0, 0.05, 1.0, 7.9, 30.0])
def test_scores_that_rise_or_fall_along_the_keys(step: float, target: Target, pools: list[ThreadPool]) -> None:
    facts = AttentionFacts(1.0, may_be_few=False)
    case = Case.random(0, Sizes(1, 1, 1, 40, 1500, 16, 16), facts)
    case.query[:], case.key[:] = 0.0, 0.0
    case.query[..., 0] = np.linspace(0.0, 1.0, 40)
    case.key[..., 0] = step * (np.arange(1500) // 16 - 40)
    agrees(case, facts, target, pools)


def test_rows_whose_first_keys_are_masked(target: Target, pools: list[ThreadPool]) -> None:
    for kind in (ScoreMask.ADDED, ScoreMask.ALLOWED):
        facts = AttentionFacts(0.4, kind, may_be_few=False)
        case = Case.random(0, Sizes(1, 1, 1, 50, 1300, 16, 16), facts)
        seen = np.arange(1300) >= 26 * np.arange(50)[:, None] + 1  # the last row sees 25 keys, the first nearly all
        case.mask = np.where(seen, np.float32(0), -np.inf)[None, None] if kind is ScoreMask.ADDED else seen[None, None]
        agrees(case, facts, target, pools)


@pytest.mark.parametrize("is_hidden_nan", [False, True])
def test_rows_that_see_no_key(is_hidden_nan: bool, target: Target, pools: list[ThreadPool]) -> None:
    facts = AttentionFacts(0.4, ScoreMask.ADDED, is_hidden_nan=is_hidden_nan, may_be_few=False)
    case = Case.random(0, Sizes(1, 2, 1, 50, 300, 16, 16), facts)
    case.mask = np.zeros((1, 1, 50, 300), np.float32)
    case.mask[:, :, 7:21] = -np.inf
    found, _ = attend(case, facts, target, pools[1], "tiles")
    hidden = found[:, :, 7:21]
    assert np.isnan(hidden).all() if is_hidden_nan else (hidden == 0).all()
    assert np.isfinite(np.delete(found, range(7, 21), axis=2)).all()


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_no_number_stays_in_its_rows(number: float, target: Target, pools: list[ThreadPool]) -> None:
    facts = AttentionFacts(0.4, may_be_few=False)
    for key in (0, 130, 1099):
        case = Case.random(0, Sizes(1, 2, 1, 50, 1100, 16, 16), facts)
        case.query[0, 1, 33, 3] = number
        found, _ = attend(case, facts, target, pools[1], "tiles")
        assert np.isnan(found[0, 1, 33]).all()
        assert np.isfinite(np.delete(found[0, 1], 33, axis=0)).all()
        assert np.isfinite(found[0, 0]).all()
        case = Case.random(0, Sizes(1, 2, 1, 50, 1100, 16, 16), facts)
        case.key[0, 1, key, 3] = np.nan
        found, _ = attend(case, facts, target, pools[1], "tiles")
        assert np.isnan(found[0, 1]).all()
        assert np.isfinite(found[0, 0]).all()


def test_the_lowest_float_as_a_mask_swallows_scores(target: Target, pools: list[ThreadPool]) -> None:
    facts = AttentionFacts(0.4, ScoreMask.ADDED, may_be_few=False)
    case = Case.random(0, Sizes(1, 1, 1, 40, 500, 16, 16), facts)
    case.mask = np.zeros((1, 1, 40, 500), np.float32)
    case.mask[..., :200] = np.finfo(np.float32).min
    case.mask[:, :, :10] = np.finfo(np.float32).min  # rows whose weights are all the same
    agrees(case, facts, target, pools)


FEATURES = "+amx-bf16,+amx-tile,+avx512bf16,+avx512bw,+avx512dq,+avx512f,+avx512vl"


@functools.cache
def machine_code() -> str:
    target = target_of("x86_64-unknown-linux-gnu", "sapphirerapids", FEATURES)
    return assembly(tile_attention_text("attention", target, AttentionFacts(0.125, may_be_few=False)), target)


@pytest.mark.parametrize("instruction", ["tdpbf16ps", "vreduceps", "vscalefps", "vcvtne2ps2bf16"])
def test_machine_code_on_any_machine_has_the_instructions(instruction: str) -> None:
    assert instruction in machine_code()
