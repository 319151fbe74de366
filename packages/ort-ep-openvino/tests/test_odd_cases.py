"""Cases at the edges of operators: what OpenVINO computes otherwise than ONNX is refused, what is beside it right."""

from __future__ import annotations

import math
import re
import warnings

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import helper, numpy_helper

import ort_core as ort
from ort_core.tolerances import compare

pytestmark = pytest.mark.usefixtures("sdk")
GENERATOR = np.random.default_rng(17)
NAME = "OpenVINOExecutionProvider"


def floats(*sizes: int) -> np.ndarray:
    return GENERATOR.standard_normal(sizes).astype(np.float32)


X, BYTES = floats(2, 3, 4), np.array([4, 200, 1], np.uint8)
QKV = [floats(1, 2, 3, 4)] * 3
RECURRENT = [floats(1, 8, 3), floats(1, 8, 2)]
TRANSPOSED = [floats(1, 2, 3, 3), floats(2, 2, 1, 3)]
THETA = floats(1, 2, 3)
BATCHES = [floats(2, 5, 3), floats(1, 8, 3), floats(1, 8, 2), floats(1, 16), None, floats(2, 1, 2), floats(2, 1, 2)]
CAUSAL = [floats(2, 3, 5), floats(3, 1, 4)]
QUANTIZED = [GENERATOR.integers(0, 255, (1, 3, 2, 2)).astype(np.uint8), *[np.array(0.1, np.float32), BYTES[0]] * 3]
NAN_LEFT, NAN_RIGHT = (np.array(values, np.float32) for values in ([np.nan, 1, 2, 3], [1, np.nan, 3, 2]))
LARGEST = np.array([3.4028235e38, -3.4028235e38, np.inf, -np.inf, np.nan, 2e38, -2e38, 3.0, -0.5, 0], np.float32)
GRID = np.array([[[[np.nan, 0.3], [np.inf, -0.2], [0.1, -np.inf], [0.4, -0.6], [1e3, 0.1], [0.3, 0.9]]]], np.float32)
TIES = np.array([[0, 0, 0, 1] * 4, [2, 1] * 8], np.float32)
HALVES = np.append(np.arange(255, dtype=np.float32) * 63 + 31.5, np.array([0, 255 * 63], np.float32))  # of 63
WRONG = {
    "a shift that loses bits": ("BitShift", 21, [BYTES, BYTES], {"direction": "LEFT"}, "saturates"),
    "a softmax of several axes": ("Softmax", 11, [X], {"axis": 1}, "several axes"),
    "a hardmax of several axes": ("Hardmax", 12, [X], {}, "several axes"),
    "a bias that is no integer": ("LRN", 21, [X], {"size": 3, "alpha": 0.3, "bias": 1.5}, "down to an integer"),
    "an even number of channels": ("LRN", 21, [X], {"size": 2, "alpha": 0.3}, "even number"),
    "gates that are coupled": ("LSTM", 14, [floats(2, 1, 3), *RECURRENT], {"hidden_size": 2, "input_forget": 1},
                               "input_forget"),
    "a mask of one key": ("Attention", 23, [*QKV, np.array([[True], [False], [True]])], {}, "shorter than the keys"),
    "windows that do not meet": ("ConvTranspose", 21, TRANSPOSED, {"strides": [2, 1], "auto_pad": "SAME_UPPER"},
                                 "do not meet"),
    "a result that is cut": ("ConvTranspose", 21, TRANSPOSED, {"output_shape": [3, 4]}, "output_shape"),
    "a window beyond the padding": ("AveragePool", 19, [floats(1, 1, 4)],
                                    {"kernel_shape": [3], "strides": [2], "ceil_mode": 1, "count_include_pad": 1},
                                    "beyond the padding"),
    "a norm of windows rounded up": ("LpPool", 21, [floats(1, 1, 4)],
                                     {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}, "ceil_mode"),
    "scales that are computed": ("Resize", 13, [floats(1, 1, 2, 4), None, np.array([1, 1, 2, 2], np.float32)], {},
                                 "not constants", (2,)),
    "a grid of one row": ("AffineGrid", 20, [THETA, np.array([1, 1, 1, 3])], {"align_corners": 1}, "align_corners"),
    "an activation that is none of them": ("CausalConvWithState", 27, CAUSAL, {"activation": "relu"}, "activation"),
    "a peephole": ("LSTM", 14, [floats(2, 1, 3), *RECURRENT, *[None] * 4, floats(1, 6)], {"hidden_size": 2}, "input 7"),
    "padding around nothing": ("Pad", 21, [X[:0, 0], np.array([1, 1, 1, 1])], {}, "holds no element"),
    "nothing of a row": ("TopK", 21, [X, np.array([0])], {}, "holds no element"),
    "how much of a row is not said": ("TopK", 21, [X, np.array([2])], {}, "nothing says how many", (1,)),
    "a grid of unsaid sizes": ("AffineGrid", 20, [THETA, np.array([1, 1, 2, 3])], {}, "not a constant", (1,)),
    "a row of unsaid length": (
        "OneHot", 11, [np.array([0, 1]), np.array(3), np.array([0, 1], np.float32)], {}, "nothing proves", (1,)
    ),
    "sequences longer than their steps": (
        "ReverseSequence", 10, [X[:, :, 0], np.array([2, 2, 9])], {"time_axis": 0}, "nothing proves"
    ),
    "an image before the first": (
        "RoiAlign", 10, [floats(2, 1, 4, 4), np.array([[0, 0, 3, 3]], np.float32), np.array([-1])], {}, "nothing proves"
    ),
    "parts of unsaid sizes": ("Split", 13, [X, np.array([1, 1])], {}, "nothing proves", (1,)),
    "repeats that are not said": ("Tile", 13, [X[0], np.array([1, 2])], {}, "nothing proves", (1,)),
    "axes that are not said": (
        "Slice", 13, [X, *(np.array([number]) for number in (0, 1, 2))], {}, "axes", (3,)
    ),
    "columns that fill no block": ("Col2Im", 18, [floats(1, 5, 4), np.array([3, 3]), np.array([2, 2])], {}, "multiple"),
    "directions of different activations": (
        "RNN", 14, [floats(2, 1, 3), floats(2, 2, 3), floats(2, 2, 2)],
        {"hidden_size": 2, "direction": "bidirectional", "activations": ["Relu", "Tanh"]}, "different activations",
    ),
    "a quantized convolution of groups": (
        "QLinearConv", 21, [*QUANTIZED[:3], BYTES.reshape(3, 1, 1, 1), *QUANTIZED[3:]], {"group": 3}, "grouped"
    ),
    "a computed scale of an old opset": (
        "QuantizeLinear", 10, [X, np.array(2, np.float32), np.array(1, np.uint8)], {}, "opset 11"
    ),
    "a scalar that stays one": ("Expand", 21, [np.array(2, np.float32), np.array([], np.int64)], {}, "scalar"),
}  # fmt: skip
"""Operator, opset, inputs, attributes and a word of the reason, by what OpenVINO takes otherwise."""
RIGHT = {
    **{
        f"{name} over axes that are an attribute, opset {opset}": (name, opset, [np.abs(X) + 1], {"axes": [1, -1]})
        for name in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceProd")
        for opset in (11, 12, 13, 17)
    },
    "causality behind a past, in parts": (
        "Attention", 24, [QKV[0][:, :, :2], *QKV[:2], None, *QKV[:2]], {"is_causal": 1}
    ),
    "a NaN on either side of a maximum": ("Max", 13, [NAN_LEFT, NAN_RIGHT], {}),
    "a NaN on either side of a minimum": ("Min", 13, [NAN_LEFT.astype(np.float16), NAN_RIGHT.astype(np.float16)], {}),
    **{
        f"{operator} of NaN, {dtype}": (operator, 13, [array.astype(dtype) for array in (NAN_LEFT, NAN_RIGHT)], {})
        for operator in ("Equal", "Greater", "Less")
        for dtype in ("float32", "float16")
    },
    **{
        f"a sum that is its argument, {equation}": ("Einsum", 12, [X], {"equation": equation})
        for equation in ("abc->abc", "...->...", "a b c", "...c->...c", "abc->acb")
    },
    "a bias that counts nothing": (
        "Gemm", 13, [X[0], X[1], np.full((3, 3), np.inf, np.float32)], {"beta": 0.0, "transB": 1}
    ),
    "no less than NaN": ("GreaterOrEqual", 16, [NAN_LEFT, NAN_LEFT], {}),
    "the largest of numbers and NaN": ("ReduceMax", 18, [NAN_LEFT.reshape(2, 2), np.array([1])], {}),
    "the least of numbers, NaN and infinities": ("ReduceMin", 18, [LARGEST.reshape(5, 2), np.array([1])], {}),
    "the least of nothing but infinities": ("ReduceMin", 18, [np.full((2, 2), np.inf, np.float32), np.array([0])], {}),
    **{
        f"equals in their order, {count} {'largest' if largest else 'least'}": (
            "TopK", 21, [TIES, np.array([count])], {"largest": largest},
        )
        for count in (3, 14, 16)
        for largest in (0, 1)
    },
    "the largest of three": ("Max", 13, [X, X[::-1].copy(), X * 2], {}),
    "a row of a known length": ("OneHot", 11, [np.array([0, 1]), np.array(3), np.array([0, 1], np.float32)], {}),
    "sequences within their steps": ("ReverseSequence", 10, [X[:, :, 0], np.array([2, 1, 2])], {"time_axis": 0}),
    "images of the batch": (
        "RoiAlign", 16, [floats(2, 1, 4, 4), np.array([[0, 0, 3, 3]], np.float32), np.array([1])],
        {},
    ),
    "the largest of a row": ("TopK", 21, [X, np.array([2])], {}),
    "directions of equal activations": (
        "RNN", 14, [floats(2, 1, 3), floats(2, 2, 3), floats(2, 2, 2)],
        {"hidden_size": 2, "direction": "bidirectional", "activations": ["Relu", "Relu"]},
    ),
    "a shift to the right": ("BitShift", 21, [BYTES, BYTES % 8], {"direction": "RIGHT"}),
    "a softmax of the last axis": ("Softmax", 11, [X], {"axis": 2}),
    "a softmax of one axis": ("Softmax", 13, [X], {"axis": 0}),
    "an odd number of channels": ("LRN", 21, [X], {"size": 3, "alpha": 0.3, "bias": 2.0}),
    "four gates": ("LSTM", 14, [floats(2, 1, 3), *RECURRENT], {"hidden_size": 2}),
    "causality of as many queries as keys": ("Attention", 24, [*QKV, None, *QKV[:2]], {"is_causal": 1}),
    "a past without causality": ("Attention", 24, [*QKV, None, *QKV[:2]], {}),
    "a mask of all keys": ("Attention", 23, [*QKV, np.array([[True, False, True]] * 3)], {}),
    "windows that meet": ("ConvTranspose", 21, TRANSPOSED, {"strides": [1, 2], "auto_pad": "SAME_LOWER"}),
    "a window that ends in the padding": ("AveragePool", 19, [floats(1, 1, 4)],
                                          {"kernel_shape": [3], "strides": [2], "pads": [0, 1], "ceil_mode": 1,
                                           "count_include_pad": 1}),
    "a result that is larger than it comes": ("ConvTranspose", 21, TRANSPOSED, {"strides": [1, 2],
                                                                               "output_shape": [3, 8]}),
    "a result as large as it comes": ("ConvTranspose", 21, TRANSPOSED, {"output_shape": [3, 5]}),
    "a window rounded up": ("AveragePool", 19, [floats(1, 1, 4)],
                            {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}),
    "four gates of batches first": ("LSTM", 14, BATCHES, {"hidden_size": 2, "layout": 1}),
    "three gates of batches first": ("GRU", 14, [BATCHES[0], floats(1, 6, 3), floats(1, 6, 2)],
                                     {"hidden_size": 2, "layout": 1, "linear_before_reset": 1}),
    "both directions of batches first": ("RNN", 14, [BATCHES[0], floats(2, 2, 3), floats(2, 2, 2)],
                                         {"hidden_size": 2, "layout": 1, "direction": "bidirectional"}),
    "a causal convolution without a past": ("CausalConvWithState", 27, CAUSAL, {}),
    "a causal convolution behind a past": ("CausalConvWithState", 27, [*CAUSAL, floats(3), floats(2, 3, 3)],
                                           {"activation": "swish"}),
    "a causal convolution of one tap": ("CausalConvWithState", 27, [CAUSAL[0], floats(3, 1, 1)],
                                        {"activation": "silu"}),
    "a causal convolution of fewer steps than taps": ("CausalConvWithState", 27, [floats(1, 3, 2), CAUSAL[1]], {}),
    "a Gelu of the largest numbers": ("Gelu", 20, [LARGEST], {}),
    "a Gelu of the largest numbers by tanh": ("Gelu", 20, [LARGEST], {"approximate": "tanh"}),
    **{
        f"a grid with places that are none, {mode}, {padding}": (
            "GridSample", 20, [floats(1, 2, 4, 5), GRID], {"mode": mode, "padding_mode": padding},
        )
        for mode in ("linear", "nearest", "cubic")
        for padding in ("zeros", "border", "reflection")
    },
    "a gate": ("SwiGLU", 28, [X, X[::-1].copy()], {"alpha": 0.5}),
    "a grid of two rows": ("AffineGrid", 20, [THETA, np.array([1, 1, 2, 3])], {"align_corners": 1}),
}  # fmt: skip
OUTPUTS = {"CausalConvWithState": 2, "DynamicQuantizeLinear": 3, "GRU": 2, "LSTM": 3, "RNN": 2, "TopK": 2}
"""How many outputs an operator has that has more than one."""


