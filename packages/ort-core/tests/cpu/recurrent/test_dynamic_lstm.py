"""DynamicQuantizeLSTM compiles as the LSTM of the floats that its weights stand for."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import ort_core
from ort_core.tolerances import compare

HIDDEN, WIDTH, STEPS, BATCH = 6, 5, 9, 3
Arrays = dict[str, np.ndarray]


def model_of(op_type: str, tensors: Arrays, inputs: list[str], directions: int) -> ModelProto:
    domain = "com.microsoft" if op_type == "DynamicQuantizeLSTM" else ""
    direction = "bidirectional" if directions == 2 else "reverse"
    node = helper.make_node(op_type, inputs, ["y", "h", "c"], domain=domain, hidden_size=HIDDEN, direction=direction)
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [STEPS, BATCH, WIDTH])]
    given.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, [BATCH]))
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yhc"]
    fixed = [numpy_helper.from_array(each, name) for name, each in tensors.items()]
    graph = helper.make_graph([node], "g", given, results, fixed)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("has_channels", [False, True])
def test_results_are_those_of_the_float_lstm_and_all_is_native(
    directions: int, dtype: type, has_channels: bool
) -> None:
    random = np.random.default_rng(directions)
    gates = 4 * HIDDEN
    quantized: Arrays = {"B": random.normal(size=(directions, 2 * gates)).astype(np.float32)}
    plain = dict(quantized)
    for name, rows in (("W", WIDTH), ("R", HIDDEN)):
        span = np.iinfo(dtype)
        levels = random.integers(span.min + 1, span.max, (directions, rows, gates)).astype(dtype)
        shape = (directions, gates) if has_channels else (directions,)
        scale = random.uniform(0.002, 0.006, shape).astype(np.float32)
        point = np.full(shape, 0 if dtype is np.int8 else 128, dtype)
        quantized |= {f"{name}8": levels, f"{name}_scale": scale, f"{name}_point": point}
        along = (directions, 1, -1)
        real = (levels.astype(np.float32) - point.reshape(along).astype(np.float32)) * scale.reshape(along)
        plain[name] = np.ascontiguousarray(real.transpose(0, 2, 1))
    parameters = ["W_scale", "W_point", "R_scale", "R_point"]
    inputs = ["x", "W8", "R8", "B", "lengths", "", "", "", *parameters]
    session = ort_core.InferenceSession(
        model_of("DynamicQuantizeLSTM", quantized, inputs, directions).SerializeToString()
    )
    oracle = onnxruntime.InferenceSession(
        model_of("LSTM", plain, ["x", "W", "R", "B", "lengths"], directions).SerializeToString(),
        providers=["CPUExecutionProvider"],
    )
    feeds = {"x": random.normal(size=(STEPS, BATCH, WIDTH)).astype(np.float32)}
    feeds["lengths"] = np.array([STEPS, 4, 1], np.int32)
    for found, wanted in zip(session.run(None, feeds), oracle.run(None, feeds), strict=True):
        comparison = compare(found, wanted, "approximate")
        assert comparison.passes, comparison
    assert "numpy" not in str(session.explain())


def dynamic_layer(hidden: int, batch: int, dtype: type, point: int) -> tuple[bytes, bytes]:
    """Return a bidirectional layer that takes its first states: of bytes, and of the floats that they stand for."""
    random = np.random.default_rng(hidden)
    biases = {"B": random.normal(size=(2, 8 * hidden)).astype(np.float32)}
    quantized, plain, span = dict(biases), dict(biases), np.iinfo(dtype)
    for name, rows in (("W", WIDTH), ("R", hidden)):
        levels = random.integers(span.min, span.max + 1, (2, rows, 4 * hidden)).astype(dtype)
        scale = (random.uniform(0.01, 0.02, 2) / np.sqrt(rows)).astype(np.float32)
        quantized |= {f"{name}8": levels, f"{name}_scale": scale, f"{name}_point": np.full(2, point, dtype)}
        real = (levels.astype(np.float32) - point) * scale.reshape(2, 1, 1)
        plain[name] = np.ascontiguousarray(real.transpose(0, 2, 1))
    parameters = ["W_scale", "W_point", "R_scale", "R_point"]
    made = []
    for op_type, tensors, inputs in (
        ("DynamicQuantizeLSTM", quantized, ["x", "W8", "R8", "B", "", "h0", "", "", *parameters]),
        ("LSTM", plain, ["x", "W", "R", "B", "", "h0"]),
    ):
        model = model_of(op_type, tensors, inputs, 2)
        next(each for each in model.graph.node[0].attribute if each.name == "hidden_size").i = hidden
        del model.graph.input[:]
        for name, sizes in (("x", ["steps", batch, WIDTH]), ("h0", [2, batch, hidden])):
            model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes))
        made.append(model.SerializeToString())
    return made[0], made[1]


def feeds_of(hidden: int, batch: int) -> Arrays:
    random = np.random.default_rng(4)
    feeds = {"x": random.normal(size=(7, batch, WIDTH)).astype(np.float32)}
    feeds["h0"] = random.uniform(-1, 1, (2, batch, hidden)).astype(np.float32)
    feeds["h0"][0, 0] = 0  # a row of zeros, which has no reach
    return feeds


@pytest.mark.parametrize(("hidden", "batch"), [(1, 1), (17, 2), (48, 5), (130, 9)])
@pytest.mark.parametrize(("dtype", "point"), [(np.int8, 0), (np.uint8, 128), (np.uint8, 3)])
def test_weights_that_stay_bytes_give_what_their_floats_give(hidden: int, batch: int, dtype: type, point: int) -> None:
    quantized, plain = dynamic_layer(hidden, batch, dtype, point)
    session = ort_core.InferenceSession(quantized)
    oracle = onnxruntime.InferenceSession(plain, providers=["CPUExecutionProvider"])
    feeds = feeds_of(hidden, batch)
    for found, wanted in zip(session.run(None, feeds), oracle.run(None, feeds), strict=True):
        comparison = compare(found, wanted, "approximate")
        assert comparison.passes, comparison
    assert "numpy" not in str(session.explain())


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_a_state_that_is_not_finite_shows_in_its_own_row_alone(odd: float) -> None:
    session = ort_core.InferenceSession(dynamic_layer(17, 3, np.int8, 0)[0])
    feeds = feeds_of(17, 3)
    expected = session.run(["y"], feeds)[0]
    feeds["h0"][:, 1, 4] = odd
    found = session.run(["y"], feeds)[0]
    assert np.isnan(found[0, 0, 1]).all()
    np.testing.assert_array_equal(found[:, :, [0, 2]], expected[:, :, [0, 2]])


def test_states_of_the_smallest_numbers_are_zeros() -> None:
    session = ort_core.InferenceSession(dynamic_layer(17, 1, np.int8, 0)[0])
    feeds = feeds_of(17, 1)
    zeros = session.run(["y"], {**feeds, "h0": np.zeros_like(feeds["h0"])})[0]
    np.testing.assert_array_equal(session.run(["y"], {**feeds, "h0": np.full_like(feeds["h0"], 1e-42)})[0], zeros)


@pytest.mark.parametrize("op_type", ["LSTM", "GRU", "RNN"])
def test_layers_of_dequantized_weights_are_compiled_in_floats(op_type: str) -> None:
    random = np.random.default_rng(5)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op_type] * HIDDEN
    fixed, nodes, reals = [], [], []
    for name, columns in (("W", WIDTH), ("R", HIDDEN)):
        levels = random.integers(-128, 128, (1, gates, columns)).astype(np.int8)
        scale = np.array([0.005], np.float32)
        fixed += [numpy_helper.from_array(levels, f"{name}8"), numpy_helper.from_array(scale, f"{name}_scale")]
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}8", f"{name}_scale"], [name], axis=0))
        reals.append(numpy_helper.from_array(levels.astype(np.float32) * scale, name))
    layer = helper.make_node(op_type, ["x", "W", "R"], ["y"], hidden_size=HIDDEN)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [STEPS, BATCH, WIDTH])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    quantized, plain = (
        helper.make_model(
            helper.make_graph(each, "g", [x], [y], tensors), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        ).SerializeToString()
        for each, tensors in (([*nodes, layer], fixed), ([layer], reals))
    )
    session = ort_core.InferenceSession(quantized)
    feeds = {"x": random.normal(size=(STEPS, BATCH, WIDTH)).astype(np.float32)}
    np.testing.assert_allclose(
        session.run(None, feeds)[0], ort_core.InferenceSession(plain).run(None, feeds)[0], rtol=1e-6, atol=1e-6
    )
    assert "numpy" not in str(session.explain())


def test_weights_that_are_inputs_stay_with_the_operator() -> None:
    tensors = {
        "R8": np.ones((1, HIDDEN, 4 * HIDDEN), np.int8), "s": np.ones(1, np.float32), "z": np.zeros(1, np.int8),
    }  # fmt: skip
    model = model_of("DynamicQuantizeLSTM", tensors, ["x", "W8", "R8", "", "", "", "", "", "s", "z", "s", "z"], 1)
    model.graph.input.append(helper.make_tensor_value_info("W8", TensorProto.INT8, [1, WIDTH, 4 * HIDDEN]))
    session = ort_core.InferenceSession(model.SerializeToString())
    assert "DynamicQuantizeLSTM" in str(session.explain())


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 3e38])
def test_input_without_a_range_shows_in_both_engines_alike(odd: float) -> None:
    random = np.random.default_rng(3)
    tensors = {
        "W8": random.integers(-127, 128, (1, WIDTH, 4 * HIDDEN)).astype(np.int8),
        "R8": random.integers(-127, 128, (1, HIDDEN, 4 * HIDDEN)).astype(np.int8),
        "s": np.full(1, 0.004, np.float32), "z": np.zeros(1, np.int8),
    }  # fmt: skip
    inputs = ["x", "W8", "R8", "", "lengths", "", "", "", "s", "z", "s", "z"]
    content = model_of("DynamicQuantizeLSTM", tensors, inputs, 1).SerializeToString()
    x = random.normal(size=(STEPS, BATCH, WIDTH)).astype(np.float32)
    x[4, 1, 2], x[4, 0, 2] = odd, -1e38
    feeds = {"x": x, "lengths": np.full(BATCH, STEPS, np.int32)}
    compiled, plain = (
        ort_core.InferenceSession(content, providers=[f"{name}ExecutionProvider"]).run(["y"], feeds)[0]
        for name in ("CPU", "Reference")
    )
    assert np.isnan(compiled[:5, :, 1]).all() == np.isnan(odd), "from the odd step on, backwards, it shows"
    assert not np.isnan(compiled[:, :, [0, 2]]).any()
    np.testing.assert_array_equal(np.isnan(plain), np.isnan(compiled))
    np.testing.assert_allclose(plain[4, :, 1], compiled[4, :, 1], atol=0.02, err_msg="but for states in 8 bits")


def test_weights_that_a_model_dequantizes_itself_leave_states_as_they_are() -> None:
    random, gates = np.random.default_rng(8), 4 * HIDDEN
    levels = random.integers(-128, 128, (gates, HIDDEN)).astype(np.int8)
    scale = random.uniform(0.002, 0.006, gates).astype(np.float32)
    plain = {
        "W": random.normal(size=(1, gates, WIDTH)).astype(np.float32),
        "R": (levels.astype(np.float32) * scale[:, None])[None],
        "B": random.normal(size=(1, 2 * gates)).astype(np.float32),
    }
    model = model_of("LSTM", plain, ["x", "W", "R", "B", "lengths"], 1)
    written = model_of("LSTM", plain | {"levels": levels, "scale": scale}, ["x", "W", "R", "B", "lengths"], 1)
    del written.graph.initializer[1]  # R
    shape = numpy_helper.from_array(np.array([1, gates, HIDDEN], np.int64), "shape")
    written.graph.initializer.append(shape)
    nodes = [
        helper.make_node("DequantizeLinear", ["levels", "scale"], ["rows"], axis=0),
        helper.make_node("Reshape", ["rows", "shape"], ["R"]),
        *written.graph.node,
    ]
    del written.graph.node[:]
    written.graph.node.extend(nodes)
    options = ort_core.SessionOptions()
    options.graph_optimization_level = ort_core.GraphOptimizationLevel.ORT_DISABLE_ALL  # else it is folded
    feeds = {"x": random.normal(size=(STEPS, BATCH, WIDTH)).astype(np.float32)}
    feeds["lengths"] = np.array([STEPS, 4, 1], np.int32)
    wanted, found = (
        ort_core.InferenceSession(each.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
            None, feeds
        )
        for each in (model, written)
    )
    for left, right in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(left, right)
