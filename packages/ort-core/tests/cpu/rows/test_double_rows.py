"""Softmax, reductions and normalizations of float64 are compiled: against numpy's long doubles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import ort_core as ort

N = helper.make_node
DOUBLE = TensorProto.DOUBLE
EPSILON = 1e-5


pytestmark = pytest.mark.usefixtures("nothing_runs_by_numpy")


def run(
    nodes: NodeProto | list[NodeProto], x: np.ndarray, constants: Mapping[str, np.ndarray], threads: int = 2,
    shape: Sequence[str | int] | None = None, result: Sequence[str | int] | None = None,
) -> np.ndarray:  # fmt: skip
    info, names = helper.make_tensor_value_info, ["A", "B", "C"]
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    shape = shape or [*names[: x.ndim - 1], x.shape[-1]]
    nodes, results = nodes if isinstance(nodes, list) else [nodes], [info("y", DOUBLE, result or shape)]
    graph = helper.make_graph(nodes, "g", [info("x", DOUBLE, shape)], results, initializer=held)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, {"x": x})[0]
    return found


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def check(found: np.ndarray, expected: np.ndarray) -> None:
    assert (found.shape, found.dtype) == (expected.shape, np.float64)
    np.testing.assert_allclose(found, expected.astype(np.float64), rtol=1e-13, atol=1e-14)


SHAPES = [(5, 33), (2, 3, 200), (4, 1), (1, 7)]


@pytest.mark.parametrize("memory", ["", "end", "begin"])
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_lp_normalization_divides_by_the_norm(
    shape: tuple[int, ...], axis: int, p: int, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORT_GUARDED_MEMORY", memory)
    x = numbers(1, *shape)
    x[0] = 0
    norm = np.linalg.norm(x.astype(np.longdouble), p, axis=axis, keepdims=True)
    check(run(N("LpNormalization", ["x"], ["y"], p=p, axis=axis), x, {}), x / np.where(norm == 0, 1, norm))


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("shape", [(5, 33), (2, 3, 200), (0, 8)], ids=str)
def test_layer_normalization_standardizes_rows(shape: tuple[int, ...], has_bias: bool, threads: int) -> None:
    x, constants = numbers(1, *shape), {"s": numbers(2, shape[-1]), "b": numbers(3, shape[-1])}
    wide = x.astype(np.longdouble)
    centered = wide - wide.mean(axis=-1, keepdims=True)
    expected = centered / np.sqrt((centered**2).mean(axis=-1, keepdims=True) + np.float32(EPSILON)) * constants["s"]
    expected = expected + constants["b"] if has_bias else expected
    node = N("LayerNormalization", ["x", "s", *(["b"] if has_bias else [])], ["y"], epsilon=EPSILON)
    check(run(node, x, constants if has_bias else {"s": constants["s"]}, threads), expected)


@pytest.mark.parametrize("axes", [[0], [1], [0, 2], [2]], ids=str)
def test_mean_variance_normalization_standardizes_axes(axes: list[int]) -> None:
    x = numbers(1, 3, 4, 17)
    wide = x.astype(np.longdouble)
    centered = wide - wide.mean(axis=tuple(axes), keepdims=True)
    expected = centered / (np.sqrt((centered**2).mean(axis=tuple(axes), keepdims=True)) + 1e-9)
    check(run(N("MeanVarianceNormalization", ["x"], ["y"], axes=axes), x, {}), expected)


def test_a_row_without_numbers_leaves_others_alone() -> None:
    x = numbers(1, 4, 20)
    expected = x / np.linalg.norm(x, axis=1, keepdims=True)
    x[1, 3], x[2, 5] = np.nan, np.inf
    found = run(N("LpNormalization", ["x"], ["y"]), x, {})
    assert np.isnan(found[1]).all()
    assert np.isnan(found[2, 5])
    np.testing.assert_array_equal(np.delete(found[2], 5), 0)
    check(found[[0, 3]], expected[[0, 3]])


def share(x: np.ndarray, axis: int, op_type: str) -> np.ndarray:
    wide = x.astype(np.longdouble)
    fallen = wide - wide.max(axis=axis, keepdims=True)
    total = np.exp(fallen).sum(axis=axis, keepdims=True)
    return fallen - np.log(total) if op_type == "LogSoftmax" else np.exp(fallen) / total


ROWS = [(5, 33), (2, 3, 200), (4, 1), (1, 7), (3, 16), (2, 32), (1, 1000)]


@pytest.mark.parametrize("memory", ["", "end", "begin"])
@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_softmax_is_each_elements_share_of_the_powers(
    shape: tuple[int, ...], op_type: str, axis: int, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORT_GUARDED_MEMORY", memory)
    x = numbers(1, *shape) * 4
    check(run(N(op_type, ["x"], ["y"], axis=axis), x, {}), share(x, axis, op_type))


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
def test_softmax_of_open_rows_is_the_same_with_any_number_of_threads(op_type: str) -> None:
    x = numbers(2, 37, 45) * 30
    found = [run(N(op_type, ["x"], ["y"]), x, {}, threads, ["A", "B"]) for threads in (1, 2, 4)]
    check(found[0], share(x, -1, op_type))
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


def test_softmax_of_infinities_and_of_large_numbers() -> None:
    x = np.array([[0, -np.inf, 1], [1e308, -1e308, 1e308], [-np.inf] * 3, [np.inf, 0, 1], [0, np.nan, 1], [0, 800, 9]])
    found = run(N("Softmax", ["x"], ["y"]), x, {})
    check(found[:2], np.array([[1, 0, np.e], [0.5 * (1 + np.e), 0, 0.5 * (1 + np.e)]]) / (1 + np.e))
    assert np.isnan(found[2:5]).all()
    assert found[5].tolist() == [0, 1, 0], "e**-800 is below the least number"


def test_softmax_keeps_shares_below_the_least_normal_number() -> None:
    x = np.array([[0.0, -720.0, -740.0, -746.0]])
    np.testing.assert_allclose(run(N("Softmax", ["x"], ["y"]), x, {})[0], [1, *np.exp(x[0, 1:])], atol=5e-324)


@pytest.mark.parametrize("axes", [[1], [0], [0, 1]], ids=str)
@pytest.mark.parametrize("shape", [(5, 33), (3, 200), (64, 4), (1, 16)], ids=str)
@pytest.mark.parametrize("op_type", ["ReduceLogSumExp", "ReduceLogSum", "ReduceMean", "ReduceL2", "ReduceMax"])
def test_reductions_go_over_rows_and_columns(op_type: str, shape: tuple[int, int], axes: list[int]) -> None:
    x = np.abs(numbers(3, *shape)) + 0.5
    wide, over = x.astype(np.longdouble), {"axis": tuple(axes), "keepdims": True}
    expected = {
        "ReduceLogSumExp": lambda: np.log(np.exp(wide).sum(**over)), "ReduceLogSum": lambda: np.log(wide.sum(**over)),
        "ReduceMean": lambda: wide.mean(**over), "ReduceL2": lambda: np.sqrt((wide**2).sum(**over)),
        "ReduceMax": lambda: wide.max(**over),
    }[op_type]()  # fmt: skip
    result = [1 if axis in axes else size for axis, size in enumerate(shape)]
    node = N(op_type, ["x", "axes"], ["y"], keepdims=1)
    check(run(node, x, {"axes": np.array(axes)}, 2, shape, result), expected)


def test_features_of_float32_are_reduced_in_float64() -> None:
    x = numbers(4, 6, 45).astype(np.float32)
    wide = x.astype(np.longdouble)
    info, widened = helper.make_tensor_value_info, N("Cast", ["x"], ["a"], to=DOUBLE)
    for node, result, expected in (
        (N("Softmax", ["a"], ["y"]), ["A", 45], share(wide, -1, "Softmax")),
        (N("ReduceSumSquare", ["a", "last"], ["y"]), ["A", 1], (wide**2).sum(-1, keepdims=True)),
    ):
        last = [numpy_helper.from_array(np.array([-1]), "last")]
        inputs, outputs = [info("x", TensorProto.FLOAT, ["A", 45])], [info("y", DOUBLE, result)]
        graph = helper.make_graph([widened, node], "g", inputs, outputs, initializer=last)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        check(session.run(None, {"x": x})[0], expected)


@pytest.mark.parametrize("memory", ["end", "begin"])
@pytest.mark.parametrize("size", [1, 7, 16, 17, 31, 100])
def test_functions_of_elements_stay_inside_of_their_memory(
    size: int, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORT_GUARDED_MEMORY", memory)
    x = numbers(5, 3, size)
    nodes = [N("Tanh", ["x"], ["a"]), N("Exp", ["a"], ["b"]), N("Add", ["b", "x"], ["c"]), N("Erf", ["c"], ["y"])]
    expected = [math.erf(math.exp(math.tanh(v)) + v) for v in x.ravel().tolist()]
    check(run(nodes, x, {}, 1, ["A", "B"]), np.array(expected).reshape(x.shape))
