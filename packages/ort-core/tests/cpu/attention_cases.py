"""Attention kernels called on numpy arrays, in each form of their products, and what they give in float64."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

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
from ort_core.cpu.codegen.attention.stored_rows import Scales
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.jit import compile_module
from ort_core.cpu.codegen.machine_code.llvm_targets import restricted_target
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.bfloat16_product import pair_tiles_text
from ort_core.cpu.codegen.products.bfloat16_tiles import has_tile_products
from ort_core.cpu.codegen.products.microkernel import tile_table, tiles_text
from ort_core.cpu.threads.pool import ThreadPool

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


def rounded(array: np.ndarray) -> np.ndarray:
    return array.astype(ml_dtypes.bfloat16).astype(np.float64)


def factor_of(facts: AttentionFacts) -> np.float32:
    """Return what queries are multiplied by before they are rounded, over what makes scores natural."""
    in_log2 = facts.is_in_log2 and not facts.softcap
    return np.float32(facts.scale * (math.log2(math.e) if in_log2 else 1))
