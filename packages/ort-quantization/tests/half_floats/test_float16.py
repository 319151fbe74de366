"""Models in float16 and bfloat16: the nodes of onnxruntime's tool, casts where both kinds meet, equal outputs."""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, numpy_helper, parser
from onnxruntime.transformers import float16 as theirs

import ort_core
from ort_core.errors import NoSuchFile
from ort_quantization import float16 as ours
from ort_quantization.bfloat16 import convert_float_to_bfloat16
from ort_quantization.errors import InvalidQuantization

NETWORK = """
g (float[n, 8] x, int64[1] k) => (float[n, m] y, float[n, 8] c, int64[n, m] at)
<float[8] bias = {1, 2, 3, 4, 5, 6, 7, 8}> {
    h = MatMul(x, w)
    c = Add(h, bias)
    top, at = TopK(c, k)
    two = Constant <value_float = 2.0> ()
    y = Mul(top, two)
}"""
BRANCHES = """
g (bool b, float[n, 8] x) => (float[n, 8] y) {
    y = If(b) <then_branch = t () => (float[n, 8] p) { s = Sin(x) p = CumSum(s, axis) },
               else_branch = e () => (float[n, 8] p2) { p2 = Mul(x, x) }>
}"""
RESIZED = """
g (float[1, 2, 3, 3] x) => (float[1, 2, m, k] y, float[n] s)
<float[4] scales = {1, 1, 2, 2}, int64[1] two = {2}, float[1] step = {3.0}> {
    y = Resize <mode = "nearest"> (x, , scales)
    z = ConstantOfShape(two)
    t = Cast <to = 1> (two)
    zero = Mul(t, z)
    u = Add(t, zero)
    s = Add(u, step)
}"""
SCANNED = """
g (float[1, 8] x) => (float[n, 8] y) <int64 turns = {2}> {
    kept = SequenceConstruct(x)
    all, rows = Loop(turns, , kept) <body = turn (int64 i, bool on, seq(float[]) before)
            => (bool next, seq(float[]) after, float[1, 8] row) {
        next = Identity(on)
        row = Neg(x)
        after = SequenceInsert(before, row)
    }>
    flat = Reshape(rows, shape)
    y = CumSum(flat, axis)
}"""
QUANTIZED = """
g (float[n, 8] x) => (float[n, 8] y) <float s = {0.05}, int8 z = {3}> {
    h = Relu(x)
    q = QuantizeLinear(h, s, z)
    d = DequantizeLinear(q, s, z)
    y = MatMul(d, w)
}"""


def model_of(text: str, opset: int = 17) -> ModelProto:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')
    weight = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    if "axis" in text:
        model.graph.initializer.append(numpy_helper.from_array(np.array(1), "axis"))
    return model


def nodes(model: ModelProto) -> Counter[tuple[object, ...]]:
    return Counter((each.op_type, each.name, tuple(each.input), tuple(each.output)) for each in model.graph.node)


