"""Support vector machines of ai.onnx.ml, as libsvm computes them: one decision per pair of classes, then votes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.machine_learning.ml_scores import (
    as_matrix,
    class_labels,
    get_transform,
    logistic,
    transform,
    two_columns,
)


@np.errstate(all="ignore")  # infinite features
def kernel_matrix(left: np.ndarray, right: np.ndarray, kind: str, parameters: Sequence[float]) -> np.ndarray:
    """Return k(left[i], right[j]) for the kernel ``kind`` with parameters gamma, coef0 and degree."""
    gamma, coef0, degree = (*parameters, 0.0, 0.0, 0.0)[:3]
    if kind == "RBF":
        squares = np.zeros((len(left), len(right)), left.dtype)
        for feature, other in zip(left.T, right.T, strict=True):  # a difference of squares would cancel far from zero
            squares += np.square(feature[:, None] - other)
        return np.exp(-gamma * squares)
    product = left @ right.T
    if kind == "LINEAR":
        return product
    if kind == "POLY":
        return (gamma * product + coef0) ** degree
    if kind == "SIGMOID":
        return np.tanh(gamma * product + coef0)
    raise InvalidArgument(f"unknown kernel_type {kind!r}; known: LINEAR, POLY, RBF, SIGMOID")


@kernel("SVMRegressor", domain="ai.onnx.ml")
@np.errstate(all="ignore")  # infinite features
def svm_regressor(
    data: np.ndarray,
    *,
    coefficients: tuple[float, ...] = (),
    kernel_params: tuple[float, ...] = (),
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: tuple[float, ...] = (),
    support_vectors: tuple[float, ...] = (),
) -> np.ndarray:
    """Y = coefficients . k(X, support vectors) + rho; with ``one_class`` 1 where that is positive, else -1."""
    matrix = as_matrix(data, "SVMRegressor").astype(np.float64)
    weights = np.asarray(coefficients, np.float32).astype(np.float64)
    if not rho:
        raise InvalidArgument("SVMRegressor: the attribute rho is needed")
    if n_supports > 0:
        vectors = _support_vectors(support_vectors, n_supports, matrix.shape[1], "SVMRegressor")
        kernels = kernel_matrix(matrix, vectors, kernel_type, kernel_params)
    else:
        kernels = matrix
    if weights.size != kernels.shape[1]:
        raise InvalidArgument(f"SVMRegressor: {weights.size} coefficients for {kernels.shape[1]} terms")
    if n_supports <= 0:
        kernels, weights = matrix @ weights[:, None], np.ones(1)
    scores = (kernels @ weights + np.float32(rho[0])).astype(np.float32)[:, None]
    if one_class:
        return np.where(scores > 0, np.float32(1), np.float32(-1))
    get_transform(post_transform)  # refuses unknown names; a single score is never transformed, as in onnxruntime
    return scores


def _support_vectors(values: Sequence[float], count: int, features: int, op_type: str) -> np.ndarray:
    if len(values) != count * features:
        raise InvalidArgument(
            f"Invalid input for {op_type}: {len(values)} numbers in support_vectors for {count} vectors of {features} "
            f"features"
        )
    return np.asarray(values, np.float32).astype(np.float64).reshape(count, features)


@kernel("SVMClassifier", domain="ai.onnx.ml")
@np.errstate(all="ignore")  # infinite features
def svm_classifier(
    data: np.ndarray,
    *,
    classlabels_ints: tuple[int, ...] | None = None,
    classlabels_strings: tuple[str, ...] | None = None,
    coefficients: tuple[float, ...] = (),
    kernel_params: tuple[float, ...] = (),
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: tuple[float, ...] = (),
    prob_b: tuple[float, ...] = (),
    rho: tuple[float, ...] = (),
    support_vectors: tuple[float, ...] = (),
    vectors_per_class: tuple[int, ...] = (),
) -> tuple[np.ndarray, np.ndarray]:
    """Y = the label with most votes (or the highest score); Z = decisions, or probabilities with ``prob_a``."""
    matrix = as_matrix(data, "SVMClassifier").astype(np.float64)
    labels = class_labels(classlabels_ints, classlabels_strings)
    classes = max(1, 0 if labels is None else len(labels))
    weights = np.asarray(coefficients, np.float32).astype(np.float64)
    if not rho or not weights.size:
        raise InvalidArgument("Invalid input for SVMClassifier: the attributes coefficients and rho are needed")
    votes: np.ndarray | None = None
    if vectors_per_class:
        if len(vectors_per_class) != classes or any(count < 0 for count in vectors_per_class):
            raise InvalidArgument(
                f"SVMClassifier: vectors_per_class {list(vectors_per_class)} must hold one count >= 0 for each of "
                f"{classes} classes"
            )
        total = sum(vectors_per_class)
        vectors = _support_vectors(support_vectors, total, matrix.shape[1], "SVMClassifier")
        kernels = kernel_matrix(matrix, vectors, kernel_type, kernel_params)
        scores, votes = _decisions(kernels, weights, rho, vectors_per_class)
    else:
        if weights.size != classes * matrix.shape[1]:
            raise InvalidArgument(
                f"Invalid input for SVMClassifier: {weights.size} coefficients for {classes} classes of "
                f"{matrix.shape[1]} features"
            )
        scores = kernel_matrix(matrix, weights.reshape(classes, -1), "LINEAR", ()) + np.float32(rho[0])
    if prob_a and votes is not None:
        scores = _probabilities(scores, prob_a, prob_b, classes)
    scores = scores.astype(np.float32)
    return _finish(scores, votes, labels, bool((weights >= 0).all()), post_transform)


def _decisions(
    kernels: np.ndarray, weights: np.ndarray, rho: Sequence[float], counts: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the decision of each pair of classes (positive: the first) and each class's votes."""
    classes = len(counts)
    pairs = list(itertools.combinations(range(classes), 2))
    used = max(classes - 1, 1) * kernels.shape[1]
    if weights.size < used or len(rho) < len(pairs):
        raise InvalidArgument(
            f"Invalid input for SVMClassifier: {weights.size} coefficients and {len(rho)} rho for {classes} classes "
            f"and {kernels.shape[1]} support vectors"
        )
    table = weights[:used].reshape(-1, kernels.shape[1])
    stops = np.cumsum([0, *counts]).tolist()
    parts = [slice(a, b) for a, b in itertools.pairwise(stops)]
    scores = np.empty((len(kernels), len(pairs)))
    votes = np.zeros((len(kernels), classes), np.int64)
    for index, (i, j) in enumerate(pairs):
        scores[:, index] = (
            kernels[:, parts[i]] @ table[j - 1, parts[i]] + kernels[:, parts[j]] @ table[i, parts[j]] + rho[index]
        )
        is_first = scores[:, index] > 0  # of no number the second class has the vote, as in libsvm and onnxruntime
        votes[:, i] += is_first
        votes[:, j] += ~is_first
    return scores, votes


