"""com.microsoft: dense heads, given or projected, with padding masks, a past, and the decoder's beams."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_core import errors
from ort_core.frozen import frozen
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.widening import narrow, widen
from ort_core.kernels.reference.attention.attention_operands import (
    Inputs,
    ThreeHeads,
    behind_cache,
    cached_rows,
    heads_of,
    projected_by,
)
from ort_core.kernels.reference.attention.contrib_rotary import rotate_by_position
from ort_core.kernels.reference.attention.head_attention import attend, merge_heads
from ort_core.kernels.reference.attention.padding_masks import additive_mask
from ort_core.ops.attention import AttentionRecord, Layout
from ort_core.ops.attention_forms import call_attention

MS = "com.microsoft"
Optional = np.ndarray | None


@frozen
class Dense:
    """What dense attention gives: [batch, length, width], present keys and values, and the scores with their masks."""

    output: np.ndarray
    key: np.ndarray
    value: np.ndarray
    scores: np.ndarray

    def present(self, dtype: np.dtype) -> np.ndarray | None:
        """Return keys and values in one tensor; ``None`` where their sizes differ, which no tensor can hold."""
        return narrow(np.stack([self.key, self.value]), dtype) if self.key.shape == self.value.shape else None


def dense(record: AttentionRecord, inputs: Inputs, heads: ThreeHeads) -> Dense:
    """Attend with heads [batch, heads, length, size] by what a record of com.microsoft says."""
    query, key, value = heads
    if record.rotary is not None:
        positions = cached_rows(record.cache, inputs) + np.arange(query.shape[2])
        query, key = (rotate_by_position(each, positions, record.rotary.size) for each in (query, key))
    is_of_another = record.key.layout is Layout.HEADS  # whole already: there is nothing before them
    cache = None if is_of_another else record.cache
    (seen_key, present_key), (seen_value, present_value) = (
        behind_cache(cache, inputs, which, new) for which, new in enumerate((key, value))
    )
    past = 0 if is_of_another else seen_key.shape[2] - key.shape[2]
    beams = _beams(record, inputs)
    if beams is not None and not is_of_another:
        seen_key, seen_value = (_follow_beams(each, beams, past) for each in (seen_key, seen_value))
    bias = additive_mask(
        None if record.padding is None else inputs[record.padding], query.shape[0], query.shape[2], seen_key.shape[2],
        causal=record.is_causal, filter_value=record.filtered, past=past,
    )  # fmt: skip
    added = None if record.mask is None else inputs[record.mask]
    if added is not None:
        bias = widen(added) if bias is None else bias + widen(added)
    factor = record.factor(query.shape[3])
    result = attend(query, seen_key, seen_value, factor=factor, bias=bias, is_hidden_nan=record.is_hidden_nan)
    return Dense(merge_heads(result.output), present_key, present_value, result.scores)


def _beams(record: AttentionRecord, inputs: Inputs) -> np.ndarray | None:
    """Return the beams; of a decoder with one beam there are none."""
    width = None if record.beam_width is None else inputs[record.beam_width]
    is_single = width is not None and int(width.reshape(())) == 1
    return None if record.beams is None or is_single else inputs[record.beams]


def _follow_beams(cache: np.ndarray, beams: np.ndarray, length: int) -> np.ndarray:
    """Read each cached position from the beam that produced it: cache (B, N, T, H), beams (batch, beam, max)."""
    batch, width, longest = beams.shape
    if batch * width != cache.shape[0]:
        raise errors.InvalidArgument(
            f"cache_indirection batch {batch} x beam width {width} must equal batch_beam_size {cache.shape[0]}"
        )
    if length > longest:
        raise errors.InvalidArgument(f"cache_indirection covers {longest} positions, the past has {length}")
    used = beams[:, :, :length].astype(np.int64)
    if ((used < 0) | (used >= width)).any():
        raise errors.InvalidArgument(f"cache_indirection beam index out of range: must be in [0, {width})")
    rows = (used + (np.arange(batch) * width)[:, None, None]).reshape(batch * width, length)
    followed = cache.copy()
    followed[:, :, :length] = cache[rows, :, np.arange(length)].transpose(0, 2, 1, 3)
    return followed


def _projecting(op_type: str, inputs: Inputs, attributes: Mapping[str, object], num_heads: int) -> Dense:
    """Attend with what one product makes of the input."""
    record = call_attention(op_type, MS, inputs, (), num_heads=num_heads, **attributes)
    assert record.projection is not None, "it projects"
    projected = projected_by(record.projection, inputs, num_heads)
    return dense(record, inputs, heads_of(record, inputs, projected))


@kernel("Attention", domain=MS)
def attention(
    x: np.ndarray,
    weights: np.ndarray,
    bias: Optional = None,
    mask_index: Optional = None,
    past: Optional = None,
    attention_bias: Optional = None,
    past_sequence_length: Optional = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float | None = None,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: tuple[int, ...] = (),
    rotary_embedding_dim: int = 0,
    scale: float | None = None,
    unidirectional: int = 0,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Project the input to queries, keys and values with one matrix, then attend."""
    attributes = {
        "do_rotary": do_rotary, "mask_filter_value": mask_filter_value,
        "past_present_share_buffer": past_present_share_buffer, "qkv_hidden_sizes": qkv_hidden_sizes,
        "rotary_embedding_dim": rotary_embedding_dim, "scale": scale, "unidirectional": unidirectional,
    }  # fmt: skip
    inputs = (x, weights, bias, mask_index, past, attention_bias, past_sequence_length)
    found = _projecting("Attention", inputs, attributes, num_heads)
    return narrow(found.output, x.dtype), found.present(x.dtype)