def model_of(
    op_type: str, opset: int, inputs: list, attributes: dict, fed: tuple[int, ...] = ()
) -> tuple[bytes, dict[str, np.ndarray]]:
    """Return a model of one node with all outputs that it has, its integers constants but those fed, and its feeds."""
    outputs = [f"y{place}" for place in range(OUTPUTS.get(op_type, 1))]
    named = {f"i{place}": array for place, array in enumerate(inputs) if array is not None}
    names = [f"i{place}" if array is not None else "" for place, array in enumerate(inputs)]
    feeds = {name: array for name, array in named.items() if array.dtype != np.int64 or int(name[1:]) in fed}
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in feeds.items()}
    graph = helper.make_graph(
        [helper.make_node(op_type, names, outputs, **attributes)],
        "g",
        [helper.make_tensor_value_info(name, kinds[name], array.shape) for name, array in feeds.items()],
        [onnx.ValueInfoProto(name=output) for output in outputs],
        [numpy_helper.from_array(array, name) for name, array in named.items() if name not in feeds],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return model.SerializeToString(), feeds


def session_on(model: bytes, *providers: str) -> ort.InferenceSession:
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of placement: it is asserted
        return ort.InferenceSession(model, settings, providers=list(providers), enable_fallback=False)


@pytest.mark.parametrize("name", WRONG)
def test_what_openvino_computes_otherwise_is_refused(name: str) -> None:
    op_type, opset, inputs, attributes, why, *fed = WRONG[name]
    model, _ = model_of(op_type, opset, inputs, attributes, *fed)
    report = session_on(model, NAME, "ReferenceExecutionProvider").explain()
    assert not report.on(NAME)
    reasons = [each.reason for node in report.nodes for each in node.refusals if each.provider == NAME]
    assert re.search(why, reasons[0]), reasons


@pytest.mark.parametrize(
    ("op_type", "scales", "why"),
    [
        ("Resize", (1.1, 2), "though it has another scale"),
        ("Upsample", (2, 1.1), "though it has another scale"),
        ("Upsample", (1, 1.75), "whole times"),
        ("Resize", (2, 0.5), None),
        ("Upsample", (2, 3), None),
    ],
)
def test_scales_are_held_against_the_sizes_that_they_make(op_type: str, scales: tuple, why: str | None) -> None:
    given = numpy_helper.from_array(np.array([1, 1, *scales], np.float32), "s")
    names = ["x", "", "s"] if op_type == "Resize" else ["x", "s"]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 1, 2, 4])],
        [onnx.ValueInfoProto(name="y")],
        [given],
    )
    opset = helper.make_opsetid("", 13 if op_type == "Resize" else 9)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString()
    report = session_on(model, NAME, "ReferenceExecutionProvider").explain()
    reasons = [each.reason for node in report.nodes for each in node.refusals if each.provider == NAME]
    assert bool(report.on(NAME)) == (why is None)
    assert not reasons if why is None else why in reasons[0]