def _probabilities(scores: np.ndarray, prob_a: Sequence[float], prob_b: Sequence[float], classes: int) -> np.ndarray:
    """Return class probabilities from the decisions of all pairs (Platt scaling, then pairwise coupling)."""
    pairs = list(itertools.combinations(range(classes), 2))
    if len(prob_a) < len(pairs) or len(prob_b) < len(pairs):
        raise InvalidArgument(f"SVMClassifier: prob_a and prob_b need {len(pairs)} values each")
    first = np.array([i for i, _ in pairs], np.int64)
    second = np.array([j for _, j in pairs], np.int64)
    wins = 1 - logistic(scores * np.asarray(prob_a[: len(pairs)]) + np.asarray(prob_b[: len(pairs)]))
    wins = wins.clip(1e-7, 1 - 1e-7)
    rates = np.zeros((len(scores), classes, classes))
    rates[:, first, second] = wins
    rates[:, second, first] = 1 - wins
    return _couple(rates)


def _couple(rates: np.ndarray) -> np.ndarray:
    """Return the probabilities that fit pairwise ones best (Wu, Lin and Weng, 2004, second method), row by row."""
    rows, classes, _ = rates.shape
    quadratic = -np.swapaxes(rates, 1, 2) * rates
    diagonal = np.arange(classes)
    quadratic[:, diagonal, diagonal] = np.square(rates).sum(axis=1)
    chances = np.full((rows, classes), 1.0 / classes)
    active = np.ones(rows, np.bool_)
    for _ in range(max(100, classes)):
        gradient = np.einsum("rij,rj->ri", quadratic, chances)
        objective = (chances * gradient).sum(axis=1)
        active &= np.abs(gradient - objective[:, None]).max(axis=1, initial=0) >= 0.005 / classes
        if not active.any():
            break
        for column in range(classes):
            own = quadratic[:, column, column]
            change = np.where(active, (objective - gradient[:, column]) / own, 0.0)
            chances[:, column] += change
            objective = (objective + change * (change * own + 2 * gradient[:, column])) / (1 + change) ** 2
            gradient = (gradient + change[:, None] * quadratic[:, column]) / (1 + change[:, None])
            chances /= 1 + change[:, None]
    return chances


def _finish(
    scores: np.ndarray,
    votes: np.ndarray | None,
    labels: np.ndarray | None,
    all_positive: bool,
    post_transform: str,
) -> tuple[np.ndarray, np.ndarray]:
    ranking = scores if votes is None else votes
    best = ranking.argmax(axis=1)
    weight = ranking.max(axis=1)
    binary = labels is not None and len(labels) == 2
    if binary and votes is None:
        # onnxruntime's rule for two linear scores: the second class as soon as the best one is high enough.
        best = np.where(weight >= 0.5 if all_positive else weight > 0, 1, best)
    if labels is not None and len(labels) > 1:
        answer = labels[best]
    elif scores.shape[1] > 1:
        answer = best
    else:
        answer = (weight > 0).astype(np.int64)
    if scores.shape[1] == 1 and binary:
        mirrored = np.full(len(scores), post_transform == "NONE")
        return answer, two_columns(scores, post_transform, mirrored)
    return answer, transform(scores, post_transform)
