"""The CPU provider's option ``precision``: float32 models with products in bfloat16."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto
from test_groups import FLOAT, N, model_of

import ort_core as ort
from ort_core.errors import InvalidArgument

RANDOM = np.random.default_rng(11)
W1, W2 = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((70, 130), (40, 130)))
BIAS = RANDOM.standard_normal(40).astype(np.float32)


def model() -> ModelProto:
    nodes = [
        N("MatMul", ["x", "w1"], ["h"]),
        N("Relu", ["h"], ["r"]),
        N("Gemm", ["r", "w2", "b"], ["y"], transB=1),
    ]
    return model_of(nodes, {"x": (FLOAT, ["N", 70])}, {"y": FLOAT}, {"w1": W1, "w2": W2, "b": BIAS})


def session(precision: str, graph: ModelProto | None = None) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    providers = [("CPUExecutionProvider", {"precision": precision})]
    return ort.InferenceSession((graph or model()).SerializeToString(), options, providers=providers)


def exact(x: np.ndarray, w1: np.ndarray, w2: np.ndarray) -> np.ndarray:
    hidden = np.maximum(x.astype(np.float64) @ w1.astype(np.float64), 0)
    return hidden @ w2.astype(np.float64).T + BIAS


@pytest.mark.parametrize("rows", [0, 1, 3, 17, 300])
def test_bfloat16_stays_within_the_error_that_its_roundings_make(rows: int) -> None:
    x = RANDOM.standard_normal((rows, 70)).astype(np.float32)
    (found,) = session("bfloat16").run(None, {"x": x})
    size = np.abs(x).astype(np.float64) @ np.abs(W1) @ np.abs(W2).T + np.abs(BIAS)
    # Two operands are rounded by 2**-8 in each of two products.
    assert (np.abs(found - exact(x, W1, W2)) <= 4.1 * 2.0**-8 * size).all()


def test_bfloat16_rounds_the_weights_and_float32_does_not() -> None:
    x = RANDOM.standard_normal((9, 70)).astype(np.float32)
    (wide,), (narrow,) = (session(each).run(None, {"x": x}) for each in ("float32", "bfloat16"))
    truth = exact(x, W1, W2)
    rounded = exact(x, *(w.astype(ml_dtypes.bfloat16) for w in (W1, W2)))
    assert np.abs(wide - truth).max() < 1e-4 * np.abs(truth).max()
    assert np.abs(narrow - truth).max() > 1e-4 * np.abs(truth).max(), "nothing was rounded"
    assert np.abs(narrow - rounded).max() < 8e-3 * np.abs(truth).max()


def test_an_unknown_precision_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidArgument, match="'float32', 'bfloat16'"):
        session("int3")


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_what_recurrent_layers_make_of_their_input_rounds_the_weights(kind: str) -> None:
    gates = {"LSTM": 4, "GRU": 3}[kind]
    constants = {
        "w": RANDOM.standard_normal((1, gates * 9, 33)) / 6,
        "r": RANDOM.standard_normal((1, gates * 9, 9)) / 9,
    }
    constants = {name: array.astype(np.float32) for name, array in constants.items()}
    nodes = [N(kind, ["x", "w", "r"], ["y"], hidden_size=9)]
    graph = model_of(nodes, {"x": (FLOAT, ["T", "B", 33])}, {"y": FLOAT}, constants)
    x = RANDOM.standard_normal((5, 3, 33)).astype(np.float32)
    wide, narrow = (session(each, graph).run(None, {"x": x})[0] for each in ("float32", "bfloat16"))
    assert isinstance(wide, np.ndarray)
    # A gate moves by at most its slope times the error of its sum; five steps of slope 1 add up.
    size = np.abs(x).max() * np.abs(constants["w"]).sum(axis=2).max()
    assert np.abs(narrow - wide).max() <= 5 * 2.1 * 2.0**-8 * size
    assert (narrow != wide).any(), "nothing was rounded"