@pytest.mark.parametrize("name", RIGHT)
def test_what_lies_beside_it_is_claimed_and_right(name: str) -> None:
    model, feeds = model_of(*RIGHT[name])
    own = session_on(model, NAME, "ReferenceExecutionProvider")
    assert own.explain().on(NAME)
    expected = session_on(model, "ReferenceExecutionProvider").run(None, feeds)
    for found, right in zip(own.run(None, feeds), expected, strict=True):
        facts = compare(found, right, "approximate")
        assert facts.passes, facts


@pytest.mark.parametrize(
    ("op_type", "others"),
    [("QuantizeLinear", [np.array(63, np.float32), np.array(1, np.uint8)]), ("DynamicQuantizeLinear", [])],
)
def test_quotients_by_a_scale_that_is_computed_are_rounded_as_halves_where_they_are(op_type: str, others: list) -> None:
    model, feeds = model_of(op_type, 13, [HALVES, *others], {})
    own = session_on(model, NAME, "ReferenceExecutionProvider")
    assert own.explain().on(NAME)
    expected = session_on(model, "ReferenceExecutionProvider").run(None, feeds)
    np.testing.assert_array_equal(own.run(None, feeds)[0], expected[0])


@pytest.mark.parametrize("numbers", [[0, 0], [3, 3], [-2, -5], [7, -1], [1e-38, 0], [3e38, -3e38], [np.inf, 1]])
def test_a_dynamic_scale_is_one_of_zeros_and_what_the_reference_finds_of_others(numbers: list[float]) -> None:
    model, feeds = model_of("DynamicQuantizeLinear", 13, [np.array(numbers, np.float32)], {})
    own = session_on(model, NAME, "ReferenceExecutionProvider")
    assert own.explain().on(NAME)
    expected = session_on(model, "ReferenceExecutionProvider").run(None, feeds)
    for found, right in zip(own.run(None, feeds), expected, strict=True):
        np.testing.assert_array_equal(found, right)


