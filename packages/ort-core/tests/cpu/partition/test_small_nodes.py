"""A node over a few elements that is a whole model, or many passes of numpy, is a program: one native call."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto
from test_groups import N, agrees, model_of

import ort_core as ort

FLOAT, INT64, INT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32
X = (np.arange(16).reshape(4, 4) * 7 % 5 - 2).astype(np.float32)
PLACES = np.array([[0, 3, -1, 2], [1, 1, -4, 0]])
Case = tuple[ModelProto, dict[str, np.ndarray]]


def of_x(
    operator: str, constants: dict[str, np.ndarray] | None = None, dtype: int = FLOAT, **attributes: object
) -> Case:
    """A node of 4 x 4 numbers and constants."""
    given = constants or {}
    kind = INT64 if operator.startswith("Arg") else dtype
    model = model_of([N(operator, ["x", *given], ["y"], **attributes)], {"x": (dtype, [4, 4])}, {"y": kind}, given)
    return model, {"x": X.astype(np.int32) if dtype == INT32 else X}


CASES: dict[str, Case] = {
    "OneHot": (
        model_of([N("OneHot", ["i", "d", "v"], ["y"])], {"i": (INT64, [4])}, {"y": FLOAT},
                 {"d": np.array(4), "v": np.array([0, 1], np.float32)}),
        {"i": PLACES[0]},
    ),
    "GatherND": of_x("GatherND", {"i": np.array([[0, 3], [-1, 2]])}),
    "GatherElements": of_x("GatherElements", {"i": PLACES}),
    "ScatterElements": of_x("ScatterElements", {"i": PLACES[:1], "u": X[3:]}),
    "ScatterND": of_x("ScatterND", {"i": np.array([[2], [0]]), "u": X[:2]}),
    "Pad": of_x("Pad", {"p": np.array([1, 2, 0, 1])}, mode="reflect"),
    "Hardmax": of_x("Hardmax", axis=0),
    "ArgMin": of_x("ArgMin", axis=1),
    "CumSum": of_x("CumSum", {"a": np.array(0)}, reverse=1),
    "Trilu": of_x("Trilu", {"k": np.array(1)}),
    "ReduceSum": of_x("ReduceSum", {"a": np.array([1])}, INT32),
    "ReduceMax": of_x("ReduceMax", {"a": np.array([0])}, INT32),
    "Max": of_x("Max", {"a": X[:1]}),
    "PRelu": of_x("PRelu", {"a": X[1:2]}),
    "Transpose": of_x("Transpose"),
    "Slice": of_x("Slice", {"s": np.array([0]), "e": np.array([9]), "a": np.array([1]), "t": np.array([2])}),
    "Mod": of_x("Mod", {"m": np.array(3, np.int32)}, INT32),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_node_of_a_few_elements_is_a_program(name: str) -> None:
    model, feeds = CASES[name]
    agrees(model, feeds)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert len(session._loaded.prepared.plan.steps[0].step.compiled.native_programs) == 1
