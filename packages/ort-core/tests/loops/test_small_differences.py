"""Activations whose small results are differences of large numbers, or sums that lose them: against float64."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_core as ort

X = -np.concatenate([np.geomspace(1e-30, 80, 4001), [0.34657, 0.34658, 1.0397]]).astype(np.float32)
ALPHA = np.float32(0.75)
BOTH_WAYS = ("Softplus", "Mish")  # above zero nothing is lost, but the formula is another


def expected(name: str, x: np.ndarray) -> np.ndarray:
    if name in BOTH_WAYS:
        softplus = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
        return softplus if name == "Softplus" else x * np.tanh(softplus)
    if name == "Elu":
        return ALPHA * np.expm1(x)
    if name == "Celu":
        return ALPHA * np.expm1(x / ALPHA)
    return np.float64(np.float32(1.05070102)) * np.float64(np.float32(1.67326319)) * np.expm1(x)


@pytest.mark.parametrize("name", ["Elu", "Celu", "Selu", *BOTH_WAYS])
def test_near_zero_as_elsewhere_an_activation_is_right_to_a_few_units_in_the_last_place(name: str) -> None:
    attributes = {"alpha": float(ALPHA)} if name in ("Elu", "Celu") else {}
    x, y = (helper.make_tensor_value_info(each, TensorProto.FLOAT, [None]) for each in ("x", "y"))
    graph = helper.make_graph([helper.make_node(name, ["x"], ["y"], **attributes)], "activation", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = np.concatenate([X, -X]) if name in BOTH_WAYS else X
    (found,) = session.run(None, {"x": given})
    np.testing.assert_allclose(found, expected(name, given.astype(np.float64)), rtol=6e-7, atol=1e-37)
