"""Packages that were built, saved and read back, computed without Core ML: against the reference provider."""

from __future__ import annotations

import numpy as np
import pytest

import ort_core as ort
from ort_core.tolerances import compare
from ort_ep_coreml.evaluation.table import OWN_VALUES

pytestmark = pytest.mark.usefixtures("sdk")

PARTS = {
    "elementwise": (
        "g (float[n,4] x, float[4] s) => (float[n,4] y, bool[n,4] z) <float one = {1}, float low = {-1}> "
        "{ a = Abs(x)  b = Add(a, one)  c = Log(b)  d = Clip(x, low, one)  e = HardSwish(d)  f = Erf(e)  h = "
        "PRelu(x, s) "
        "i = Div(f, b)  j = Sum(c, i, h)  k = Max(j, x)  z = Greater(k, one)  l = Where(z, x, k)  m = Reciprocal(b) "
        "o = Selu(l)  p = Softplus(o)  q = Gelu(p)  r = Sub(q, m)  t = Elu(r)  u = LeakyRelu(t)  v = Pow(b, u) "
        "w = Mean(v, u)  y = HardSigmoid(w) }"
    ),
    "products": (
        "g (float[n,3,4] x) => (float[n,3,2] y) <float[4,2] w = {1,2,3,4,5,6,7,8}, float[2] b = {1,2}> "
        "{ a = MatMul(x, w)  c = Add(a, b)  y = Softmax(c) }"
    ),
    "gemm": (
        "g (float[4,3] x) => (float[3,2] y) <float[2,4] w = {1,2,3,4,5,6,7,8}, float[2] b = {1,2}> "
        "{ y = Gemm<alpha=0.5, beta=2.0, transA=1, transB=1>(x, w, b) }"
    ),
    "convolutions": (
        "g (float[2,4,8,9] x) => (float[2,4,4,5] y) <float[4,2,3,3] w, float[4] b> "
        "{ a = Conv<group=2, strides=[2,2], pads=[1,1,1,1]>(x, w, b)  c = Relu(a) "
        "y = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(c) }"
    ),
    "dilated_convolution": (
        "g (float[1,4,9] x) => (float[1,4,9] y) <float[4,4,3] w> "
        '{ y = Conv<dilations=[2], auto_pad="SAME_LOWER">(x, w) }'
    ),
    "transposed_convolution": (
        "g (float[1,4,3,3] x) => (float[1,4,5,5] y) <float[4,2,3,3] w, float[4] b> "
        "{ y = ConvTranspose<group=2, strides=[2,2], pads=[1,1,1,1]>(x, w, b) }"
    ),
    "pools": (
        "g (float[1,2,6,6] x) => (float[1,2,1,1] y, float[1,2,1,1] z) "
        "{ a = MaxPool<kernel_shape=[2,2], strides=[2,2], pads=[0,0,1,1]>(x)  y = GlobalMaxPool(a) "
        "b = AveragePool<kernel_shape=[2,2], count_include_pad=1, pads=[1,0,0,1]>(x)  z = GlobalAveragePool(b) }"
    ),
    "normalizations": (
        "g (float[2,4,6] x) => (float[2,4,6] y) <float[4] s, float[4] b, float[4] m, float[4] v = {1,2,3,4}, "
        "float[6] t> "
        "{ a = BatchNormalization(x, s, b, m, v)  c = InstanceNormalization(a, s, b) "
        "d = LayerNormalization(c, t, t)  y = LogSoftmax<axis=1>(d) }"
    ),
    "reductions": (
        "g (float[n,3,4] x) => (float[n,4] y, int64[n,3] i) <int64[1] a = {1}, int64[1] z = {-1}> "
        "{ b = ReduceMean<keepdims=0>(x, a)  c = ReduceMax<keepdims=0>(x, a)  d = ReduceL2<keepdims=0>(x, a) "
        "e = ReduceLogSumExp<keepdims=0>(x, a)  f = ReduceSumSquare<keepdims=0>(x, a)  y = Sum(b, c, d, e, f) "
        "i = ArgMax<axis=-1, keepdims=0>(x) }"
    ),
    "movement": (
        "g (float[n,4,6] x) => (float[k,3,3,2] y) <int64[2] p = {2,4}, int64[1] b = {1}, "
        "int64[1] e = {9223372036854775807}, int64[1] l = {2}, int64[3] q = {-1,9,2}, int64[1] u = {1}, "
        "int64[4] r = {-1,3,3,2}> "
        "{ f, h = Split<axis=2>(x, p)  a = Concat<axis=2>(h, f)  t = Transpose<perm=[0,2,1]>(a)  c = Slice(t, b, e, l) "
        "d = Reshape(c, q)  s = Unsqueeze(d, u)  v = Squeeze(s, u)  y = Reshape(v, r) }"
    ),
    "padded": (
        "g (float[2,3] x) => (float[4,6] y, float[2,5] z) <int64[4] p = {1,1,1,2}, float c = {7}, int64[4] r "
        "= {0,1,0,1}> "
        '{ y = Pad(x, p, c)  z = Pad<mode="reflect">(x, r) }'
    ),
    "rearranged": (
        "g (float[1,8,2,2] x) => (float[1,8,2,2] y) { a = DepthToSpace<blocksize=2>(x)  b = "
        "SpaceToDepth<blocksize=2>(a) "
        'c = DepthToSpace<blocksize=2, mode="CRD">(b)  y = SpaceToDepth<blocksize=2>(c) }'
    ),
    "indexed": (
        "g (float[5,4] x, int64[n] i) => (float[n,4] y, float[5,2] v, int64[5,2] k) <int64[1] two = {2}> "
        "{ y = Gather(x, i)  v, k = TopK(x, two) }"
    ),
    "tiled": (
        "g (float[2,1] x) => (float[2,2,3] y) <int64[3] s = {2,2,3}, int64[2] r = {1,3}> { a = Expand(x, s)  "
        "b = Tile(x, r) "
        "y = Add(a, b) }"
    ),
    "casts": (
        "g (float[4] x, int32[4] i) => (int32[4] y, bool[4] z, float[4] w) "
        "{ y = Cast<to=6>(x)  z = Cast<to=9>(i)  w = Cast<to=1>(z) }"
    ),
}
"""ONNX text of models that are lowered whole, by what they hold; weights without values are inputs."""


