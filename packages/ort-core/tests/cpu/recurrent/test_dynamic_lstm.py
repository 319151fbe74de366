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
