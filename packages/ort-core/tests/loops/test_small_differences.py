"""Activations whose results near zero are small differences of large numbers: compiled, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_core as ort

X = -np.concatenate([np.geomspace(1e-30, 80, 4001), [0.34657, 0.34658, 1.0397]]).astype(np.float32)
ALPHA = np.float32(0.75)


def expected(name: str) -> np.ndarray:
    x = X.astype(np.float64)
    if name == "Elu":
        return ALPHA * np.expm1(x)
    if name == "Celu":
        return ALPHA * np.expm1(x / ALPHA)
    return np.float64(np.float32(1.05070102)) * np.float64(np.float32(1.67326319)) * np.expm1(x)


@pytest.mark.parametrize("name", ["Elu", "Celu", "Selu"])
def test_near_zero_as_elsewhere_an_activation_is_right_to_a_few_units_in_the_last_place(name: str) -> None:
    attributes = {} if name == "Selu" else {"alpha": float(ALPHA)}
    x, y = (helper.make_tensor_value_info(each, TensorProto.FLOAT, [None]) for each in ("x", "y"))
    graph = helper.make_graph([helper.make_node(name, ["x"], ["y"], **attributes)], "activation", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": X})
    np.testing.assert_allclose(found, expected(name), rtol=4e-7, atol=1e-37)
