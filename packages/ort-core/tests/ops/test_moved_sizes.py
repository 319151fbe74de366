"""Bounds of slices that are sizes of tensors: not negative, whatever arithmetic says of their expressions."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.ir.dims import SymbolicDim, evaluate, minimum
from ort_core.onnx_io.load import load_model
from ort_core.ops.moved_sizes import holds_sizes
from ort_core.ops.shape_arithmetic import slice_dim

N = SymbolicDim.named("n")
MOVED = [("Shape", ["a"], {}), ("Gather", ["{}", "two"], {}), ("Unsqueeze", ["{}", "zero"], {}),
         ("Cast", ["{}"], {"to": TensorProto.INT32}), ("Cast", ["{}"], {"to": TensorProto.INT64}),
         ("Reshape", ["{}", "one"], {}), ("Concat", ["{}"], {"axis": 0}), ("Slice", ["{}", "zero", "one", "zero"], {}),
         ("Squeeze", ["{}", "zero"], {}), ("Unsqueeze", ["{}", "zero"], {}), ("Identity", ["{}"], {})]  # fmt: skip


def model(chain: list[tuple[str, list[str], dict[str, object]]]) -> ModelProto:
    """Return two convolutions without a border, and as much of an input as their result ``a`` is long."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], strides=[2]),
        helper.make_node("Conv", ["c", "w"], ["a"], strides=[2]),
    ]
    last = ""
    for number, (op_type, inputs, attributes) in enumerate(chain):
        made = f"s{number}"
        nodes.append(helper.make_node(op_type, [each.format(last) for each in inputs], [made], **attributes))
        last = made
    nodes += [helper.make_node("Slice", ["t", "zero", last, "one"], ["cut"]), helper.make_node("Tanh", ["cut"], ["y"])]
    constants = {"w": np.ones((1, 1, 3), np.float32), "zero": np.array([0]), "one": np.array([1]), "two": np.array(2),
                 "less": np.array([-5])}  # fmt: skip
    graph = helper.make_graph(
        nodes, "moved", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, "n"]),
                         helper.make_tensor_value_info("t", TensorProto.FLOAT, [2, "m"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def bound_of(chain: list[tuple[str, list[str], dict[str, object]]]) -> object:
    graph = load_model(model(chain).SerializeToString()).graph
    return next(node for node in graph.nodes if node.output.name == "cut").input(2)


def test_sizes_are_known_through_all_that_moves_them():
    assert holds_sizes(bound_of(MOVED))


@pytest.mark.parametrize(
    "chain",
    [
        [*MOVED, ("Add", ["{}", "less"], {})],
        [*MOVED, ("Concat", ["{}", "less"], {"axis": 0}), ("Slice", ["{}", "one", "two_or_more", "zero"], {})],
        [("Neg", ["less"], {})],
        [("Identity", ["fed"], {})],
    ],
    ids=["a sum", "a negative number beside them", "arithmetic", "an input"],
)
def test_other_numbers_are_not_taken_for_sizes(chain):
    proto = model(chain)
    proto.graph.input.append(helper.make_tensor_value_info("fed", TensorProto.INT64, [1]))
    proto.graph.input.append(helper.make_tensor_value_info("two_or_more", TensorProto.INT64, [1]))
    graph = load_model(proto.SerializeToString()).graph
    assert not holds_sizes(next(node for node in graph.nodes if node.output.name == "cut").input(2))


def test_a_bound_that_is_a_size_does_not_count_from_the_end():
    length = ((N - 3) // 2 - 2) // 2 + 1
    assert evaluate(slice_dim(2 * N, 0, length, 1), {"n": 1}) == 2 - 1, "as a number it is -1 where n is 1"
    assert slice_dim(2 * N, 0, length, 1, end_is_size=True) == minimum(length, 2 * N)
    kept = slice_dim(2 * N, length, 2 * N, 1, start_is_size=True)
    assert evaluate(kept, {"n": 11}) == 22 - 2


def test_a_slice_as_long_as_convolutions_leave_a_sequence_is_compiled():
    session = ort.InferenceSession(model(MOVED).SerializeToString(), providers=["CPUExecutionProvider"])
    assert session.get_outputs()[0].shape[0] == 2
    report = session.explain()
    assert all(node.execution.how == "native" for node in report.nodes), report
    numbers = np.random.default_rng(0)
    for length, given in ((11, 9), (40, 9), (8, 4), (40, 3)):
        feeds = {"x": np.ones((1, 1, length), np.float32), "t": numbers.normal(size=(2, given)).astype(np.float32)}
        left = ((length - 3) // 2 + 1 - 3) // 2 + 1
        np.testing.assert_allclose(session.run(None, feeds)[0], np.tanh(feeds["t"][:, :left]), rtol=1e-6)