def run(model: ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Return what both engines compute, which must be alike."""
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = model.SerializeToString()
    want = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"]).run(None, feeds)
    got = ort_core.InferenceSession(content).run(None, feeds)
    for mine, other in zip(got, want, strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_allclose(mine.astype(np.float32), other.astype(np.float32), rtol=1e-2, atol=1e-2)
    return got


def inputs(model: ModelProto) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    made: dict[str, np.ndarray] = {"b": np.array(True), "k": np.array([3])}
    shapes = {each.name: [d.dim_value or 4 for d in each.type.tensor_type.shape.dim] for each in model.graph.input}
    return {
        name: made[name] if name in made else random.normal(size=shape).astype(np.float32)
        for name, shape in shapes.items()
    }


@pytest.mark.parametrize("arguments", [{}, {"keep_io_types": True}, {"keep_io_types": ["x"]}, {"keep_io_types": ["y"]}])
def test_nodes_are_those_of_onnxruntimes_tool(arguments: dict[str, Any]) -> None:
    text = NETWORK.replace("two = Constant <value_float = 2.0> ()", "two = Constant <value = float {2}> ()")
    want, got = (tool.convert_float_to_float16(model_of(text), **arguments) for tool in (theirs, ours))
    assert nodes(got) == nodes(want)
    kinds = [
        {each.name: each.type.tensor_type.elem_type for each in [*found.graph.input, *found.graph.output]}
        for found in (want, got)
    ]
    assert kinds[0] == kinds[1]
    tensors = [{each.name: each.data_type for each in found.graph.initializer} for found in (want, got)]
    assert tensors[0] == tensors[1]


@pytest.mark.parametrize("text", [NETWORK, BRANCHES, RESIZED, QUANTIZED])
@pytest.mark.parametrize("has_kept", [True, False])
@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])
def test_outputs_are_those_of_float32_within_the_type(text: str, has_kept: bool, half: type) -> None:
    model = model_of(text)
    feeds = inputs(model)
    exact = run(model, feeds)
    if half == np.float16:
        small = ours.convert_float_to_float16(model, keep_io_types=has_kept)
        if not has_kept:
            feeds = {name: each.astype(half) if each.dtype == np.float32 else each for name, each in feeds.items()}
        got = run(small, feeds)
    else:  # onnxruntime's CPU provider has few kernels of bfloat16, and numpy's arrays have none for its inputs
        small = convert_float_to_bfloat16(model, keep_io_types=True)
        onnx.checker.check_model(small, full_check=True)
        got = ort_core.InferenceSession(small.SerializeToString()).run(None, feeds)
    tolerance = 0.02 if half == np.float16 else 0.15
    for mine, want in zip(got, exact, strict=True):
        if want.dtype == np.float32:
            np.testing.assert_allclose(mine.astype(np.float32), want, rtol=tolerance, atol=tolerance)
    kinds = {each.data_type for each in small.graph.initializer}
    if "w" in [name for node in model.graph.node for name in node.input]:
        assert (TensorProto.FLOAT16 if half == np.float16 else TensorProto.BFLOAT16) in kinds


def test_the_model_given_is_left_alone() -> None:
    model = model_of(NETWORK)
    before = model.SerializeToString()
    ours.convert_float_to_float16(model)
    convert_float_to_bfloat16(model)
    assert model.SerializeToString() == before


def test_operators_and_nodes_that_are_blocked_stay_float32() -> None:
    text = "g (float[n, 8] x) => (float[n, 8] y) { a = MatMul(x, w) b = Exp(a) c = Log(b) y = Neg(c) }"
    model = model_of(text)
    model.graph.node[2].name = "logarithm"
    small = ours.convert_float_to_float16(model, op_block_list=["Exp"], node_block_list=["logarithm"])
    found = [(node.op_type, list(node.input), list(node.output)) for node in small.graph.node]
    assert found == [  # what two blocked nodes hand on stays float32
        ("MatMul", ["x", "w"], ["a"]),
        ("Cast", ["a"], ["a_cast_to_fp32"]),
        ("Exp", ["a_cast_to_fp32"], ["b"]),
        ("Log", ["b"], ["c_cast_to_fp16"]),
        ("Cast", ["c_cast_to_fp16"], ["c"]),
        ("Neg", ["c"], ["y"]),
    ]
    run(small, {"x": inputs(model)["x"].astype(np.float16)})


@pytest.mark.parametrize("is_forced", [True, False])
def test_weights_that_blocked_nodes_alone_read_are_converted_on_request(is_forced: bool) -> None:
    model = model_of("g (float[n, 8] x) => (float[n, 8] y) { y = MatMul(x, w) }")
    small = ours.convert_float_to_float16(model, op_block_list=["MatMul"], force_fp16_initializers=is_forced)
    want = theirs.convert_float_to_float16(model, op_block_list=["MatMul"], force_fp16_initializers=is_forced)
    assert nodes(small) == nodes(want)
    assert small.graph.initializer[0].data_type == (TensorProto.FLOAT16 if is_forced else TensorProto.FLOAT)
    run(small, {"x": inputs(model)["x"].astype(np.float16)})


def test_a_branch_that_is_blocked_stays_float32_as_a_whole() -> None:
    small = ours.convert_float_to_float16(model_of(BRANCHES), op_block_list=["If"])
    branch = small.graph.node[1].attribute[0].g
    assert [node.op_type for node in small.graph.node] == ["Cast", "If", "Cast"]
    assert "Cast" not in [node.op_type for node in branch.node]
    run(small, {"b": np.array(False), "x": np.ones((2, 8), np.float16)})


def test_what_a_body_gives_has_its_type_where_nothing_else_is_stated() -> None:
    """The loop carries an integer first: its outputs have the types of the body's, each its own."""
    text = """
g (int64 n, bool b, int64 i, float[2, 8] x) => (float[2, 8] y, int64 last) {
    last, more = Loop(n, b, i, x) <
    body = o (int64 step, bool go, int64 j, float[2, 8] h) => (bool on, int64 k, float[2, 8] g) {
        on = Identity(go)
        k = Add(j, step)
        g = Tanh(h)
    }>
    chosen = If(b) <then_branch = t () => (float[2, 8] p) { p = Neg(more) },
                    else_branch = e () => (float[2, 8] q) { q = Abs(more) }>
    y = Softmax(chosen)
}"""
    model = model_of(text)
    feeds = {"n": np.array(3), "b": np.array(True), "i": np.array(4)}
    feeds["x"] = np.random.default_rng(2).normal(size=(2, 8)).astype(np.float32)
    small = ours.convert_float_to_float16(
        model, disable_shape_infer=True, keep_io_types=True, op_block_list=["If", "Softmax"]
    )
    for found, wanted in zip(run(small, feeds), run(model, feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-3)


def test_inputs_that_are_float32_by_default_are_forced() -> None:
    model = model_of(RESIZED)
    small = ours.convert_float_to_float16(model, force_fp16_inputs={"Resize": [2]})
    assert next(each for each in small.graph.initializer if each.name == "scales").data_type == TensorProto.FLOAT16
    small = ours.convert_float_to_float16(model)
    assert next(each for each in small.graph.initializer if each.name == "scales").data_type == TensorProto.FLOAT


def test_blocked_nodes_compute_in_bfloat16_on_request() -> None:
    text = "g (float[n, 8] x) => (float[n, 8] y) { a = MatMul(x, w) b = Exp(a) c = Neg(b) y = Neg(c) }"
    model = model_of(text)
    arguments: dict[str, Any] = {"op_block_list": ["Exp"], "use_bfloat16_as_blocked_nodes_dtype": True}
    small = ours.convert_float_to_float16(model, **arguments)
    assert nodes(small) == nodes(theirs.convert_float_to_float16(model, **arguments))
    onnx.checker.check_model(small, full_check=True)
    got = ort_core.InferenceSession(small.SerializeToString()).run(None, {"x": inputs(model)["x"].astype(np.float16)})
    exact = np.exp(inputs(model)["x"].astype(np.float64) @ numpy_helper.to_array(model.graph.initializer[0]))
    np.testing.assert_allclose(got[0], exact, rtol=0.1)


def test_attributes_that_name_a_type_name_the_half_type() -> None:
    """onnxruntime's CPU provider draws no float16, so that its tool alone says what is meant."""
    text = "g () => (float[2] y) { a = RandomNormal <shape = [2]> () b = Bernoulli <dtype = 1> (a) y = Add(a, b) }"
    model = model_of(text)
    found = [tool.convert_float_to_float16(model) for tool in (theirs, ours)]
    assert nodes(found[0]) == nodes(found[1])
    for each in found:
        assert [[a.i for a in node.attribute if a.name == "dtype"] for node in each.graph.node] == [[10], [10], []]


def test_numbers_keep_their_sign_and_stay_finite() -> None:
    array = np.array([0, -0.0, 1e-10, -1e-10, 1e6, -1e6, np.inf, -np.inf, np.nan, 1.5], np.float32)
    found = ours.convert_np_to_float16(array)
    np.testing.assert_array_equal(found, theirs.convert_np_to_float16(array))
    assert np.isfinite(found[:6]).all()
    cut = ours.convert_np_to_float16(array, 1e-3, 100.0)
    np.testing.assert_array_equal(cut, theirs.convert_np_to_float16(array, 1e-3, 100.0))
    tensor = numpy_helper.from_array(array[:6], "t")
    assert ours.float_to_float16_max_diff(tensor) == theirs.float_to_float16_max_diff(tensor)
    assert ours.convert_tensor_float_to_float16(copy.copy(tensor)).data_type == TensorProto.FLOAT16


def test_bfloat16_keeps_the_range_of_float32() -> None:
    model = model_of("g (float[n, 1] x) => (float[n, 1] y) <float[1] big = {1e30}> { y = Mul(x, big) }")
    small = convert_float_to_bfloat16(model, keep_io_types=True)
    got = ort_core.InferenceSession(small.SerializeToString()).run(None, {"x": np.ones((1, 1), np.float32)})[0]
    assert got[0, 0] == pytest.approx(1e30, rel=0.01)


def test_an_old_opset_is_converted_for_bfloat16() -> None:
    small = convert_float_to_bfloat16(model_of("g (float[n, 8] x) => (float[n, 8] y) { y = MatMul(x, w) }", opset=9))
    assert small.opset_import[0].version == 13
    assert [each.data_type for each in small.graph.initializer] == [TensorProto.BFLOAT16]


def test_operators_that_take_bfloat16_from_a_later_opset_on_bring_the_model_there() -> None:
    text = "g (float[1, 8, 5, 5] x) => (float[1, 8, 5, 5] y) { h = Conv <pads=[0,0,0,0]> (x, k) y = Celu(h) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    kernel = np.random.default_rng(0).normal(size=(8, 8, 1, 1)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(kernel, "k"))
    small = convert_float_to_bfloat16(model, keep_io_types=True)
    assert small.opset_import[0].version == 22
    assert [each.data_type for each in small.graph.initializer] == [TensorProto.BFLOAT16]
    kinds = [node.op_type for node in small.graph.node]
    assert kinds == ["Cast", "Conv", "Cast", "Celu"], "Celu takes bfloat16 from an opset on that few engines have"
    kept = convert_float_to_bfloat16(model, keep_io_types=True, op_block_list=["Conv"])
    assert kept.opset_import[0].version == 17


def test_a_file_with_external_data_is_read(tmp_path: Path) -> None:
    onnx.save_model(
        model_of(NETWORK), tmp_path / "model.onnx", save_as_external_data=True, location="weights", size_threshold=0
    )
    small = ours.convert_float_to_float16(str(tmp_path / "model.onnx"))
    want = ours.convert_float_to_float16(model_of(NETWORK))
    found, other = ({each.name: numpy_helper.to_array(each) for each in one.graph.initializer} for one in (small, want))
    assert found.keys() == other.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, other[name])


def test_operators_of_a_model_alone_get_their_bodies() -> None:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[n, 8] x) => (float[n, 8] y) { y = own.twice(x) }
        <domain: "own", opset_import: ["" : 17]>
        twice (a) => (b) { two = Constant <value = float {2}> () b = Mul(a, two) }
    """)
    small = ours.convert_float_to_float16(model)
    assert run(small, {"x": np.ones((1, 8), np.float16)})[0].dtype == np.float16


def test_an_operator_of_microsoft_that_takes_no_half_floats_stays_float32() -> None:
    text = """<ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]>
        g (int64[N, 3] ids, float[N, 4] x) => (float[N, 4] y) {
        s = Mul (x, x)
        r = com.microsoft.NGramRepeatBlock <ngram_size = 2> (ids, s)
        y = Add (r, x)
    }"""
    model = parser.parse_model(text)
    x = np.random.default_rng(0).uniform(-1, 1, (2, 4)).astype(np.float32)
    feeds = {"ids": np.array([[1, 2, 1], [3, 0, 2]]), "x": x}
    halves = ours.convert_float_to_float16(model, keep_io_types=True)
    assert [node.op_type for node in halves.graph.node].count("Cast") >= 2
    [expected], [found] = (
        onnxruntime.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
        for each in (model, halves)
    )
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_a_type_that_an_operator_of_microsoft_names_becomes_the_half_type() -> None:
    """Packed weights of GGUF files: one row of 32 elements, a float16 scale in front of 16 bytes."""
    text = """<ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]>
        g (int64[N] at, float[N, 32] x) => (float[N, 32] y) {
        rows = com.microsoft.GatherPacked <K = 32, packed_type = 2, output_dtype = 1> (table, at)
        y = Mul (rows, x)
    }"""
    model = parser.parse_model(text)
    table = np.random.default_rng(0).integers(0, 256, (4, 18)).astype(np.uint8)
    table[:, :2] = np.array([0.1], np.float16).view(np.uint8)
    model.graph.initializer.append(numpy_helper.from_array(table, "table"))
    x = np.random.default_rng(1).uniform(-1, 1, (3, 32)).astype(np.float32)
    halves = ours.convert_float_to_float16(model, keep_io_types=True)
    assert [node.op_type for node in halves.graph.node].count("Cast") == 2
    for engine in (onnxruntime, ort_core):
        [expected], [found] = (
            engine.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(
                None, {"at": np.array([0, 3, 1]), "x": x}
            )
            for each in (model, halves)
        )
        np.testing.assert_allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize("operator", ["QLinearSigmoid (q, s, z, s, z)", "QLinearConcat <axis = 0> (s, z, q, s, z)"])
def test_integers_that_an_operator_of_microsoft_makes_stay_integers(operator: str) -> None:
    """onnx infers no type of what such an operator makes, and a float among its inputs does not make it one."""
    text = f"""<ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]>
        g (float[N, 4] x) => (uint8[N, 4] y) <float s = {{0.02}}, uint8 z = {{3}}> {{
        q = QuantizeLinear (x, s, z)
        r = com.microsoft.{operator}
        y = Identity (r)
    }}"""
    model = parser.parse_model(text)
    feeds = {"x": np.random.default_rng(0).uniform(-1, 1, (3, 4)).astype(np.float32)}
    halves = ours.convert_float_to_float16(model, keep_io_types=True)
    [expected], [found] = (
        onnxruntime.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
        for each in (model, halves)
    )
    assert found.dtype == np.uint8
    assert np.abs(found.astype(int) - expected).max() <= 1, "a step, which float16 moves"


def test_what_is_out_of_reach_is_refused(tmp_path: Path) -> None:
    model = model_of(NETWORK)
    with pytest.raises(InvalidQuantization, match="begins"):
        ours.convert_float_to_float16(model, min_positive_val=1e-9)
    with pytest.raises(InvalidQuantization, match="ends"):
        ours.convert_float_to_float16(model, max_finite_val=1e6)
    with pytest.raises(ValueError, match="not bytes"):
        ours.convert_float_to_float16(b"")  # type: ignore[arg-type]  # that is what is tried
    with pytest.raises(NoSuchFile):
        ours.convert_float_to_float16(str(tmp_path / "none.onnx"))
    with pytest.raises(InvalidQuantization):
        ours.float_to_float16_max_diff(numpy_helper.from_array(np.array(1), "t"))


def test_the_module_has_onnxruntimes_names_and_parameters():
    """But for the tool's record of which nodes read a weight."""
    own = {name: value for name, value in vars(theirs).items() if getattr(value, "__module__", "") == theirs.__name__}
    functions = {name: value for name, value in own.items() if inspect.isfunction(value) and not name.startswith("_")}
    assert own.keys() - functions.keys() == {"InitializerTracker", "_npfloat16_to_int"}
    for name, function in functions.items():
        expected = inspect.signature(function).parameters.values()
        found = inspect.signature(getattr(ours, name)).parameters.values()
        assert [(each.name, each.default) for each in found] == [(each.name, each.default) for each in expected]
    assert ours.ALWAYS_FLOAT_INPUTS == theirs.ALWAYS_FLOAT_INPUTS
    assert set(theirs.DEFAULT_OP_BLOCK_LIST) == set(ours.DEFAULT_OP_BLOCK_LIST)
    tensor = numpy_helper.from_array(np.zeros((2, 0), np.float16), "w")
    assert ours.make_value_info_from_tensor(tensor) == theirs.make_value_info_from_tensor(tensor)