OPEN = {
    "a padded row that may be empty": (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[n,3] x) => (float[m,k] y) <int64[4] p = {1, 0, 1, 0}> '
        "{ y = Pad(x, p) }",
        {},
        [{"x": floats(n, 3)} for n in (2, 0, 1)],
    ),
    "a slice of a convolution, sometimes of nothing": (
        '<ir_version: 10, opset_import: ["" : 23]> g (float[4,31,n] x, float[1,31,5] w) => (float[a,b,c] y) '
        "<int64[2] f = {-2, -2}, int64[2] t = {9, 1}, int64[2] axes = {1, 2}, int64[2] s = {2, 2}> "
        "{ v = Conv<kernel_shape=[5], pads=[2,2]>(x, w)  y = Slice(v, f, t, axes, s) }",
        {"w": floats(1, 31, 5)},
        [{"x": floats(4, 31, n)} for n in (7, 2, 8, 1)],
    ),
    "a causal convolution": (
        '<ir_version: 13, opset_import: ["" : 27]> g (float[b,3,n] x, float[3,1,4] w, float[b,3,3] p) => '
        '(float[b,3,n] y, float[b,3,3] s) { y, s = CausalConvWithState<activation="silu">(x, w, , p) }',
        {"w": CAUSAL[1]},
        [{"x": floats(b, 3, n), "p": floats(b, 3, 3)} for b, n in ((1, 1), (2, 7), (3, 2), (1, 0))],
    ),
    "gates of batches first": (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[b,n,3] x, float[1,6,3] w, float[1,6,2] r, float[b,1,2] h) '
        "=> (float[b,n,1,2] y, float[b,1,2] s) { y, s = GRU<hidden_size=2, layout=1>(x, w, r, , , h) }",
        {"w": floats(1, 6, 3), "r": floats(1, 6, 2)},
        [{"x": floats(b, n, 3), "h": floats(b, 1, 2)} for b, n in ((1, 1), (2, 7), (3, 2))],
    ),
}
"""Model, weights, and what it is fed one after the other, by what is run with open sizes."""


