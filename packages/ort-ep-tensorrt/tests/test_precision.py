"""Precision: casts to narrow types, the nodes that stay in float32, and inputs and outputs that keep their types."""

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from ort_core.plugin import InvalidArgument
from ort_core.testing.claims import typed_model, view_of
from ort_core.tolerances import compare
from ort_ep_tensorrt.building import build_engine
from ort_ep_tensorrt.compilation import kept_lines
from ort_ep_tensorrt.lowered import Lowered, lower
from ort_ep_tensorrt.lowering.legalization import Changes
from ort_ep_tensorrt.program import program_of
from ort_ep_tensorrt.provider import TensorrtExecutionProvider
from ort_ep_tensorrt.ranges import Bounds
from ort_ep_tensorrt.settings import BuildSettings

HEADER = '<ir_version: 10, opset_import: ["" : 21]> '
FLOAT, HALF, BRAIN = 1, 10, 16
CHAIN = (
    "g (float[4,8] x, float[8,8] w) => (float[4,8] y) "
    "{ a = MatMul(x, w)  b = Relu(a)  p = Softmax(b)  c = Mul(p, b)  y = Tanh(c) }"
)


def narrowed(text, precision="float16", **changes):
    """Return the program of a graph in a narrow type, and its model with inferred types."""
    view = view_of(typed_model(onnx.parser.parse_model(HEADER + text)))
    program = program_of(view, view.nodes, Changes(precision=precision, **changes))
    return program, onnx.shape_inference.infer_shapes(onnx.load_from_string(program.content), strict_mode=True)


def types_by_operator(model):
    """Return the element types that each operator computes in."""
    known = {each.name: each.type.tensor_type.elem_type for each in (*model.graph.value_info, *model.graph.output)}
    return {node.op_type: known[node.output[0]] for node in model.graph.node if node.op_type != "Cast"}


@pytest.mark.parametrize(("precision", "narrow"), [("float16", HALF), ("bfloat16", BRAIN)])
def test_nodes_compute_in_the_narrow_type_but_for_those_that_sum(precision, narrow):
    program, model = narrowed(CHAIN, precision)
    found = types_by_operator(model)
    assert found == {"MatMul": narrow, "Relu": narrow, "Softmax": FLOAT, "Mul": narrow, "Tanh": narrow}
    assert list(program.kept) == [2]
    assert "Softmax stays in float32: it sums" in program.kept[2]


def test_inputs_and_outputs_keep_their_types_and_names():
    _, model = narrowed(CHAIN)
    assert [(i.name, i.type.tensor_type.elem_type) for i in model.graph.input] == [("x", FLOAT), ("w", FLOAT)]
    assert [(o.name, o.type.tensor_type.elem_type) for o in model.graph.output] == [("y", FLOAT)]


def test_between_narrow_nodes_there_is_no_cast():
    _, model = narrowed("g (float[4] x) => (float[4] y) { a = Relu(x)  b = Neg(a)  y = Tanh(b) }")
    assert [node.op_type for node in model.graph.node] == ["Cast", "Relu", "Neg", "Tanh", "Cast"]


def test_the_numbers_are_those_of_float16():
    random = np.random.default_rng(5)
    x, w = random.standard_normal((4, 8)).astype(np.float32), random.standard_normal((8, 8)).astype(np.float32)
    _, model = narrowed("g (float[4,8] x, float[8,8] w) => (float[4,8] y) { a = MatMul(x, w)  y = Tanh(a) }")
    found = ReferenceEvaluator(model).run(None, {"x": x, "w": w})[0]  # onnxruntime takes casts away on a processor
    exact = np.tanh(x.astype(np.float64) @ w)
    error = np.abs(found - exact).max()
    assert 1e-6 < error < 2e-2, "float32 would be closer, and a wrong number further away"


