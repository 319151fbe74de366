"""Normalizations of float64 are compiled, as steps for each reduction: against numpy's long doubles."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import ort_core as ort

N = helper.make_node
DOUBLE = TensorProto.DOUBLE
EPSILON = 1e-5


pytestmark = pytest.mark.usefixtures("nothing_runs_by_numpy")


def run(node: NodeProto, x: np.ndarray, constants: Mapping[str, np.ndarray], threads: int = 2) -> np.ndarray:
    info, names = helper.make_tensor_value_info, ["A", "B", "C"]
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    shape = [*names[: x.ndim - 1], x.shape[-1]]
    graph = helper.make_graph([node], "g", [info("x", DOUBLE, shape)], [info("y", DOUBLE, shape)], initializer=held)
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
