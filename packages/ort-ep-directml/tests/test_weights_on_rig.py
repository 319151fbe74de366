"""Weights that DirectML owns: every operator that has large ones takes them, and gives onnxruntime's numbers."""

from __future__ import annotations

import gc

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from rig_provider import run

from ort_ep_directml import graph as graph_module
from ort_ep_directml.abi import d3d12
from ort_ep_directml.graph import refusal_of
from ort_ep_directml.runtime import device as device_module
from ort_ep_directml.runtime import uploading
from ort_ep_directml.runtime.memory import build_buffer

GENERATOR = np.random.default_rng(21)
X = (2, 8, 12, 12)


def floats(*sizes: int, scale: float = 0.2) -> np.ndarray:
    return (GENERATOR.standard_normal(sizes) * scale).astype(np.float32)


def words(*sizes: int, dtype: type = np.uint8, low: int = 0, high: int = 20) -> np.ndarray:
    return GENERATOR.integers(low, high, sizes).astype(dtype)


def scale(value: float) -> np.ndarray:
    return np.array(value, np.float32)


BYTE = np.array(3, np.uint8)
RECURRENT = {"hidden_size": 16}
CASES = {
    "Conv": (floats(*X), [floats(40, 8, 3, 3), floats(40)], {"pads": [1, 1, 1, 1]}),
    "ConvTranspose": (floats(*X), [floats(8, 40, 3, 3), floats(40)], {"strides": [2, 2]}),
    "Gemm": (floats(3, 40), [floats(40, 24), floats(24)], {"alpha": 0.5}),
    "MatMul": (floats(2, 5, 40), [floats(40, 24)], {}),
    "Add": (floats(5, 400), [floats(400)], {}),
    "PRelu": (floats(2, 400, 3), [floats(400, 1)], {}),
    "LayerNormalization": (floats(5, 400), [floats(400), floats(400)], {}),
    "BatchNormalization": (floats(2, 300, 3, 3), [*(floats(300) for _ in range(3)), np.abs(floats(300)) + 0.1], {}),
    "InstanceNormalization": (floats(2, 300, 3, 3), [floats(300), floats(300)], {}),
    "GroupNormalization": (floats(2, 300, 3, 3), [floats(300), floats(300)], {"num_groups": 10}),
    "RNN": (floats(6, 3, 20), [floats(1, 16, 20), floats(1, 16, 16), floats(1, 32)], RECURRENT),
    "GRU": (floats(6, 3, 20), [floats(1, 48, 20), floats(1, 48, 16), floats(1, 96)], RECURRENT),
    "LSTM": (floats(6, 3, 20), [floats(1, 64, 20), floats(1, 64, 16), floats(1, 128)], RECURRENT),
    "RNN of one step": (floats(1, 3, 20), [floats(1, 16, 20), floats(1, 16, 16), floats(1, 32)], RECURRENT),
    "GRU of one step": (floats(1, 3, 20), [floats(1, 48, 20), floats(1, 48, 16), floats(1, 96)], RECURRENT),
    "LSTM of one step both ways": (
        floats(1, 3, 20),
        [floats(2, 64, 20), floats(2, 64, 16), floats(2, 128)],
        RECURRENT | {"direction": "bidirectional"},
    ),
    "LSTM both ways": (
        floats(6, 3, 20),
        [floats(2, 64, 20), floats(2, 64, 16), floats(2, 128)],
        {**RECURRENT, "direction": "bidirectional"},
    ),
    "MatMulInteger": (words(5, 40), [words(40, 48), BYTE, BYTE], {}),
    "ConvInteger": (words(*X), [words(40, 8, 3, 3), BYTE], {}),
    "QLinearMatMul": (words(5, 40), [scale(0.1), BYTE, words(40, 48), scale(0.1), BYTE, scale(0.5), BYTE], {}),
    "QLinearConv": (words(*X), [scale(0.1), BYTE, words(40, 8, 3, 3), scale(0.1), BYTE, scale(0.5), BYTE], {}),
}  # fmt: skip