@pytest.mark.parametrize("name", OPEN)
def test_sizes_that_are_open_may_change(name: str) -> None:
    text, weights, runs = OPEN[name]
    model = onnx.parser.parse_model(text).SerializeToString()
    own, reference = (
        session_on(model, NAME, "ReferenceExecutionProvider"),
        session_on(model, "ReferenceExecutionProvider"),
    )
    assert own.explain().on(NAME)
    for feeds in runs:
        expected = reference.run(None, weights | feeds)
        for found, right in zip(own.run(None, weights | feeds), expected, strict=True):
            facts = compare(found, right, "approximate")
            assert facts.passes, facts


@pytest.mark.parametrize("moved", ["Identity(h)", "Transpose(h)", "Relu(h)"])
@pytest.mark.parametrize("sizes", ["3,4", "n,m"])
def test_a_conversion_to_float16_and_back_rounds(moved: str, sizes: str) -> None:
    text = (
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[{sizes}] x) => (float[a,b] y) '
        f"{{ h = Cast<to=10>(x)  i = {moved}  y = Cast<to=1>(i) }}"
    )
    own = session_on(onnx.parser.parse_model(text).SerializeToString(), NAME, "ReferenceExecutionProvider")
    for size in (3,) if sizes == "3,4" else (3, 31, 1):
        x = np.full((size, 4), 1.0002, np.float32)
        (found,) = own.run(None, {"x": x})
        if moved.startswith("Relu"):  # computed in float32, as every operator between is
            np.testing.assert_allclose(found, x, rtol=1e-3)
        else:
            assert found.tolist() == (x.T if moved.startswith("Transpose") else x).astype(np.float16).tolist()


