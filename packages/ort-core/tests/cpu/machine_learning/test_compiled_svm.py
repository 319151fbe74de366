"""Support vector machines compiled: against the reference kernels, which compute in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper

import ort_core as ort

ML = "ai.onnx.ml"
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
COLUMNS = 6
KERNELS: dict[str, tuple[float, ...]] = {
    "LINEAR": (0.0, 0.0, 0.0), "RBF": (0.3, 0.0, 0.0), "POLY": (0.5, 1.0, 3.0), "SIGMOID": (0.2, -0.5, 0.0)
}  # fmt: skip
ROWS = (1, 3, 0, 33, 200)
Check = Callable[..., None]


def model_of(op_type: str, attributes: dict[str, Any], outputs: dict[str, int], kind: int = FLOAT) -> ModelProto:
    info = helper.make_tensor_value_info
    node = helper.make_node(op_type, ["x"], list(outputs), domain=ML, **attributes)
    given = [info("x", kind, ["rows", COLUMNS])]
    graph = helper.make_graph([node], "svm", given, [info(n, t, None) for n, t in outputs.items()])
    opsets = [helper.make_opsetid(ML, 3), helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def numbers(seed: int, *shape: int, offset: float = 0.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) + offset).astype(np.float32)


def classifier(kernel: str, counts: tuple[int, ...], **more: Any) -> ModelProto:
    classes, total = len(counts), sum(counts)
    attributes = {
        "kernel_type": kernel, "kernel_params": KERNELS[kernel], "vectors_per_class": counts,
        "classlabels_ints": [7 * k - 3 for k in range(classes)],
        "rho": numbers(3, classes * (classes - 1) // 2).tolist(),
        "coefficients": numbers(4, (classes - 1) * total).tolist(),
        "support_vectors": numbers(5, total * COLUMNS, offset=more.pop("offset", 0.0)).tolist(), **more,
    }  # fmt: skip
    return model_of("SVMClassifier", attributes, {"label": INT64, "scores": FLOAT})


@pytest.mark.parametrize("kernel", list(KERNELS))
@pytest.mark.parametrize("counts", [(4, 3), (5, 2, 9), (3, 0, 4, 20)], ids=["two", "three", "four"])
def test_classes_and_decisions_are_the_references(check: Check, kernel: str, counts: tuple[int, ...]) -> None:
    check(classifier(kernel, counts), [{"x": numbers(count, count, COLUMNS)} for count in ROWS])


@pytest.mark.parametrize("transform", ["LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("counts", [(4, 3), (5, 2, 9)], ids=["two", "three"])
def test_decisions_are_transformed_as_by_the_reference(check: Check, transform: str, counts: tuple[int, ...]) -> None:
    model = classifier("RBF", counts, post_transform=transform)
    check(model, [{"x": numbers(count, count, COLUMNS)} for count in ROWS])


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("counts", [(4, 3), (5, 2, 9), (3,) * 11, (1,) * 20], ids=["two", "three", "eleven", "twenty"])
def test_probabilities_are_the_references(check: Check, transform: str, counts: tuple[int, ...]) -> None:
    pairs = len(counts) * (len(counts) - 1) // 2
    scales = {"prob_a": (-np.abs(numbers(8, pairs)) - 0.5).tolist(), "prob_b": numbers(9, pairs).tolist()}
    model = classifier("RBF", counts, post_transform=transform, **scales)
    check(model, [{"x": numbers(count, count, COLUMNS)} for count in ROWS])


def test_certain_pairs_are_clipped_and_rows_with_nan_have_equal_probabilities(check: Check) -> None:
    scales = {"prob_a": [-300.0, 300.0, -0.5], "prob_b": [5.0, -90.0, 0.0]}
    x = numbers(2, 40, COLUMNS)
    x[::7, 2] = np.nan
    check(classifier("RBF", (4, 5, 6), **scales), [{"x": x}])


def test_distance_of_features_far_from_zero_keeps_its_digits(check: Check) -> None:
    """Squares of 1000 are 10^6: their difference in float32 would be wrong by a tenth."""
    check(classifier("RBF", (9, 8), offset=1000.0), [{"x": numbers(1, 50, COLUMNS, offset=1000.0)}])


@pytest.mark.parametrize("kernel", list(KERNELS))
@pytest.mark.parametrize("counts", [(4, 3), (4, 5, 6)], ids=["two", "three"])
def test_row_with_nan_has_the_last_class_and_no_scores(check: Check, kernel: str, counts: tuple[int, ...]) -> None:
    """The second class of a pair has the vote where the decision is not above zero: so do libsvm and onnxruntime."""
    x = numbers(2, 40, COLUMNS)
    x[::7, 2] = np.nan
    model = classifier(kernel, counts)
    check(model, [{"x": x}])
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    labels = ort.InferenceSession(model.SerializeToString()).run(["label"], {"x": x})[0]
    np.testing.assert_array_equal(labels, theirs.run(["label"], {"x": x})[0])
    assert (labels[::7] == 7 * len(counts) - 10).all()


@pytest.mark.parametrize("kernel", list(KERNELS))
@pytest.mark.parametrize("counts", [(4, 3), (4, 5, 6), (2, 0, 3, 1)], ids=["two", "three", "four"])
def test_infinite_features_reach_the_decisions_of_their_own_classes_alone(
    check: Check, kernel: str, counts: tuple[int, ...]
) -> None:
    x = numbers(2, 40, COLUMNS)
    x[::3, 2], x[1::3, 4] = np.inf, -np.inf
    check(classifier(kernel, counts), [{"x": x}])


@pytest.mark.parametrize("kernel", list(KERNELS))
@pytest.mark.parametrize("kind", [FLOAT, INT64], ids=["float32", "int64"])
@pytest.mark.parametrize("one_class", [0, 1])
def test_regression_is_the_references(check: Check, kernel: str, kind: int, one_class: int) -> None:
    count = 11
    attributes = {
        "kernel_type": kernel, "kernel_params": KERNELS[kernel], "n_supports": count, "rho": [0.25],
        "coefficients": numbers(1, count).tolist(), "support_vectors": numbers(2, count * COLUMNS).tolist(),
        "one_class": one_class,
    }  # fmt: skip
    every = []
    for rows in ROWS:
        x = numbers(rows, rows, COLUMNS)
        every.append({"x": x if kind == FLOAT else np.rint(x).astype(np.int64)})
    check(model_of("SVMRegressor", attributes, {"y": FLOAT}, kind), every)


def test_regression_without_support_vectors_is_linear(check: Check) -> None:
    attributes = {"rho": [-1.5], "coefficients": numbers(1, COLUMNS).tolist()}
    model = model_of("SVMRegressor", attributes, {"y": FLOAT})
    check(model, [{"x": numbers(rows, rows, COLUMNS)} for rows in ROWS])