def arrays(model: ort.InferenceSession) -> dict[str, np.ndarray]:
    """Return seeded inputs; open sizes are 3, integers are from 0 to 3."""
    generator = np.random.default_rng(7)
    feeds = {}
    for each in model.get_inputs():
        shape = [size if isinstance(size, int) else 3 for size in each.shape]
        if "int" in each.type:
            feeds[each.name] = generator.integers(0, 4, shape).astype(each.type[7:-1])
        else:
            feeds[each.name] = generator.standard_normal(shape).astype(np.float32)
    return feeds


def assert_equals_reference(opened: ort.InferenceSession, model: bytes, feeds: dict[str, np.ndarray]) -> None:
    reference = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"])
    names = [each.name for each in reference.get_outputs()]
    for name, found, expected in zip(names, opened.run(None, feeds), reference.run(None, feeds), strict=True):
        assert found.dtype == expected.dtype
        facts = compare(found, expected, "approximate")
        assert facts.passes, f"{name}: {facts}"


@pytest.mark.parametrize("name", PARTS)
def test_a_package_that_was_read_back_computes_what_the_model_means(session, parse, weighted, name):
    text = weighted(PARTS[name])
    with session(text) as opened:
        assert_equals_reference(opened, parse(text).SerializeToString(), arrays(opened))


def test_one_package_serves_all_sizes(session, parse):
    text = PARTS["products"]
    with session(text) as opened:
        for size in (1, 5, 2):
            x = np.random.default_rng(size).standard_normal((size, 3, 4)).astype(np.float32)
            assert_equals_reference(opened, parse(text).SerializeToString(), {"x": x})