def test_what_a_loop_gives_is_cast_where_a_reader_stays_float32() -> None:
    model = model_of(SCANNED)
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1, 8]), "shape"))
    small = ours.convert_float_to_float16(model, disable_shape_infer=True)
    x = inputs(model)["x"]
    for engine in (onnxruntime, ort_core):
        session = engine.InferenceSession(small.SerializeToString(), providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {"x": x.astype(np.float16)})
        np.testing.assert_allclose(found, np.cumsum(np.repeat(-x, 2, axis=0), axis=1), rtol=1e-2, atol=1e-2)


def test_bodies_that_see_scores_keep_them_in_float32() -> None:
    """FlexAttention of half floats computes scores in float32, and hands them to its bodies so."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 26, "ai.onnx.preview" : 1]>
        g (float[1, 2, 5, 8] q, float[1, 2, 5, 8] k, float[1, 2, 5, 8] v, float[1] bias) => (float[1, 2, 5, 8] y) {
            slope = Neg (bias)
            r = ai.onnx.preview.FlexAttention <
                score_mod: graph = change (float[1, 2, 5, 5] s) => (float[1, 2, 5, 5] t)
                { u = Tanh (s) t = Add (u, slope) }
            > (q, k, v)
            y = Neg (r)
        }""")
    generator = np.random.default_rng(5)
    feeds = {name: generator.standard_normal((1, 2, 5, 8)).astype(np.float32) for name in "qkv"}
    feeds["bias"] = np.full(1, 0.5, np.float32)
    small = ours.convert_float_to_float16(model, keep_io_types=True)
    (node,) = (each for each in small.graph.node if each.op_type == "FlexAttention")
    body = node.attribute[0].g
    assert {each.type.tensor_type.elem_type for each in [*body.input, *body.output]} == {onnx.TensorProto.FLOAT}
    found, wanted = (ort_core.InferenceSession(each.SerializeToString()).run(None, feeds)[0] for each in (small, model))
    np.testing.assert_allclose(found, wanted, atol=5e-3)
