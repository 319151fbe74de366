"""Scores of few queries with keys that lie where they are: exact, for any number of keys and any size of a head."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import numpy as np
import pytest
from kernel_calls import TARGETS

from ort_core.cpu.codegen.attention.few_queries import KEY_SCORES, key_scores
from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.jit import compile_module
from ort_core.cpu.codegen.machine_code.llvm_targets import restricted_target
from ort_core.cpu.codegen.machine_code.target import Target

HOSTS: dict[str, Callable[[], Target]] = {
    **TARGETS, "without AVX": lambda: restricted_target("avx", "fma", "f16c", "amx", "vaes", "vpclmulqdq"),
}  # fmt: skip
_ROW = 320  # scores of a query, as they lie


@functools.cache
def compiled_scores(host: str) -> CompiledModule:
    target = HOSTS[host]()
    text = module_text([key_scores(target.lanes)])
    return compile_module(text.replace("define internal void", "define void"), target, is_vectorized=True)


def scores(host: str, query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Return the products of queries with keys, both rows of any stride."""
    found = np.full((len(query), _ROW), 7, np.float32)
    words = (
        len(query), query.ctypes.data, query.strides[0] // 4, key.ctypes.data, key.strides[0] // 4, len(key),
        key.shape[1], found.ctypes.data, _ROW, key.ctypes.data, key.strides[0], key.shape[1] * 4,
    )  # fmt: skip
    types = [ctypes.c_int64 if place not in (1, 3, 7, 9) else ctypes.c_void_p for place in range(len(words))]
    ctypes.CFUNCTYPE(None, *types)(compiled_scores(host).address(KEY_SCORES))(*words)
    return found


@pytest.mark.parametrize("host", list(HOSTS))
def test_scores_are_exact_for_any_number_of_keys_and_size_of_a_head(host: str) -> None:
    rng = np.random.default_rng(4)
    for keys in (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 60, 256):
        for depth in (1, 3, 8, 16, 20, 64, 65, 130):
            queries = 1 + (keys + depth) % 8
            query = rng.integers(-9, 10, (queries, depth + 2)).astype(np.float32)[:, :depth]
            memory = rng.integers(-9, 10, (keys, depth + 5)).astype(np.float32)
            memory[:, depth:] = np.nan  # nobody's
            found = scores(host, query, memory[:, :depth])
            np.testing.assert_array_equal(found[:, :keys], query @ memory[:, :depth].T)
            assert (found[:, -(-keys // 16) * 16 :] == 7).all(), "more than whole vectors was written"


@pytest.mark.parametrize("host", list(HOSTS))
def test_a_key_that_is_no_number_spoils_its_own_scores_alone(host: str) -> None:
    rng = np.random.default_rng(5)
    query, key = (rng.standard_normal((rows, 40)).astype(np.float32) for rows in (3, 50))
    clean = scores(host, query, key)
    key[[0, 21, 49], 7] = np.nan
    found = scores(host, query, key)
    assert np.isnan(found[:, [0, 21, 49]]).all()
    others = np.setdiff1d(np.arange(50), [0, 21, 49])
    np.testing.assert_array_equal(found[:, others], clean[:, others])
