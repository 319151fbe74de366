"""Convolutions between dequantized inputs and a quantized output are products of integers."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_provider import EmulatedCudaProvider

import ort_core as ort
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import plugin_of
from ort_core.testing.models import model_of

GENERATOR = np.random.default_rng(11)
WEIGHTS = GENERATOR.integers(-127, 128, 16 * 8 * 3 * 3)
SCALES = np.linspace(0.001, 0.002, 16)
BODY = """g (uint8[n,8,6,5] x) => (uint8[n,16,6,5] y) <
  int8[16,8,3,3] w = {%s}, float[16] sw = {%s}, int8[16] zw = {%s}, int32[16] b = {%s}, float[16] sb = {%s},
  float sx = {0.02}, uint8 zx = {120}, float sy = {0.05}, uint8 zy = {%d}
> {
  dx = DequantizeLinear(x, sx, zx)  dw = DequantizeLinear<axis = 0>(w, sw, zw)  db = DequantizeLinear<axis = 0>(b, sb)
  c = Conv<pads = [1, 1, 1, 1]>(dx, dw, db)  %s  y = QuantizeLinear(r, sy, zy)
}"""


def _body(behind: str, zero: int) -> str:
    rows = (WEIGHTS, SCALES, [0] * 16, range(-800, 800, 100), SCALES * 0.02)
    return BODY % (*(", ".join(str(number) for number in row) for row in rows), zero, behind)


@pytest.mark.parametrize(("behind", "zero"), [("r = Identity(c)", 128), ("r = Relu(c)", 0)])
def test_a_dequantized_convolution_is_a_product_of_integers(gpu, behind: str, zero: int) -> None:
    model = model_of(_body(behind, zero), opsets='"" : 21')
    with installed(plugin_of(EmulatedCudaProvider, name="emulated_cuda")):
        session = ort.InferenceSession(model, providers=[EmulatedCudaProvider.name])
        for batch in (2, 1):
            feeds = {"x": GENERATOR.integers(0, 256, (batch, 8, 6, 5)).astype(np.uint8)}
            (found,) = session.run(None, feeds)
            (right,) = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"]).run(None, feeds)
            assert np.abs(found.astype(int) - right).max() <= 1, "a step, where float32 rounds the sum before"
            assert len(np.unique(right)) > 50
    assert gpu.launches > 0
    assert gpu.library_steps == [], "no library computes it in float32"