def model_with_weights(op_type: str, x: np.ndarray, weights: list[np.ndarray], attributes: dict) -> onnx.ModelProto:
    names = [f"w{index}" for index in range(len(weights))]
    node = helper.make_node(op_type, ["x", *names], ["y"], **attributes)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    integer = {"MatMulInteger": TensorProto.INT32, "ConvInteger": TensorProto.INT32}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", integer.get(op_type, kind), None)],
        [numpy_helper.from_array(each, name) for each, name in zip(weights, names, strict=True)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("case", CASES)
def test_an_operator_takes_weights_that_directml_owns(rig, case):
    x, weights, attributes = CASES[case]
    assert max(each.nbytes for each in weights) > 1024, "smaller ones are nodes of the graph"
    model = model_with_weights(case.split()[0], x, weights, attributes)
    expected = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )

    found = run(model, {"x": x})

    limit = 1 if x.dtype == np.uint8 and "Integer" not in case else 2e-5  # a step of quantized numbers
    np.testing.assert_allclose(found[0].astype(np.float64), expected[0].astype(np.float64), rtol=1e-4, atol=limit)


def test_weights_go_up_in_pieces_which_are_given_back(rig, monkeypatch):
    """The host held all weights twice, and one buffer all of them on the device: Direct3D promises none beyond 2 GB."""
    made: list[tuple[int, int]] = []

    def noted(device, heap, nbytes):
        made.append((heap, nbytes))
        return build_buffer(device, heap, nbytes)

    monkeypatch.setattr(uploading, "PIECE_NBYTES", 1024)
    monkeypatch.setattr(uploading, "BUFFER_NBYTES", 4096)
    monkeypatch.setattr(uploading, "build_buffer", noted)
    x, weights, attributes = CASES["LSTM"]
    model = model_with_weights("LSTM", x, weights, attributes)
    expected = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )

    found = run(model, {"x": x})

    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=2e-5)
    assert [nbytes for heap, nbytes in made if heap == d3d12.HEAP_TYPE_UPLOAD] in ([1024], [1024, 1024])
    held = [nbytes for heap, nbytes in made if heap == d3d12.HEAP_TYPE_DEFAULT]
    assert len(held) > 1, "weights of different buffers"
    assert max(held) <= max(4096, *(each.nbytes for each in weights))


def test_a_table_of_rows_is_looked_up(rig):
    table, rows = floats(50, 40), words(7, dtype=np.int64, high=50)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["w", "x"], ["r"]), helper.make_node("Exp", ["r"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT64, rows.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(table, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    (found,) = run(model, {"x": rows})

    np.testing.assert_allclose(found, np.exp(table[rows]), rtol=1e-6)


def test_a_network_is_computed_at_a_level_before_constant_nodes_and_the_library_is_asked(rig, monkeypatch):
    gc.collect()  # a device of earlier tests would keep its level
    context: list[str] = []

    def refusal(device, node) -> str | None:
        context.append(node.kind)
        return refusal_of(device, node)

    monkeypatch.setattr(device_module, "_level", lambda device: 0x5000)
    monkeypatch.setattr(graph_module, "refusal_of", refusal)
    x, w, m = floats(2, 8, 12, 12), floats(40, 8, 3, 3), floats(40, 10)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("HardSwish", ["a"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "m"], ["e"]),
        helper.make_node("Clip", ["e", "low", "high"], ["y"]),
    ]
    constants = {"w": w, "m": m, "low": scale(-0.5), "high": scale(0.5)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]

    (found,) = run(model, {"x": x})

    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert {"CONVOLUTION", "ACTIVATION_HARD_SIGMOID", "ELEMENT_WISE_MULTIPLY", "GEMM"} <= set(context)
    assert "ACTIVATION_HARD_SWISH" not in context
