"""Sizes that a model declares of what it computes are claims: a run that knows better is right, and warned of."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import ort_core as ort

N = helper.make_node
Shape = Sequence[int | str | None] | None
LEVELS = [0, 1, 2, 99]
PROVIDERS = ["CPUExecutionProvider", "ReferenceExecutionProvider"]
TWO = np.full(12, 2, np.float32)


def model_of(
    nodes: Iterable[NodeProto],
    given: Shape,
    declared: Shape,
    constants: dict[str, np.ndarray],
    between: dict[str, Shape] | None = None,
    sizes: bool = False,
) -> ModelProto:
    """Return a model from x (and int64 s) to y, with declared shapes of outputs and of values between."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        list(nodes), "g",
        [info("x", TensorProto.FLOAT, given), *([info("s", TensorProto.INT64, [2])] if sizes else [])],
        [info("y", TensorProto.FLOAT, declared)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
        value_info=[info(name, TensorProto.FLOAT, shape) for name, shape in (between or {}).items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _branch(name: str, value: float) -> helper.GraphProto:
    constant = numpy_helper.from_array(np.float32(value), f"{name}_c")
    out = helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 12])
    return helper.make_graph([N("Mul", ["a", f"{name}_c"], [name])], name, [], [out], [constant])


MUL = N("Mul", ["x", "c"], ["a"])
MODELS: dict[str, Callable[[], tuple[ModelProto, dict[str, np.ndarray]]]] = {
    "scikit-learn's Normalizer": lambda: (
        model_of(
            [MUL, N("Normalizer", ["a"], ["b"], domain="ai.onnx.ml", norm="L2"), N("Identity", ["b"], ["y"])],
            [None, 12], [1, 12], {"c": TWO},
        ),
        {},
    ),
    "a division by a norm": lambda: (
        model_of(
            [MUL, N("ReduceL1", ["a"], ["b"], axes=[1]), N("Div", ["a", "b"], ["y"])], [None, 12], [7, 12], {"c": TWO}
        ),
        {},
    ),
    "a value between": lambda: (
        model_of([MUL, N("Relu", ["a"], ["y"])], ["N", 12], ["N", 12], {"c": TWO}, {"a": [7, 12]}),
        {},
    ),
    "a name that is another size": lambda: (
        model_of(
            [MUL, N("Reshape", ["a", "t"], ["b"]), N("Relu", ["b"], ["y"])], ["N", 12], ["N", 3],
            {"c": TWO, "t": np.array([-1, 3])}, {"b": ["N", 3]},
        ),
        {},
    ),
    "another rank": lambda: (
        model_of([MUL, N("Relu", ["a"], ["y"])], ["N", 12], [12], {"c": TWO}),
        {},
    ),
    "a Reshape to fed sizes": lambda: (
        model_of(
            [MUL, N("Reshape", ["a", "s"], ["b"]), N("Relu", ["b"], ["y"])], ["N", 12], ["N", 12], {"c": TWO},
            {"b": ["N", 12]}, sizes=True,
        ),
        {"s": np.array([-1, 4])},
    ),
    "an Expand to fed sizes": lambda: (
        model_of(
            [MUL, N("Expand", ["a", "s"], ["b"]), N("Relu", ["b"], ["y"])], [1, 12], [1, 12], {"c": TWO},
            {"b": [1, 12]}, sizes=True,
        ),
        {"s": np.array([3, 12])},
    ),
    "the branches of an If": lambda: (
        model_of(
            [
                MUL, N("ReduceSum", ["a"], ["t"], keepdims=0), N("Greater", ["t", "zero"], ["cond"]),
                N("If", ["cond"], ["b"], then_branch=_branch("p", 2.0), else_branch=_branch("q", 3.0)),
                N("Relu", ["b"], ["y"]),
            ],
            ["N", 12], [1, 12], {"c": TWO, "zero": np.float32(0)},
        ),
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("case", MODELS)
def test_result_is_right_whatever_is_declared(case: str, level: int, provider: str) -> None:
    model, feeds = MODELS[case]()
    feeds = {"x": _input(model), **feeds}
    expected = _by_the_specification(model, feeds)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel(level)
    session = ort.InferenceSession(model.SerializeToString(), options, providers=[provider])
    for _ in range(4):  # the later ones are direct calls
        (found,) = session.run(None, feeds)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("case", MODELS)
def test_a_recalled_session_is_right_whatever_is_declared(case: str, tmp_path: Path) -> None:
    model, feeds = MODELS[case]()
    feeds = {"x": _input(model), **feeds}
    expected = _by_the_specification(model, feeds)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    for _ in range(3):
        session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        for _ in range(3):
            (found,) = session.run(None, feeds)
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_an_output_that_is_not_as_declared_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    model = model_of([MUL, N("Relu", ["a"], ["y"])], ["N", 12], [1, 12], {"c": TWO})
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with caplog.at_level(logging.WARNING):
        session.run(None, {"x": np.ones((1, 12), np.float32)})
        assert not caplog.messages
        session.run(["y"], {"x": np.ones((5, 12), np.float32)})
    assert caplog.messages == [
        "Expected shape from model of {1,12} does not match actual shape of {5,12} for output y"
    ]  # onnxruntime's words


def test_sizes_that_have_no_number_warn_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    model = model_of([MUL, N("Relu", ["a"], ["y"])], ["N", 12], ["M", 12], {"c": TWO})
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with caplog.at_level(logging.WARNING):
        session.run(None, {"x": np.ones((5, 12), np.float32)})
    assert not caplog.messages


def _input(model: ModelProto) -> np.ndarray:
    dim = model.graph.input[0].type.tensor_type.shape.dim[0]
    return np.random.default_rng(0).uniform(-1, 1, (dim.dim_value or 5, 12)).astype(np.float32)


def _by_the_specification(model: ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    return ReferenceEvaluator(model).run(None, feeds)[0]
