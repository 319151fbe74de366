"""Operators by family, from packages that were read back, against the reference provider and against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from ort_core.tolerances import compare

pytestmark = pytest.mark.usefixtures("sdk")
GENERATOR = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype(np.float32)


def constants(**arrays: np.ndarray) -> list[onnx.TensorProto]:
    return [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]


FAMILIES = {
    "resized": (
        "g (float[1,2,4,5] x) => (float[1,2,8,10] y, float[1,2,6,7] z, float[1,2,3,3] w) { "
        'y = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">(x, , twice) '
        'z = Resize<mode="linear">(x, , , sizes)  w = Resize<mode="cubic", antialias=1>(x, , , small) }',
        {"x": normal(1, 2, 4, 5)},
        constants(twice=np.array([1, 1, 2, 2], np.float32), sizes=np.array([1, 2, 6, 7]), small=np.array([1, 2, 3, 3])),
    ),
    "recurrent": (
        "g (float[s,b,3] x) => (float[s,2,b,4] y, float[2,b,4] h, float[2,b,4] c, float[s,1,b,4] r) { "
        'y, h, c = LSTM<direction="bidirectional", hidden_size=4>(x, w, r4, b4)  '
        'r = RNN<direction="reverse", hidden_size=4>(x, wr, rr) }',
        {"x": normal(5, 2, 3)},
        constants(w=normal(2, 16, 3), r4=normal(2, 16, 4), b4=normal(2, 32), wr=normal(1, 4, 3), rr=normal(1, 4, 4)),
    ),
    "gru": (
        "g (float[5,2,3] x) => (float[5,2,2,4] y, float[5,1,2,4] z) { "
        'y = GRU<direction="bidirectional", hidden_size=4>(x, w, r, b) '
        "z = GRU<hidden_size=4, linear_before_reset=1>(x, w1, r1, b1) }",
        {"x": normal(5, 2, 3)},
        constants(
            w=normal(2, 12, 3),
            r=normal(2, 12, 4),
            b=normal(2, 24),
            w1=normal(1, 12, 3),
            r1=normal(1, 12, 4),
            b1=normal(1, 24),
        ),
    ),
    "one index": (
        "g (float[1,5,3] x) => (float[1,3] y, float[1,5] z) <int64 first = {0}, int64 last = {-1}> "
        "{ y = Gather<axis=1>(x, first)  z = Gather<axis=-1>(x, last) }",
        {"x": normal(1, 5, 3)},
        [],
    ),
    "scattered": (
        "g (float[4,3] x, int64[2,1] i, float[2,3] u, int64[4,2] e, float[4,2] v) => "
        '(float[4,3] y, float[4,3] z, float[2,3] g) { y = ScatterND<reduction="add">(x, i, u) '
        "z = ScatterElements<axis=1>(x, e, v)  g = GatherND(x, i) }",
        {
            "x": normal(4, 3),
            "i": np.array([[3], [-4]]),
            "u": normal(2, 3),
            "e": np.array([[0, -1]] * 4),
            "v": normal(4, 2),
        },
        [],
    ),
    "quantized": (
        "g (float[1,3,6,6] x) => (float[1,4,4,4] y, uint8[1,3,6,6] q) { "
        "q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  w = DequantizeLinear<axis=0>(k, ks, kz) "
        "c = Conv(d, w)  r = QuantizeLinear(c, s, z)  y = DequantizeLinear(r, s, z) }",
        {"x": normal(1, 3, 6, 6)},
        constants(
            s=np.array(0.02, np.float32),
            z=np.array(120, np.uint8),
            k=GENERATOR.integers(-9, 9, (4, 3, 3, 3), np.int8),
            ks=np.array([0.01, 0.02, 0.03, 0.04], np.float32),
            kz=np.zeros(4, np.int8),
        ),
    ),
    "integer products": (
        "g (float[2,6] x) => (int32[2,3] y, float f) { "
        "q, f, z = DynamicQuantizeLinear(x)  y = MatMulInteger(q, w, z) }",
        {"x": normal(2, 6)},
        constants(w=GENERATOR.integers(-9, 9, (6, 3), np.int8)),
    ),
    "einsum": (
        "g (float[2,3,4] x, float[2,4,5] y) => (float[2,5,3] z, float[4] s) { "
        'z = Einsum<equation="bij,bjk->bki">(x, y) '
        's = Einsum<equation="bij->j">(x) }',
        {"x": normal(2, 3, 4), "y": normal(2, 4, 5)},
        [],
    ),
    "normalized": (
        "g (float[2,4,3,3] x, float[4] s) => "
        "(float[2,4,3,3] y, float[2,4,3,3] l, float[2,4,3,3] p, float[2,4,3,3] m) { "
        "i = InstanceNormalization(x, s, s)  y = GroupNormalization<num_groups=2>(i, s, s)  l = LRN<size=3>(x) "
        "p = LpNormalization<axis=1>(x)  m = MeanVarianceNormalization(x) }",
        {"x": normal(2, 4, 3, 3), "s": normal(4)},
        [],
    ),
    "padded": (
        'g (float[3,4] x) => (float[5,6] y, float[4,5] z) { y = Pad<mode="wrap">(x, p)  z = Pad<mode="edge">(x, c) }',
        {"x": normal(3, 4)},
        constants(p=np.array([1, 1, 1, 1]), c=np.array([2, 1, -1, 0])),
    ),
    "transposed convolutions": (
        "g (float[1,2,4,4] x) => (float[1,3,9,9] y, float[1,3,8,8] z) { "
        "y = ConvTranspose<strides=[2,2], output_padding=[1,1], pads=[1,1,0,0]>(x, w, b) "
        'z = ConvTranspose<strides=[2,2], auto_pad="SAME_UPPER">(x, w, b) }',
        {"x": normal(1, 2, 4, 4)},
        constants(w=normal(2, 3, 3, 3), b=normal(3)),
    ),
    "computed sizes": (
        "g (float[n,m,6] x, float[9,2] t) => (float[n,m,2,3] y, float[m,2] z) { s = Shape<start=0, end=2>(x) "
        "k = Concat<axis=0>(s, two)  y = Reshape(x, k)  l = Shape<start=1, end=2>(x)  z = Slice(t, zero, l, zero) }",
        {"x": normal(2, 4, 6), "t": normal(9, 2)},
        constants(two=np.array([2, -1]), zero=np.array([0])),
    ),
}
"""ONNX text, inputs and constants by family."""


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_of_operators_computes_what_onnxruntime_does(name, sdk, parse):
    import ort_core as ort

    text, feeds, weights = FAMILIES[name]
    model = parse(text)
    model.graph.initializer.extend(weights)
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.strict_placement = True
    given = model.SerializeToString()
    own = ort.InferenceSession(given, settings, providers=["CoreMLEvaluationExecutionProvider"], enable_fallback=False)
    judges = {
        "onnxruntime": onnxruntime.InferenceSession(given, providers=["CPUExecutionProvider"]),
        "the reference": ort.InferenceSession(given, providers=["ReferenceExecutionProvider"]),
    }
    for judge, session in judges.items():
        names = [each.name for each in session.get_outputs()]
        for output, found, expected in zip(names, own.run(None, feeds), session.run(None, feeds), strict=True):
            facts = compare(np.asarray(found), np.asarray(expected), "approximate")
            assert facts.passes, f"{output}, beside {judge}: {facts}"