SCALED = (
    ("a = LayerNormalization(x, c)", "refused"),
    ("n = LayerNormalization(x, c)  a = Neg(n)", "refused"),
    ("n = MeanVarianceNormalization<axes = [1]>(x)  a = Mul(n, c)", "refused"),
    ("n = Softmax(x)  a = Mul(n, c)", "refused"),
    ("a = Mul(x, c)", "refused"),
    ("a = Div(x, c)", "refused"),
    ("n = LayerNormalization(x, c)  m = Mul(n, c)  p = Add(m, c)  a = Relu(p)", "claimed"),
    ("n = Softmax(x)  a = Add(n, c)", "claimed"),
    ("a = Mul(x, s)", "claimed"),
)


@pytest.mark.parametrize(("nodes", "wanted"), SCALED)
@pytest.mark.parametrize("rows", ["3", "n"])
def test_a_scaled_matrix_is_quantized_rightly(session, nodes: str, wanted: str, rows: str) -> None:
    """OpenVINO makes one kernel of all of it, which takes the scales of other columns."""
    scale = ", ".join(str(number) for number in (1.5, -0.5, 0.25, 2.0, -1.0, 0.75, 0.1, 3.0))
    constants = f"float[8] c = {{{scale}}}, float s = {{0.05}}, int8 z = {{0}}"
    body = f"g (float[{rows},8] x) => (int8[{rows},8] y) <{constants}> {{ {nodes}  y = QuantizeLinear(a, s, z) }}"
    own = session(body)
    assert ("scales of other columns" in str(own.explain())) == (wanted == "refused")
    feeds = {"x": floats(3, 8)}
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {body}')
    (right,) = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    assert np.abs(own.run(None, feeds)[0].astype(int) - right).max() <= 1, "a neighbor, where a tie is rounded"


@pytest.mark.parametrize(("dtype", "point", "is_claimed"), [
    ("uint16", 32768, False), ("int16", -32768, False), ("uint16", 200, True), ("int16", 0, True), ("uint8", 255, True),
])  # fmt: skip
@pytest.mark.parametrize("size", ["6", "n"])
def test_a_number_near_its_zero_point_keeps_its_digits(
    session, dtype: str, point: int, is_claimed: bool, size: str
) -> None:
    own = session(
        f"g ({dtype}[{size}] x) => (float[{size}] y) <float s = {{0.0479}}, {dtype} z = {{{point}}}> "
        "{ y = DequantizeLinear(x, s, z) }"
    )
    assert bool(own.explain().on(NAME)) == is_claimed
    steps = np.array([0, 1, -1, 4, 17, -30])
    limits = np.iinfo(dtype)
    x = np.clip(point + steps, limits.min, limits.max)
    expected = (x - point) * np.float64(np.float32(0.0479))
    np.testing.assert_allclose(own.run(None, {"x": x.astype(dtype)})[0], expected, rtol=1e-5, atol=1e-6)


def test_a_nan_is_counted_once(session) -> None:
    own = session("g (float[3] x) => (float[u] y, int64[u] c) { y, i, j, c = Unique(x) }")
    x = np.array([np.nan, 1, 1], np.float32)
    assert [each.tolist() for each in own.run(None, {"x": x})][1] == [2, 1]


@pytest.mark.parametrize("node", ["Gelu(x)", "BiasGelu(x, x)"])
def test_a_gelu_in_parts_holds_for_the_largest_numbers(session, node: str) -> None:
    """OpenVINO takes the parts for one operator again, which overflows."""
    text = f"g (float[10] x) => (float[10] y) {{ y = com.microsoft.{node} }}"
    own = session(text)
    assert own.explain().on(NAME)
    with np.errstate(over="ignore", invalid="ignore"):
        x = (LARGEST + LARGEST if node.startswith("Bias") else LARGEST).astype(np.float64)
        expected = (x * ((np.vectorize(math.erf)(x / math.sqrt(2)) + 1) / 2)).astype(np.float32)
    facts = compare(own.run(None, {"x": LARGEST})[0], expected, "approximate")
    assert facts.passes, facts


