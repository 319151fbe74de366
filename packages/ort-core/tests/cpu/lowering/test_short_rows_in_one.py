"""Rows of two, four or eight floats are walked as one long row, whichever operands repeat within or between them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort

FLOAT = TensorProto.FLOAT


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 2.0, shape).astype(np.float32)


@pytest.mark.parametrize("period", [2, 3, 4, 8])
@pytest.mark.parametrize("is_bool", [False, True])
def test_short_rows_with_operands_of_every_kind_are_numpys(period: int, is_bool: bool) -> None:
    tiled, single = numbers(1, period), numbers(2, 1)
    nodes = [
        helper.make_node("Slice", ["columns", "one", "two", "axis"], ["spread"]),
        helper.make_node("Mul", ["once", "tiled"], ["scaled"]),
        helper.make_node("Mul", ["scaled", "spread"], ["a"]),
        helper.make_node("Add", ["a", "whole"], ["b"]),
        helper.make_node("Sin", ["b"], ["c"]),
        helper.make_node("Greater", ["c", "single"], ["y"])
        if is_bool
        else helper.make_node("Div", ["c", "single"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    bounds = [numpy_helper.from_array(np.array([n]), name) for name, n in (("one", 1), ("two", 2), ("axis", 2))]
    inputs = [info("once", FLOAT, ["N", "M", 1]), info("columns", FLOAT, ["N", "M", 3])]
    inputs.append(info("whole", FLOAT, ["N", "M", period]))
    outputs = [info("y", TensorProto.BOOL if is_bool else FLOAT, None)]
    constants = [numpy_helper.from_array(tiled, "tiled"), numpy_helper.from_array(single, "single"), *bounds]
    graph = helper.make_graph(nodes, "rows", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for rows in ((1, 1), (3, 5), (2, 700), (0, 4)):
        once, whole = numbers(3, *rows, 1), numbers(4, *rows, period)
        columns = numbers(5, *rows, 3)
        (found,) = session.run(None, {"once": once, "columns": columns, "whole": whole})
        sines = np.sin(once.astype(np.float64) * tiled * columns[..., 1:2] + whole)
        if is_bool:
            np.testing.assert_array_equal(found, sines.astype(np.float32) > single)
        else:
            np.testing.assert_allclose(found, sines / single, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("period", [2, 4, 8])
def test_short_rows_are_stored_into_a_concatenation(period: int) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "tiled"], ["a"]),
        helper.make_node("Sin", ["a"], ["b"]),
        helper.make_node("Cos", ["a"], ["c"]),
        helper.make_node("Concat", ["b", "c"], ["d"], axis=2),
        helper.make_node("MatMul", ["d", "weights"], ["y"]),
    ]
    info, tiled, weights = helper.make_tensor_value_info, numbers(1, period), numbers(2, 2 * period, 5)
    constants = [numpy_helper.from_array(tiled, "tiled"), numpy_helper.from_array(weights, "weights")]
    ends = [[info("x", FLOAT, ["N", "M", 1])], [info("y", FLOAT, None)]]
    model = helper.make_model(
        helper.make_graph(nodes, "waves", *ends, constants), opset_imports=[helper.make_opsetid("", 20)], ir_version=9
    )
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for rows in ((3, 5), (2, 700)):
        x = numbers(3, *rows, 1)
        angles = x.astype(np.float64) * tiled
        expected = np.concatenate([np.sin(angles), np.cos(angles)], -1) @ weights
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-5, atol=1e-5)
