"""Embedding tables: the summed and normalized embeddings of BERT, plain and quantized, and words from characters."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.rounding_to_integers import dequantize
from ort_core.kernels.reference.arrays.widening import narrow, widen, widen_optional
from ort_core.kernels.reference.normalization.contrib_normalization import layer_norm

Optional = np.ndarray | None


def look_up(table: np.ndarray, ids: np.ndarray, name: str) -> np.ndarray:
    """Return the rows of ``table`` at ``ids``; an id outside of it is an error, also a negative one."""
    wrong = ids[(ids < 0) | (ids >= table.shape[0])]
    if wrong.size:
        raise errors.InvalidArgument(f"{name}: index {int(wrong[0])} is out of range [0, {table.shape[0]})")
    return table[ids]


def _embed(
    input_ids: np.ndarray,
    segment_ids: Optional,
    tables: tuple[np.ndarray, np.ndarray, Optional],
    gamma: np.ndarray,
    beta: np.ndarray,
    mask: Optional,
    position_ids: Optional,
    epsilon: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (normalized, mask index, sum of embeddings) for float32 tables (word, position, segment)."""
    if input_ids.ndim != 2:
        raise errors.InvalidArgument(f"input_ids is expected to have 2 dimensions, got {input_ids.ndim}")
    positions = np.arange(input_ids.shape[1])[None] if position_ids is None else position_ids
    total = look_up(tables[0], input_ids, "input_ids") + look_up(tables[1], positions, "position_ids")
    if tables[2] is not None and segment_ids is not None:
        total = total + look_up(tables[2], segment_ids, "segment_ids")
    counts = np.zeros(input_ids.shape[0], np.int32) if mask is None else (mask == 1).sum(axis=1, dtype=np.int32)
    return layer_norm(total, gamma, beta, epsilon)[0], counts, total


@kernel("EmbedLayerNormalization", domain="com.microsoft")
def embed_layer_normalization(
    input_ids: np.ndarray,
    segment_ids: Optional,
    word_embedding: np.ndarray,
    position_embedding: np.ndarray,
    segment_embedding: Optional,
    gamma: np.ndarray,
    beta: np.ndarray,
    mask: Optional = None,
    position_ids: Optional = None,
    *,
    epsilon: float = 9.999999960041972e-13,
    mask_index_type: int | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """LayerNorm(word + position + segment embedding); also the number of unmasked tokens, and the sum."""
    tables = (widen(word_embedding), widen(position_embedding), widen_optional(segment_embedding))
    result, counts, total = _embed(
        input_ids, segment_ids, tables, widen(gamma), widen(beta), mask, position_ids, epsilon
    )
    return narrow(result, word_embedding.dtype), counts, narrow(total, word_embedding.dtype)


@kernel("QEmbedLayerNormalization", domain="com.microsoft")
def quantized_embed_layer_normalization(
    input_ids: np.ndarray,
    segment_ids: Optional,
    word_embedding_quant: np.ndarray,
    position_embedding_quant: np.ndarray,
    segment_embedding: Optional,
    gamma_quant: np.ndarray,
    beta_quant: np.ndarray,
    mask: Optional,
    word_embedding_scale: np.ndarray,
    position_embedding_scale: np.ndarray,
    segment_embedding_scale: Optional,
    gamma_scale: np.ndarray,
    beta_scale: np.ndarray,
    word_embedding_zero_point: np.ndarray,
    position_embedding_zero_point: np.ndarray,
    segment_embedding_zero_point: Optional = None,
    gamma_zero_point: Optional = None,
    beta_zero_point: Optional = None,
    *,
    epsilon: float = 9.999999960041972e-13,
) -> tuple[np.ndarray, np.ndarray]:
    """EmbedLayerNormalization over 8-bit tables, each with its scale and zero point."""
    segments = None
    if segment_embedding is not None and segment_embedding_scale is not None:
        segments = dequantize(segment_embedding, segment_embedding_scale, segment_embedding_zero_point)
    result, counts, _ = _embed(
        input_ids,
        segment_ids,
        (
            dequantize(word_embedding_quant, word_embedding_scale, word_embedding_zero_point),
            dequantize(position_embedding_quant, position_embedding_scale, position_embedding_zero_point),
            segments,
        ),
        dequantize(gamma_quant, gamma_scale, gamma_zero_point),
        dequantize(beta_quant, beta_scale, beta_zero_point),
        mask,
        None,
        epsilon,
    )
    return result, counts


@kernel("WordConvEmbedding", domain="com.microsoft")
def word_conv_embedding(
    sequence: np.ndarray,
    w: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    *,
    char_embedding_size: int | None = None,
    conv_window_size: int | None = None,
    embedding_size: int | None = None,
) -> np.ndarray:
    """Each word: the maximum over windows of tanh(Conv(character embeddings)); a word without characters gives 0."""
    filters, _, window, width = w.shape
    if b.ndim != 1 or b.shape[0] != filters:
        raise errors.InvalidArgument(f"conv bias B must be a 1-D tensor of length {filters}; found shape {b.shape}")
    if c.ndim != 2:
        raise errors.InvalidArgument(f"char embedding C must have 2 dimensions; found shape {c.shape}")
    if c.shape[1] != width or char_embedding_size not in (None, width):
        raise errors.InvalidArgument(f"Char embedding size {c.shape[1]} does not match conv kernel size {width}")
    if conv_window_size not in (None, window) or embedding_size not in (None, filters):
        raise errors.InvalidArgument(
            f"conv_window_size {conv_window_size} and embedding_size {embedding_size} do not match W of {w.shape}"
        )
    words = sequence.reshape(-1, sequence.shape[-1])
    is_known = (words >= 0) & (words < len(c))  # other characters are padding: zeros, as behind the end of a word
    lengths = np.where(words[:, 0] > 0, (words > 0).sum(axis=1), 0)
    looked_at = np.arange(words.shape[1]) < np.maximum(lengths, window)[:, None]
    is_letter = looked_at & is_known
    letters = look_up(c, np.where(is_letter, words, 0), "Sequence") * is_letter[..., None]
    windows = np.lib.stride_tricks.sliding_window_view(letters, window, axis=1).swapaxes(-1, -2)
    scores = np.tanh(np.tensordot(windows, w[:, 0], axes=([2, 3], [1, 2])) + b)
    starts = np.arange(scores.shape[1]) <= (np.maximum(lengths, window) - window)[:, None]
    best = np.where(starts[..., None], scores, -np.inf).max(axis=1)
    return np.where((lengths > 0)[:, None], best, 0).astype(w.dtype).reshape(*sequence.shape[:-1], filters)


@kernel("TorchEmbedding", domain="com.microsoft")
def torch_embedding(
    weight: np.ndarray, indices: np.ndarray, padding_idx: Optional = None, scale_grad_by_freq: Optional = None
) -> np.ndarray:
    """Rows of a table; the padding index and the gradient scale matter in training only."""
    return look_up(weight, indices, "indices")
