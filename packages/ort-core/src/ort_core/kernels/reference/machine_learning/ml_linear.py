"""Linear models of ai.onnx.ml: scores = X @ coefficients.T + intercepts."""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.axes import MAX_ELEMENTS, check_size, shape_text
from ort_core.kernels.reference.machine_learning.ml_scores import as_matrix, class_labels, transform, two_columns


@kernel("LinearRegressor", domain="ai.onnx.ml")
def linear_regressor(
    data: np.ndarray,
    *,
    coefficients: tuple[float, ...] = (),
    intercepts: tuple[float, ...] = (),
    post_transform: str = "NONE",
    targets: int = 1,
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Y = post_transform(X @ coefficients.T + intercepts), [rows, targets].

    As in onnxruntime there are as many intercepts as targets, or none: another count is no intercepts.
    """
    if data.ndim == 0 or data.ndim > 2:
        raise InvalidArgument(
            f"LinearRegressor: the input has more than 2 dimensions or none: shape {shape_text(data.shape)}"
        )
    matrix = as_matrix(data, "LinearRegressor")
    features = matrix.shape[1]
    if targets <= 0 or targets * max(features, 1) > MAX_ELEMENTS:
        raise InvalidArgument(
            f"LinearRegressor: targets ({targets}) * features ({features}) overflows or is not positive"
        )
    check_size((len(matrix), targets), np.dtype(np.float32), "LinearRegressor", ctx)
    check_size((targets, max(features, 1)), np.dtype(np.float64), "LinearRegressor", ctx)
    if len(coefficients) < targets * features:
        raise InvalidArgument(
            f"LinearRegressor: coefficients length ({len(coefficients)}) must be at least targets ({targets}) * "
            f"features ({features})"
        )
    weights = np.asarray(coefficients[: targets * features], np.float32).reshape(targets, features)
    scores = _scores(matrix, weights, intercepts if len(intercepts) == targets else ())
    return transform(scores, post_transform)


def _scores(matrix: np.ndarray, weights: np.ndarray, intercepts: tuple[float, ...]) -> np.ndarray:
    wide = matrix.astype(np.float64) @ weights.T.astype(np.float64)
    if intercepts:
        wide = wide + np.asarray(intercepts, np.float32)
    return wide.astype(np.float32)


@kernel("LinearClassifier", domain="ai.onnx.ml")
def linear_classifier(
    data: np.ndarray,
    *,
    coefficients: tuple[float, ...],
    classlabels_ints: tuple[int, ...] | None = None,
    classlabels_strings: tuple[str, ...] | None = None,
    intercepts: tuple[float, ...] = (),
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[np.ndarray, np.ndarray]:
    """Y = the label of the highest score (one score: by its sign); Z = the scores after the post transform."""
    matrix = as_matrix(data, "LinearClassifier")
    features = matrix.shape[1]
    classes = len(intercepts) if intercepts else len(coefficients) // max(features, 1)
    if classes * features > len(coefficients) or not classes:
        raise InvalidArgument(
            f"LinearClassifier: coefficients length ({len(coefficients)}) must be at least classes ({classes}) * "
            f"features ({features})"
        )
    weights = np.asarray(coefficients[: classes * features], np.float32).reshape(classes, features)
    scores = _scores(matrix, weights, intercepts)
    labels = class_labels(classlabels_ints, classlabels_strings)
    if classes == 1:
        return _binary(scores, labels, post_transform, "strings" if classlabels_strings else "ints")
    if labels is not None and len(labels) < classes:
        raise InvalidArgument(f"LinearClassifier: {len(labels)} class labels for {classes} classes")
    best = scores.argmax(axis=1)
    return (best if labels is None else labels[best]), transform(scores, post_transform)


def _binary(
    scores: np.ndarray, labels: np.ndarray | None, post_transform: str, kind: str
) -> tuple[np.ndarray, np.ndarray]:
    positive = scores[:, 0] > 0
    if labels is not None and len(labels) != 2:
        raise InvalidArgument(
            f"LinearClassifier: classlabels_{kind} must have exactly 2 elements for binary classification, got "
            f"{len(labels)}"
        )
    if labels is None:
        return positive.astype(np.int64), transform(scores, post_transform)
    return labels[positive.astype(np.int64)], two_columns(scores, post_transform, np.zeros(len(scores), bool))
