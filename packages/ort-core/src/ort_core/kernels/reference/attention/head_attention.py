"""Scaled dot-product attention over (batch, heads, sequence, width) arrays, with grouped key/value heads."""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.frozen import frozen


@frozen
class Attended:
    """What attention gives: the mixed values, and the scores before and after the softmax."""

    output: np.ndarray
    scores: np.ndarray
    weights: np.ndarray


def split_heads(x: np.ndarray, heads: int) -> np.ndarray:
    """Return (batch, sequence, heads * width) as (batch, heads, sequence, width)."""
    if heads <= 0 or x.shape[2] % heads:
        raise InvalidArgument(f"{heads} heads do not divide the last dimension of shape {x.shape}")
    return x.reshape(x.shape[0], x.shape[1], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)


def merge_heads(x: np.ndarray) -> np.ndarray:
    """Return (batch, heads, sequence, width) as (batch, sequence, heads * width)."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])


def softmax_with_sink(scores: np.ndarray, sink: np.ndarray | None, *, is_hidden_nan: bool = False) -> np.ndarray:
    """Return softmax over the last axis; ``sink`` is one more score per row that takes weight and gives no value.

    A row whose scores are all minus infinity gets zero weights, or with ``is_hidden_nan`` no numbers.
    """
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    if sink is not None:
        top = np.maximum(top, sink)
    top = np.where(np.isneginf(top), 0, top)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - top)
    if is_hidden_nan:
        with np.errstate(invalid="ignore"):
            return weights / total
    return weights / np.where(total == 0, 1, total)


def attend(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    *,
    factor: float,
    bias: np.ndarray | None = None,
    allowed: np.ndarray | None = None,
    softcap: float = 0.0,
    sink: np.ndarray | None = None,
    is_hidden_nan: bool = False,
) -> Attended:
    """Attend with queries (B, N, S, H) to keys (B, M, T, H) and values (B, M, T, V), M a divisor of N.

    ``factor`` scales the products; ``softcap`` c means c*tanh(score/c); ``bias`` is added after that;
    where ``allowed`` is False the score is minus infinity; ``sink`` (heads,) joins each head's softmax.
    A query whose scores are all minus infinity gets zeros, or with ``is_hidden_nan`` no numbers.
    """
    heads, groups = query.shape[1], key.shape[1]
    grouped = query.reshape(query.shape[0], groups, heads // groups, *query.shape[2:])
    scores = np.matmul(grouped, key[:, :, None].swapaxes(-1, -2)) * query.dtype.type(factor)
    scores = scores.reshape(query.shape[0], heads, query.shape[2], key.shape[2])
    if softcap:
        scores = np.tanh(scores / query.dtype.type(softcap)) * query.dtype.type(softcap)
    if bias is not None:
        scores = scores + bias
    if allowed is not None:
        scores = np.where(allowed, scores, query.dtype.type(-np.inf))
    joining = None if sink is None else sink.reshape(1, -1, 1, 1)
    weights = softmax_with_sink(scores, joining, is_hidden_nan=is_hidden_nan)
    mixed = np.matmul(weights.reshape(*grouped.shape[:3], *weights.shape[2:]), value[:, :, None])
    output = mixed.reshape(query.shape[0], heads, query.shape[2], value.shape[-1])
    return Attended(output, scores, weights)
