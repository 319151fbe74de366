"""Weights of few bits that are not as large as the attributes say are an error: kernels would read beyond them."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_gpu import EmulatedGpu
from emulated_provider import EmulatedCudaProvider, session_of

from ort_core.plugin import InvalidArgument

PRODUCT = """g (float[M,K] a, uint8[B,C,D] b, float[S] s) => (float[M,5] y) {{
    y = com.microsoft.MatMulNBits<K = {inner}, N = 5, block_size = 16>(a, b, s) }}"""
TABLE = """g (uint8[4,8] b, int64[2] i, float[R,S] s) => (float[2,16] y) {
    y = com.microsoft.GatherBlockQuantized<bits = 4, block_size = 16, quantize_axis = 1>(b, i, s) }"""


@pytest.fixture(autouse=True)
def _device(monkeypatch):
    monkeypatch.setattr(EmulatedCudaProvider, "device", EmulatedGpu(collects=True), raising=False)


@pytest.mark.parametrize("rows", [2, 40])
@pytest.mark.parametrize(
    ("inner", "columns", "scales", "words"),
    [
        (16, 4, 5, "B has 32 elements, its attributes say 40"),
        (16, 5, 4, "scales has 4"),
        (15, 5, 5, "A has 16 columns"),
    ],
)
def test_a_product(rows, inner, columns, scales, words):
    session = session_of(PRODUCT.format(inner=inner))
    feeds = {"a": np.ones((rows, 16), "f4"), "b": np.ones((columns, 1, 8), "u1"), "s": np.ones(scales, "f4")}
    with pytest.raises(InvalidArgument, match=words):
        session.run(None, feeds)


@pytest.mark.parametrize("shape", [(3, 1), (4, 2)])
def test_a_table(shape):
    feeds = {"b": np.ones((4, 8), "u1"), "i": np.array([0, 3]), "s": np.ones(shape, "f4")}
    with pytest.raises(InvalidArgument, match="do not belong to data"):
        session_of(TABLE).run(None, feeds)
