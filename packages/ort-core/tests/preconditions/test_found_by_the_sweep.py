"""What the sweep of broken nodes has found wrong, each beside independent truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import ort_core as ort

PROVIDERS = ("CPUExecutionProvider", "ReferenceExecutionProvider")
MS = "com.microsoft"


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["": 21, "{MS}": 1]> g {text}')


def run(engine: Any, content: bytes, feeds: dict[str, np.ndarray], provider: str) -> list[np.ndarray]:
    return engine.InferenceSession(content, providers=[provider]).run(None, feeds)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_input_that_is_left_out_takes_no_result_away(provider: str) -> None:
    content = model(
        "(float[1, B, 4] boxes, float[1, C, B] scores, float[1] overlap, float[1] least) => (int64[k, 3] kept) "
        '{ kept = NonMaxSuppression(boxes, scores, "", overlap, least) }'
    ).SerializeToString()
    feeds = {"boxes": np.ones((1, 3, 4), np.float32), "scores": np.ones((1, 2, 3), np.float32),
             "overlap": np.array([0.5], np.float32), "least": np.array([0], np.float32)}  # fmt: skip
    [expected] = run(onnxruntime, content, feeds, "CPUExecutionProvider")
    [found] = run(ort, content, feeds, provider)
    assert found is not None
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("value", [-1, 0, 1, 2, 2**31])
@pytest.mark.parametrize(
    ("op_type", "name"),
    [("ReduceSum", "keepdims"), ("ReduceMean", "noop_with_empty_axes"), ("ArgMax", "keepdims"), ("TopK", "largest")],
)
def test_flags_say_yes_by_one_alone(op_type: str, name: str, value: int, provider: str) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    inputs = ["x", "k"] if op_type == "TopK" else ["x"]
    outputs = ["y", "i"] if op_type == "TopK" else ["y"]
    node = helper.make_node(op_type, inputs, outputs, **{name: value})
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["a", "b"])],
        [helper.make_tensor_value_info("y", TensorProto.INT64 if op_type == "ArgMax" else TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([2]), "k")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 18)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    [expected] = run(onnxruntime, content, {"x": x}, "CPUExecutionProvider")
    [found] = run(ort, content, {"x": x}, provider)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 9, 2**31])
def test_windows_of_even_sizes_normalize_as_the_reference_implementation(size: int, provider: str) -> None:
    x = (
        np.random.default_rng(0).standard_normal((5, 5, 3, 4)).astype(np.float32)
    )  # the reference counts images as channels
    text = f"(float[N, C, H, W] x) => (float[N, C, H, W] y) {{ y = LRN<size = {size}, alpha = 0.9, bias = 2.0>(x) }}"
    [found] = run(ort, model(text).SerializeToString(), {"x": x}, provider)
    if size < 10:  # it has a loop over the channels of a window
        [expected] = ReferenceEvaluator(model(text)).run(None, {"x": x})
    else:
        expected = x / (2 + 0.9 / size * np.square(x).sum(axis=1, keepdims=True)) ** 0.75
    np.testing.assert_allclose(found, expected, rtol=2e-6)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_coordinates_without_axes_take_all_of_the_data(provider: str) -> None:
    content = model(
        f"(int64[2, 2] x, int64[3, 0] i) => (int64[a, b, c] y) {{ y = {MS}.GatherND(x, i) }}"
    ).SerializeToString()
    feeds = {"x": np.arange(4).reshape(2, 2), "i": np.zeros((3, 0), np.int64)}
    [found] = run(ort, content, feeds, provider)
    np.testing.assert_array_equal(found, np.broadcast_to(feeds["x"], (3, 2, 2)))


@pytest.mark.parametrize("scale", [0.25, 0.5])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_means_of_bytes_are_rounded_with_the_zero_point_added(provider: str, scale: float) -> None:
    text = (
        f"(uint8[1, 8, 5, 6] x) => (uint8[1, 8, a, b] y) <float s = {{{scale}}}, uint8 p = {{226}}, uint8 q = {{137}}> "
        f"{{ y = {MS}.QLinearAveragePool<kernel_shape = [2, 1]>(x, s, p, s, q) }}"
    )
    x = np.random.default_rng(0).integers(0, 256, (1, 8, 5, 6), dtype=np.uint8)
    [found] = run(ort, model(text).SerializeToString(), {"x": x}, provider)
    mean = (x[:, :, :-1].astype(int) + x[:, :, 1:].astype(int)) / 2 - 226
    np.testing.assert_array_equal(found, np.clip(np.rint(mean + 137), 0, 255).astype(np.uint8))


REFUSED = {
    "losses of other places": (
        "(float[3, 5] x, int64[2] t) => (float y) { y = NegativeLogLikelihoodLoss(x, t) }",
        {"x": np.zeros((3, 5), np.float32), "t": np.zeros(2, np.int64)}, "mismatch",
    ),
    "an axis of no dimension": (
        "(float[3, 4] x, float[4] s) => (float[3, 4] y) { y = RMSNormalization<axis = 2147483648>(x, s) }",
        {"x": np.zeros((3, 4), np.float32), "s": np.ones(4, np.float32)}, "axis",
    ),
    "a scale of more dimensions": (
        "(float[3, 4] x, float[1, 3, 4] s) => (float[3, 4] y) { y = RMSNormalization<axis = 0>(x, s) }",
        {"x": np.zeros((3, 4), np.float32), "s": np.ones((1, 3, 4), np.float32)}, "scale",
    ),
}  # fmt: skip


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", REFUSED)
def test_what_no_run_can_follow_is_refused(name: str, provider: str) -> None:
    text, feeds, message = REFUSED[name]
    proto = model(text)
    proto.opset_import[0].version = 23
    with pytest.raises(ort.OrtError, match=message):
        run(ort, proto.SerializeToString(), feeds, provider)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("rows", "bias"), [(4, 1), (5, 24)])
def test_one_token_is_projected_by_weights_and_a_bias_that_fit(rows: int, bias: int, provider: str) -> None:
    """onnxruntime has no kernel of it on the CPU; its inference asks for the same sizes."""
    text = (
        f"(float[1, 1, 4] x, float[{rows}, 24] w, float[b] bias, float[2, 1, 2, 3, 4] past, int32[1] n) "
        "=> (float[?, ?, ?] y) "
        f'{{ y, p = {MS}.DecoderMaskedSelfAttention <num_heads = 2> (x, w, bias, "", past, "", n) }}'
    )
    shapes = {"x": (1, 1, 4), "w": (rows, 24), "bias": (bias,), "past": (2, 1, 2, 3, 4)}
    feeds = {name: np.ones(shape, np.float32) for name, shape in shapes.items()} | {"n": np.array([3], np.int32)}
    with pytest.raises(ort.errors.OrtError, match=r"bias must be as long|weights must have as many rows"):
        run(ort, model(text).SerializeToString(), feeds, provider)


REQUESTS = {  # tokens, ends, and what is asked of them
    "fewer ends": (5, [0, 2, 4]), "more ends": (3, [0, 2, 4]), "a late start": (4, [1, 2, 4]),
    "back and forth": (4, [0, 3, 2, 4]), "a negative end": (4, [0, -1, 4]), "no request": (4, [0]),
}  # fmt: skip


@pytest.mark.parametrize("operator", ["convolution", "hashes"])
@pytest.mark.parametrize("case", REQUESTS)
def test_packed_requests_take_all_tokens_in_order_as_in_onnxruntime(case: str, operator: str) -> None:
    """The tokens behind the last end were what the memory held before."""
    tokens, ends = REQUESTS[case]
    if operator == "convolution":
        text = (
            "(float[T, 3] x, float[3, 1, 3] w, int32[R] e, float[B, 3, 2] s) => (float[?, ?] y, float[?, ?, ?] p) "
            f'{{ y, p = {MS}.VarlenCausalConvWithState (x, w, e, "", s) }}'
        )
        shapes = {"x": (tokens, 3), "w": (3, 1, 3), "s": (len(ends) - 1, 3, 2)}
        feeds = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    else:
        text = (
            "(int64[T] i, int64[2] m, int64[2] v, int32[R] e) => (int64[?, ?] y, int64[?, ?] p) "
            f"{{ y, p = {MS}.VarlenNGramHashMapping <max_ngram_size = 2, n_head_per_ngram = 2, pad_id = 0> "
            "(i, m, v, e) }"
        )
        feeds = {"i": np.arange(tokens), "m": np.array([3, 5]), "v": np.array([7, 11])}
    content, feeds = model(text).SerializeToString(), {**feeds, "e": np.array(ends, np.int32)}
    for engine in (onnxruntime, ort):
        with pytest.raises(Exception, match="cumulative_sequence_length"):
            run(engine, content, feeds, "CPUExecutionProvider")


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("axis", ["", "<axis = 0>"])
@pytest.mark.parametrize("shape", [(), (2, 1), (2, 2), (3, 2), (4,)])
def test_a_condition_of_any_shape_is_read_in_order(
    shape: tuple[int, ...], axis: str, is_constant: bool, provider: str
) -> None:
    """Paddle's masked_select is a Compress whose condition has the shape of its input."""
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(3, 2), "c": np.random.default_rng(1).random(shape) < 0.6}
    feeds["c"] = np.asarray(feeds["c"])
    content = model(
        f"(float[3, 2] x, bool[{', '.join(map(str, shape))}] c) => (float{'[k, 2]' if axis else '[k]'} y) "
        f"{{ y = Compress{axis}(x, c) }}"
    )
    if is_constant:
        del content.graph.input[1]
        content.graph.initializer.append(numpy_helper.from_array(feeds.pop("c"), "c"))
    [expected] = run(onnxruntime, content.SerializeToString(), feeds, "CPUExecutionProvider")
    [found] = run(ort, content.SerializeToString(), feeds, provider)
    np.testing.assert_array_equal(found, expected)