@pytest.mark.parametrize(
    ("text", "precision", "words"),
    [
        ("g (float[4] x) => (float[4] y) <float c = {1e9}> { y = Add(x, c) }", "float16", "holds 1e+09, more than"),
        ("g (float[4] x) => (float[4] y) <float c = {1e-12}> { y = Add(x, c) }", "float16", "which is 0 in float16"),
        ("g (float[4] x) => (float[4] y) { y = Exp(x) }", "bfloat16", "leave the digits or the range"),
        (
            "g (int8[4,4] x, float[4,4] w) => (float[4,4] y) <float s = {0.5}> "
            "{ a = DequantizeLinear(x, s)  y = MatMul(a, w) }",
            "float16",
            "it reads quantized values",
        ),
        (
            "g (bool c, float[4] x) => (float[4] y) { y = If(c) <then_branch = t () => (float[4] a) { a = Exp(x) }, "
            "else_branch = e () => (float[4] b) { b = Neg(x) }> }",
            "float16",
            "its bodies keep their types",
        ),
    ],
    ids=["large", "small", "curve", "quantized", "bodies"],
)
def test_a_node_that_needs_float32_stays_so_with_its_reason(text, precision, words):
    program, model = narrowed(text, precision)
    assert any(words in reason for reason in program.kept.values()), program.kept
    assert FLOAT in types_by_operator(model).values()
    assert HALF not in types_by_operator(model).values()


def test_bfloat16_has_the_range_of_float32():
    program, _ = narrowed("g (float[4] x) => (float[4] y) <float c = {1e9}> { y = Add(x, c) }", "bfloat16")
    assert not program.kept


def test_layer_normalization_is_narrow_unless_the_user_says_otherwise():
    text = "g (float[4,8] x, float[8] s) => (float[4,8] y) { y = LayerNormalization(x, s) }"
    assert types_by_operator(narrowed(text)[1]) == {"LayerNormalization": HALF}
    program, model = narrowed(text, keeps_normalizations=True)
    assert types_by_operator(model) == {"LayerNormalization": FLOAT}
    assert "trt_layer_norm_fp32_fallback" in program.kept[0]


def test_what_only_moves_numbers_of_float32_is_left_alone():
    text = "g (float[4,8] x) => (float[8,4] y) { a = Exp(x)  b = Transpose(a)  y = Log(b) }"
    _, model = narrowed(text)
    assert [node.op_type for node in model.graph.node] == ["Exp", "Transpose", "Log"]


def test_reasons_are_told_with_how_often_they_hold():
    program, _ = narrowed("g (float[4] x) => (float[4] y) { a = Exp(x)  b = Exp(a)  y = Log(b) }")
    assert [line[:8] for line in kept_lines(program.kept)] == ["2 x Exp ", "1 x Log "]


def test_a_session_says_which_nodes_stay(session, builds, caplog):
    with session("g (float[2,4] x) => (float[2,4] y) { a = Relu(x)  y = Exp(a) }", trt_fp16_enable="1") as opened:
        x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
        found = opened.run(None, {"x": x})[0]
    assert compare(found.astype(np.float16), np.exp(np.maximum(x, 0)).astype(np.float16), "rounding").passes
    assert "computes in float16; 1 of its 2 nodes stay in float32; 1 x Exp stays" in caplog.text
    assert [node.op_type for node in builds[0]["model"].graph.node] == ["Cast", "Relu", "Cast", "Exp"]


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_tensorrt_rtx_builds_what_is_narrow(rtx, precision):
    view = view_of(typed_model(onnx.parser.parse_model(HEADER + CHAIN)))
    settings = BuildSettings(caches_timings=False, precision=precision)
    found = lower(view, view.nodes, rtx, settings)
    assert isinstance(found, Lowered)
    kinds = [text.partition("[")[0] for _, text in found.network.layers()]
    assert {"half", "bf16"} & set(kinds)
    assert len(build_engine(rtx, found.program, settings, Bounds({})).content) > 1000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"trt_fp16_enable": "1", "trt_bf16_enable": "1"}, "choose one"),
        ({"trt_layer_norm_fp32_fallback": "1"}, "nothing is computed in a narrow type"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, words):
    with pytest.raises(InvalidArgument, match=words):
        TensorrtExecutionProvider(options)
