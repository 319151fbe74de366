"""Rows shorter than two vectors are reduced many at once: numpy's results, and no row depends on its neighbors."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import ort_core as ort

OPERATORS = {
    "ReduceSum": lambda x: x.sum(-1), "ReduceMean": lambda x: x.mean(-1), "ReduceL1": lambda x: abs(x).sum(-1),
    "ReduceL2": lambda x: np.sqrt((x * x).sum(-1)), "ReduceSumSquare": lambda x: (x * x).sum(-1),
    "ReduceMax": lambda x: x.max(-1), "ReduceMin": lambda x: x.min(-1),
}  # fmt: skip


def reducing(op_type: str, length: int) -> ort.InferenceSession:
    """Return a session that reduces the rows of exp(x), which the reduction takes in."""
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node(op_type, ["e", "axes"], ["y"], keepdims=0)]
    given = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", "M", length])]
    axes = numpy_helper.from_array(np.array([2], np.int64), "axes")
    graph = helper.make_graph(nodes, "g", given, [onnx.ValueInfoProto(name="y")], [axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("length", [1, 2, 3, 7, 15, 16, 20, 31, 33])
@pytest.mark.parametrize("op_type", OPERATORS)
def test_short_rows_are_reduced_as_by_numpy(op_type: str, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_STRICT_COMPILATION", "1")
    session = reducing(op_type, length)
    x = np.random.default_rng(length).standard_normal((3, 37, length)).astype(np.float32)
    (found,) = session.run(None, {"x": x})
    np.testing.assert_allclose(found, OPERATORS[op_type](np.exp(x.astype(np.float64))), rtol=3e-6)
    (alone,) = session.run(None, {"x": x[1:2, 36:]})
    assert np.array_equal(alone[0], found[1, 36:]), "one row has the same bits beside others and alone"


@pytest.mark.parametrize("op_type", OPERATORS)
def test_what_is_not_finite_stays_in_its_row(op_type: str) -> None:
    x = np.zeros((1, 40, 5), np.float32)
    x[0, 7, 3], x[0, 21, 0] = np.nan, np.inf
    (found,) = reducing(op_type, 5).run(None, {"x": x})
    assert np.isnan(found[0, 7])
    assert found[0, 21] == (1 if op_type == "ReduceMin" else np.inf)
    assert np.isfinite(np.delete(found[0], [7, 21])).all()