def test_a_size_beyond_the_option_is_computed_elsewhere(session, caplog):
    with session("g (float[n] x) => (float[n] y) { y = Relu(x) }", MaximumSize=4) as opened:
        assert opened.run(None, {"x": np.arange(-3, 3, dtype=np.float32)})[0].tolist() == [0, 0, 0, 0, 1, 2]
    assert "the program is for 1 to 4" in caplog.text


def test_values_beyond_int32_are_computed_elsewhere(session, caplog):
    x = np.array([2**40, -1], np.int64)
    with session("g (int64[2] x) => (bool[2] y) <int64 c = {7}> { y = Greater(x, c) }") as opened:
        assert opened.run(None, {"x": x})[0].tolist() == [True, False]
        assert opened.run(None, {"x": x // 2**37})[0].tolist() == [True, False]
    assert "holds values outside" in caplog.text


def test_an_index_beyond_its_axis_is_an_error(session):
    text = "g (float[4] x, int64[2] i) => (float[2] y) { y = Gather(x, i) }"
    with session(text) as opened:
        feeds = {"x": np.arange(4, dtype=np.float32), "i": np.array([-4, 3])}
        assert opened.run(None, feeds)[0].tolist() == [0, 3]
        with pytest.raises(ort.OrtError):
            opened.run(None, {**feeds, "i": np.array([0, 4])})


def test_half_precision_is_computed_where_it_is_asked_for(session):
    x = np.array([[1 + 2**-11, 2049.0]], np.float32)
    with session("g (float[1,2] x) => (float[1,2] y) { y = Sqrt(x) }", Precision="FLOAT16") as opened:
        found = opened.run(None, {"x": x})[0]
    assert found.dtype == np.float32
    assert (found == found.astype(np.float16)).all(), "the values are those of float16"
    assert compare(found, np.sqrt(x.astype(np.float16)).astype(np.float32), "approximate").passes


def test_every_own_value_is_of_an_operation_that_coremltools_has_none_for():
    from ort_ep_coreml import _sdk

    x = np.zeros((1, 4, 2, 2), np.float32)
    with pytest.raises(_sdk.SdkError, match="no value inference"):
        _sdk.values_of("pixel_shuffle", {"x": x, "upscale_factor": np.int32(2)}, "iOS17")
    assert "relu" not in OWN_VALUES


def test_words_of_mil_may_be_names_of_a_model(session):
    text = (
        "g (float[4] state, uint8[4] program) => (float[4] tuple, bool[4] any) "
        "{ tuple = Relu(state)  any = Cast<to=9>(program) }"
    )
    with session(text) as opened:
        feeds = {"state": np.array([-1, 0, 1, 2], np.float32), "program": np.array([0, 1, 255, 0], np.uint8)}
        found, flags = opened.run(None, feeds)
    assert found.tolist() == [0, 0, 1, 2]
    assert flags.tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    "chosen",
    ["y = Gather(s, first)", "t = Gather(s, both)  y = Squeeze(t)", "t = Slice(s, both, ends)  y = Squeeze(t)"],
)
def test_a_fixed_size_of_an_open_shape_is_no_output_of_a_program(sdk, parse, chosen):
    text = (
        "g (float[1,n,4] x) => (int64 y, float[1,n,4] z) <int64 first = {0}, int64[1] both = {0}, int64[1] ends = {1}> "
        f"{{ z = Relu(x)  s = Shape(x)  {chosen} }}"
    )
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    providers = ["CoreMLEvaluationExecutionProvider", "CPUExecutionProvider"]
    opened = ort.InferenceSession(parse(text).SerializeToString(), settings, providers=providers, enable_fallback=False)
    for size in (3, 5):
        y, z = opened.run(None, {"x": np.full((1, size, 4), -1, np.float32)})
        assert y == 1
        assert z.shape == (1, size, 4)