@kernel("DecoderMaskedSelfAttention", domain=MS)
def decoder_masked_self_attention(
    x: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray,
    mask_index: Optional,
    past: np.ndarray,
    attention_bias: Optional,
    past_sequence_length: np.ndarray,
    beam_width: Optional = None,
    cache_indirection: Optional = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float | None = None,
    past_present_share_buffer: int = 0,
    scale: float | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """One decoding step of Attention: project one token, add it to the cache, attend to the cache."""
    attributes = {
        "do_rotary": do_rotary, "mask_filter_value": mask_filter_value,
        "past_present_share_buffer": past_present_share_buffer, "scale": scale,
    }  # fmt: skip
    inputs = (
        x, weights, bias, mask_index, past, attention_bias, past_sequence_length, beam_width, cache_indirection
    )  # fmt: skip
    found = _projecting("DecoderMaskedSelfAttention", inputs, attributes, num_heads)
    return narrow(found.output, x.dtype), found.present(x.dtype)


@kernel("MultiHeadAttention", domain=MS)
def multi_head_attention(
    query: np.ndarray,
    key: Optional = None,
    value: Optional = None,
    bias: Optional = None,
    key_padding_mask: Optional = None,
    attention_bias: Optional = None,
    past_key: Optional = None,
    past_value: Optional = None,
    past_sequence_length: Optional = None,
    cache_indirection: Optional = None,
    *,
    num_heads: int,
    mask_filter_value: float | None = None,
    scale: float | None = None,
    unidirectional: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Self or cross attention over projected queries, keys and values; also present key, present value, scores."""
    inputs = (
        query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value, past_sequence_length,
        cache_indirection,
    )  # fmt: skip
    record = call_attention(
        "MultiHeadAttention", MS, inputs, num_heads=num_heads, mask_filter_value=mask_filter_value, scale=scale,
        unidirectional=unidirectional,
    )  # fmt: skip
    if query.ndim == 3 and key is None:
        raise errors.InvalidArgument("key and value may be omitted only when query packs QKV or key packs KV")
    found, cast = dense(record, inputs, heads_of(record, inputs)), query.dtype
    return narrow(found.output, cast), narrow(found.key, cast), narrow(found.value, cast), found.scores


@kernel("DecoderMaskedMultiHeadAttention", domain=MS)
def decoder_masked_multi_head_attention(
    query: np.ndarray,
    key: Optional = None,
    value: Optional = None,
    mask_index: Optional = None,
    attention_bias: Optional = None,
    past_key: Optional = None,
    past_value: Optional = None,
    past_sequence_length: Optional = None,
    beam_width: Optional = None,
    cache_indirection: Optional = None,
    bias: Optional = None,
    *,
    num_heads: int,
    mask_filter_value: float | None = None,
    output_qk: int = 0,
    past_present_share_buffer: int = 0,
    scale: float | None = None,
    ctx: KernelContext,
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None, np.ndarray | None]:
    """One decoding step: attend with one query token to the cache and itself, or to a given key and value (4-D)."""
    inputs = (
        query, key, value, mask_index, attention_bias, past_key, past_value, past_sequence_length, beam_width,
        cache_indirection, bias,
    )  # fmt: skip
    record = call_attention(
        "DecoderMaskedMultiHeadAttention", MS, inputs, ctx.output_present, num_heads=num_heads,
        mask_filter_value=mask_filter_value, output_qk=output_qk,
        past_present_share_buffer=past_present_share_buffer, scale=scale,
    )  # fmt: skip
    found, cast = dense(record, inputs, heads_of(record, inputs)), query.dtype
    output, scores = narrow(found.output, cast), None if record.scores is None else found.scores
    if record.key.layout is Layout.HEADS:
        return output, None, None, scores
    return output, narrow(found.key, cast), narrow(found.value, cast), scores
