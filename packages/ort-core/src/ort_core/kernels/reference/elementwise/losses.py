"""Losses over class scores: negative log likelihood, and cross entropy after softmax."""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.widening import narrow, widen
from ort_core.kernels.reference.normalization.softmax import log_softmax_of


@kernel("NegativeLogLikelihoodLoss", since=12)
@np.errstate(all="ignore")
def negative_log_likelihood_loss(
    scores: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> np.ndarray:
    """Return the loss of log-probabilities ``scores`` [N, C, ...] against classes ``target`` [N, ...].

    As ONNX's function of the operator: a negative class counts from the last, and scores beyond the target's sizes do
    not count.
    """
    _check_shapes(scores, target, weight)
    return narrow(_loss(widen(scores), target, weight, ignore_index, reduction), scores.dtype)


@kernel("SoftmaxCrossEntropyLoss", since=12)
@np.errstate(all="ignore")
def softmax_cross_entropy_loss(
    scores: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[np.ndarray, np.ndarray]:
    """Return the loss of ``scores`` [N, C, ...] against ``labels`` [N, ...], and the log-probabilities."""
    _check_shapes(scores, labels, weights)
    log_prob = np.moveaxis(log_softmax_of(np.moveaxis(widen(scores), 1, -1)), -1, 1)
    loss = _loss(log_prob, labels, weights, ignore_index, reduction)
    return narrow(loss, scores.dtype), narrow(log_prob, scores.dtype)


def _check_shapes(scores: np.ndarray, target: np.ndarray, weight: np.ndarray | None) -> None:
    if scores.ndim < 2:
        raise InvalidArgument(f"scores must have two dimensions or more, rows and classes; got shape {scores.shape}")
    space = (scores.shape[0], *scores.shape[2:])
    if len(target.shape) != len(space) or any(own > most for own, most in zip(target.shape, space, strict=True)):
        raise InvalidArgument(f"classes of shape {target.shape} do not fit scores of shape {scores.shape}")
    if weight is not None and (weight.ndim != 1 or len(weight) < scores.shape[1]):
        raise InvalidArgument(f"weights of shape {weight.shape} do not fit {scores.shape[1]} classes")


@np.errstate(all="ignore")
def _loss(
    log_prob: np.ndarray, target: np.ndarray, weight: np.ndarray | None, ignore_index: int | None, reduction: str
) -> np.ndarray | np.float64:
    if reduction not in ("none", "mean", "sum"):
        raise InvalidArgument(f"attribute reduction is {reduction!r}; expected 'none', 'mean' or 'sum'")
    count = log_prob.shape[1]
    log_prob = log_prob[tuple(slice(size) for size in (target.shape[0], count, *target.shape[1:]))]
    counted = np.ones(target.shape, np.bool_) if ignore_index is None else target != ignore_index
    classes = np.where(counted, target, 0)
    if np.any((classes < -count) | (classes >= count)):
        raise InvalidArgument(f"a class is outside [{-count}, {count - 1}] and is not ignore_index={ignore_index}")
    classes = np.where(classes < 0, classes + count, classes)
    share = counted.astype(log_prob.dtype)
    if weight is not None:
        share = np.where(counted, widen(weight)[np.where(counted, target, 0)], 0)  # a negative class: its last ones
    picked = np.take_along_axis(log_prob, np.expand_dims(classes, 1), axis=1).squeeze(1)
    loss = np.where(counted, -picked * share, 0)
    if reduction == "none":
        return loss
    total = np.sum(loss, dtype=np.float64)
    return total / np.sum(share, dtype=np.float64) if reduction == "mean" else total
