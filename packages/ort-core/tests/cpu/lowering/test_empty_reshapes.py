"""A Reshape to computed sizes that turn out to be 0, and a choice whose condition is an output, too."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import ort_core as ort

N = helper.make_node
LEVELS = [0, 1, 99]


def _session(
    nodes: list[NodeProto], shape: list[str], constants: dict[str, object], outputs: list[str], level: int
) -> ort.InferenceSession:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info("x", TensorProto.FLOAT, shape)], [helper.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel(level)
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("axis", "target", "given", "expected"),
    [
        (1, ["d", "m"], (1, 0, 8, 6), (1, 0)),  # a 0 takes the input's size there; what is left is 0
        (1, ["d", "m"], (2, 3, 8, 6), (3, 96)),
        (0, ["m", "d"], (0, 1, 24, 2), (0, 1)),
        (0, ["m", "d"], (4, 1, 24, 2), (48, 4)),
    ],
)
def test_a_computed_size_of_0_is_the_inputs(
    axis: int, target: list[str], given: tuple[int, ...], expected: tuple[int, ...], level: int
) -> None:
    nodes = [
        N("Shape", ["x"], ["s"]), N("Gather", ["s", "i"], ["d"]), N("Concat", target, ["t"], axis=0),
        N("Reshape", ["x", "t"], ["r"]), N("Exp", ["r"], ["e"]), N("Tanh", ["e"], ["y"]),
    ]  # fmt: skip
    session = _session(nodes, ["A", "B", "C", "D"], {"i": np.array([axis]), "m": np.array([-1])}, ["y"], level)
    x = np.random.default_rng(0).uniform(-1, 1, given).astype(np.float32)
    for _ in range(3):
        (y,) = session.run(None, {"x": x})
        np.testing.assert_allclose(y, np.tanh(np.exp(x.reshape(expected))), rtol=1e-5)


@pytest.mark.parametrize("level", LEVELS)
def test_the_condition_of_an_if_may_be_an_output(level: int) -> None:
    branches = {
        f"{name}_branch": helper.make_graph([N(op, ["x"], [name])], name, [], [helper.ValueInfoProto(name=name)])
        for name, op in (("then", "Exp"), ("else", "Tanh"))
    }
    nodes = [
        N("Tanh", ["x"], ["t"]), N("ReduceSum", ["t"], ["sum"], keepdims=0), N("Greater", ["sum", "half"], ["c"]),
        N("If", ["c"], ["y"], **branches),
    ]  # fmt: skip
    session = _session(nodes, ["A", "B"], {"half": np.float32(0.5)}, ["y", "c", "sum"], level)
    for sign in (1, -1, 1):
        x = np.full((2, 3), sign, np.float32)
        y, c, total = session.run(None, {"x": x})
        np.testing.assert_allclose(y, np.exp(x) if sign > 0 else np.tanh(x), rtol=1e-6)
        assert bool(c) == (sign > 0)
        np.testing.assert_allclose(total, np.tanh(x).sum(), rtol=1e-5)