@pytest.mark.parametrize("size", ["256", "n"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16, np.int32, np.int64])
def test_integers_are_those_of_numpy_whether_sizes_are_fixed_or_open(dtype: type, size: str) -> None:
    """Kernels for open sizes are generated, and others than those for fixed ones."""
    text = np.dtype(dtype).name
    lowest = 0 if text.startswith("u") else -100
    x = GENERATOR.integers(lowest, 100, 256).astype(dtype)
    z = GENERATOR.integers(1, 50, 256).astype(dtype)
    truncated = (np.abs(x.astype(np.int64)) // z * np.sign(x)).astype(dtype)
    expected = {"Div": truncated, "Mod": x % z, "Min": np.minimum(x, z), "Max": np.maximum(x, z), "Sub": x - z}
    if dtype is np.uint8:
        expected["BitShift"] = x >> (z % 8)
    results = ", ".join(f"{text}[{size}] {name}" for name in expected)
    nodes = " ".join(f"{name} = {name} (x, z)" for name in expected if name != "BitShift")
    shift = ' r = Mod (z, e)  BitShift = BitShift <direction = "RIGHT"> (x, r)' if dtype is np.uint8 else ""
    body = f"g ({text}[{size}] x, {text}[{size}] z) => ({results}) <{text} e = {{8}}> {{ {nodes}{shift} }}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {body}')
    session = ort.InferenceSession(model.SerializeToString(), providers=[NAME, "CPUExecutionProvider"])
    for name, found in zip(expected, session.run(None, {"x": x, "z": z}), strict=True):
        np.testing.assert_array_equal(found, expected[name], err_msg=name)


@pytest.mark.parametrize("axis", ["", "<axis=1>"])
def test_a_condition_that_is_longer_than_its_axis_is_computed_elsewhere(axis: str) -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[1,n] x, bool[4] c) => (float[1,a] y) '
        f"{{ v = Relu(x)  z = Compress{axis}(v, c)  f = Flatten<axis=0>(z)  y = Relu(f) }}"
    )
    model = onnx.parser.parse_model(text).SerializeToString()
    own = session_on(model, NAME, "ReferenceExecutionProvider")
    assert own.explain().on(NAME)
    condition = np.array([True, False, False, True])
    for size in (6, 4, 3, 2):
        x = np.arange(1, size + 1, dtype=np.float32).reshape(1, size)
        (found,) = own.run(None, {"x": x, "c": condition})
        np.testing.assert_array_equal(found, x[:, [place for place in (0, 3) if place < size]])


def test_more_axes_than_openvino_counts_are_refused() -> None:
    sizes = ",".join(["1"] * 39)
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> '
        f"g (float[{sizes},n] x) => (float[{sizes},1,n] y) <int64[1] a = {{39}}> {{ y = Unsqueeze(x, a) }}"
    )
    own = session_on(onnx.parser.parse_model(text).SerializeToString(), NAME, "ReferenceExecutionProvider")
    report = own.explain()
    assert not report.on(NAME)
    assert "axes" in next(each.reason for node in report.nodes for each in node.refusals if each.provider == NAME)
    x = np.ones([1] * 39 + [2], np.float32)
    assert own.run(None, {"x": x})[0].shape == (*[1] * 40, 2)


@pytest.mark.parametrize(("sizes", "stacks"), [("1,n,4", 1), ("b,n,4", 1), ("b,n,4", 2), ("n,4", 0)])
def test_a_stack_of_fixed_matrices_broadcasts_over_open_sizes(sizes: str, stacks: int) -> None:
    weights = floats(2, 4, 3)
    text = f'<ir_version: 10, opset_import: ["" : 21]> g (float[{sizes}] x) => (float[2,n,3] y) {{ y = MatMul(x, w) }}'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    own = session_on(model.SerializeToString(), NAME, "ReferenceExecutionProvider")
    for size in (1, 5):
        x = floats(stacks, size, 4) if stacks else floats(size, 4)
        facts = compare(own.run(None, {"x": x})[0], x @ weights, "approximate")
        assert facts.passes, facts
    assert not own.explain().fallbacks
