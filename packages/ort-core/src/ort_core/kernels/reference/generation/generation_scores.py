"""What text generation does to a step's scores before it picks tokens: masks, penalties, sampling filters."""

from __future__ import annotations

import numpy as np

from ort_core.frozen import frozen

LOWEST = np.finfo(np.float32).min


@frozen
class ScoreRules:
    """The rules of one search; ``vocab_mask`` (vocabulary,), ``prefix_mask`` (batch, vocabulary), 0 forbids."""

    end_token: int
    min_length: int = 0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    temperature: float = 1.0
    presence_penalty: float = 0.0
    vocab_mask: np.ndarray | None = None
    prefix_mask: np.ndarray | None = None
    presence_mask: np.ndarray | None = None

    def apply(self, scores: np.ndarray, sequences: np.ndarray, *, first: bool) -> np.ndarray:
        """Return the scores (rows, vocabulary) after the rules, given the sequences (rows, length) so far."""
        result: np.ndarray = scores.astype(np.float32)
        rows = np.arange(result.shape[0])[:, None]
        if self.repetition_penalty != 1.0:
            seen = result[rows, sequences]
            penalty = np.float32(self.repetition_penalty)
            result[rows, sequences] = np.where(seen < 0, seen * penalty, seen / penalty)
        if self.no_repeat_ngram_size:
            self._block_ngrams(result, sequences)
        if self.vocab_mask is not None:
            result = np.where(self.vocab_mask == 0, LOWEST, result)
        if self.prefix_mask is not None and first:
            allowed = np.repeat(self.prefix_mask, result.shape[0] // self.prefix_mask.shape[0], axis=0)
            result = np.where(allowed == 0, LOWEST, result)
        if sequences.shape[1] < self.min_length:
            result[:, self.end_token] = LOWEST
        if self.temperature != 1.0:
            result = result / np.float32(self.temperature)
        if self.presence_mask is not None and self.presence_penalty:
            result = result - self.presence_mask.reshape(result.shape) * np.float32(self.presence_penalty)
        return result

    def _block_ngrams(self, scores: np.ndarray, sequences: np.ndarray) -> None:
        size = self.no_repeat_ngram_size
        length = sequences.shape[1]
        if size > length:
            return
        grams = np.lib.stride_tricks.sliding_window_view(sequences, size, axis=1)
        suffix = sequences[:, length - size + 1 :]
        row, gram = np.nonzero((grams[:, :, :-1] == suffix[:, None]).all(axis=2))
        scores[row, grams[row, gram, -1]] = LOWEST


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """Return log(softmax) over the last axis."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def keep_nucleus(scores: np.ndarray, top_p: float, filter_value: float, least: int, *, custom: bool) -> np.ndarray:
    """Filter out all but the most probable tokens that together reach ``top_p``, at least ``least`` of them.

    In the ``custom`` form a token stays while the probability before it is at most ``top_p``; in the plain form the
    improbable tokens go whose probability, summed from the least upwards, is at most 1 - ``top_p``.
    """
    exponents = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances = exponents / exponents.sum(axis=1, keepdims=True)
    order = np.argsort(-chances if custom else chances, axis=1, kind="stable")
    total = np.cumsum(np.take_along_axis(chances, order, axis=1), axis=1)
    if custom:
        dropped = np.concatenate([np.zeros_like(total[:, :1], bool), total[:, :-1] > top_p], axis=1)
        dropped[:, : max(least, 1)] = False
    else:
        dropped = total <= np.float32(1 - top_p)
        dropped[:, scores.shape[1] - max(least, 1) :] = False
    mask = np.zeros_like(dropped)
    np.put_along_axis(mask, order, dropped, axis=1)
    return np.where(mask, np.float32(filter_value), scores)


def draw(scores: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return one token per row (rows,), drawn by the softmax of the scores."""
    exponents = np.exp(scores - scores.max(axis=1, keepdims=True), dtype=np.float64)
    total = np.cumsum(exponents, axis=1)
    threshold = generator.random((scores.shape[0], 1)) * total[:, -1:]
    return (total <= threshold).sum(axis=1).clip(max=scores.shape[1] - 1)
