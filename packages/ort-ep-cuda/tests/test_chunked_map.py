"""Elementwise kernels that read 16 bytes at once: which do, and tails that fill no chunk."""

from __future__ import annotations

import re

import numpy as np
import pytest
from emulated_gpu import EmulatedGpu
from emulated_provider import EmulatedCudaProvider, session_of

from ort_core.plugin.ir import DataType
from ort_ep_cuda.lowering.values.views import TensorView
from ort_ep_cuda.lowering.writing.chunked_map import LEAST_ELEMENTS, elements_at_once

BODY = """g ({t}[n] a, {t}[n] b, {t} s) => ({t}[n] y, bool[n] z, {t}[n] w)
    {{ m = Mul(a, b)  y = Add(m, s)  z = Greater(a, b)  w = Mish(a) }}"""
GENERATOR = np.random.default_rng(16)


@pytest.mark.parametrize(("text", "dtype"), [("float", np.float32), ("float16", np.float16), ("double", np.float64)])
def test_what_fills_no_chunk_is_computed_element_by_element(gpu: EmulatedGpu, text: str, dtype: type) -> None:
    session = session_of(BODY.format(t=text))
    for count in (LEAST_ELEMENTS, LEAST_ELEMENTS + 1, LEAST_ELEMENTS + 7):
        a, b = (GENERATOR.standard_normal(count).astype(dtype) for _ in range(2))
        y, z, w = session.run(None, {"a": a, "b": b, "s": np.array(3, dtype)})
        exact = a.astype(np.float64) * b + 3
        np.testing.assert_allclose(y, exact, rtol=2e-3 if dtype is np.float16 else 1e-6, atol=1e-6)
        np.testing.assert_array_equal(z, a > b)
        wide = a.astype(np.float64)
        np.testing.assert_allclose(
            w, wide * np.tanh(np.log1p(np.exp(wide))), rtol=2e-3 if dtype is np.float16 else 1e-5, atol=1e-6
        )


def test_much_is_read_in_chunks_and_little_is_not() -> None:
    gpu = EmulatedCudaProvider.device = EmulatedGpu(collects=True)
    session = session_of(BODY.format(t="float16"))
    for count, prefix in ((LEAST_ELEMENTS - 1, "map_"), (LEAST_ELEMENTS, "chunks_")):
        gpu.collected.clear()
        x = np.ones(count, np.float16)
        session.run(None, {"a": x, "b": x, "s": np.array(3, np.float16)})
        assert any(name.startswith(prefix) for name in gpu.collected), list(gpu.collected)


@pytest.mark.parametrize(
    ("dtypes", "offset", "kinds", "width"),
    [
        ((DataType.FLOAT, DataType.FLOAT), 0, ("dense", "dense"), 4),
        ((DataType.FLOAT16, DataType.FLOAT16), 0, ("dense", "dense"), 8),
        ((DataType.FLOAT16, DataType.FLOAT), 0, ("dense", "dense"), 4),
        ((DataType.DOUBLE, DataType.BOOL), 0, ("dense", "dense"), 2),
        ((DataType.UINT8, DataType.UINT8), 0, ("dense", "dense"), 8),
        ((DataType.DOUBLE, DataType.FLOAT16), 0, ("scalar", "dense"), 8),
        ((DataType.FLOAT, DataType.FLOAT), 2, ("dense", "dense"), 1),
        ((DataType.FLOAT, DataType.FLOAT), 4, ("dense", "dense"), 4),
        ((DataType.FLOAT, DataType.FLOAT), 0, ("strided", "dense"), 1),
        ((DataType.FLOAT, DataType.FLOAT), 0, ("dense", "strided"), 1),
    ],
)
def test_the_widest_operand_fills_a_chunk_where_addresses_allow(dtypes, offset, kinds, width) -> None:
    shape = (LEAST_ELEMENTS,)
    views = [TensorView(n, dtype, shape, (1,), offset) for n, dtype in enumerate(dtypes)]
    assert elements_at_once(views, kinds) == width


def test_chunks_are_read_only_where_every_address_is_a_multiple_of_their_size() -> None:
    """The emulation reads any address; a device ends the process's context at one that is not aligned."""
    gpu = EmulatedCudaProvider.device = EmulatedGpu(collects=True)
    x = np.ones(LEAST_ELEMENTS, np.float32)
    session_of(BODY.format(t="float")).run(None, {"a": x, "b": x, "s": x[0]})
    texts = [kernel.source for name, kernel in gpu.collected.items() if name.startswith("chunks_")]
    assert texts
    for text in texts:
        read = set(re.findall(r"\*\)\((in\d+|out) \+ first\)", text))
        (checked,) = re.findall(r"is_aligned = \(\((.*)\) & 15\) == 0;", text)
        assert {f"(unsigned long long){each}" for each in read} == set(checked.split(" | "))
        assert "if (!is_aligned ||" in text
