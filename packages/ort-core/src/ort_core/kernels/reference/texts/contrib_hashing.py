"""Hashes of tensor elements and of token n-grams."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.request_ends import request_ends

Optional = np.ndarray | None
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def _rotate(x: np.ndarray, bits: int) -> np.ndarray:
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))


def _scramble(word: np.ndarray) -> np.ndarray:
    return _rotate(word * _C1, 15) * _C2


def _bytes_of(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ((elements, bytes) zero-padded to whole 32-bit words, the byte count of each element)."""
    if x.dtype == object:
        encoded = [str(text).encode("utf-8", "surrogateescape") for text in x.reshape(-1)]
        lengths = np.array([len(text) for text in encoded], np.int64)
        width = -(-int(lengths.max(initial=0)) // 4) * 4
        joined = b"".join(text.ljust(width, b"\0") for text in encoded)
        return np.frombuffer(joined, np.uint8).reshape(len(encoded), width), lengths
    flat = np.ascontiguousarray(x).reshape(-1)
    return flat.view(np.uint8).reshape(flat.size, -1), np.full(flat.size, x.dtype.itemsize)


@kernel("MurmurHash3", domain="com.microsoft")
def murmur_hash3(x: np.ndarray, *, positive: int = 1, seed: int = 0) -> np.ndarray:
    """MurmurHash3_x86_32 of each element's bytes (of a string: its UTF-8 bytes)."""
    if not x.size:
        return np.zeros(x.shape, np.uint32 if positive else np.int32)
    data, lengths = _bytes_of(x)
    words = np.ascontiguousarray(data).view("<u4").astype(np.uint32)
    value: np.ndarray = np.full(data.shape[0], seed & 0xFFFFFFFF, np.uint32)
    for index in range(words.shape[1]):
        full = value ^ _scramble(words[:, index])
        mixed = _rotate(full, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        # A last, partial word is mixed in without the rotation; past the end nothing is.
        value = np.where(lengths >= 4 * (index + 1), mixed, np.where(lengths > 4 * index, full, value))
    value = value ^ lengths.astype(np.uint32)
    value = (value ^ (value >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    value = (value ^ (value >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    value = (value ^ (value >> np.uint32(16))).reshape(x.shape)
    return value if positive else value.view(np.int32)


def _history(shape: tuple[int, ...], past: Optional, fill: int, dtype: np.dtype) -> np.ndarray:
    return np.full(shape, fill, dtype) if past is None else past


def _mixed(
    windows: list[np.ndarray],
    multipliers: np.ndarray,
    vocab_sizes: np.ndarray,
    head_offsets: Optional,
    heads: int,
) -> np.ndarray:
    """Return (..., orders * heads) hash ids of shifted tokens ``windows[s]`` (...)."""
    if (vocab_sizes <= 0).any():
        raise errors.InvalidArgument("every entry of vocab_sizes must be positive")
    dtype = windows[0].dtype
    mix, parts = windows[0] * multipliers[0], []
    for order in range(1, len(windows)):
        mix = mix ^ (windows[order] * multipliers[order])
        sizes = vocab_sizes[(order - 1) * heads : order * heads]
        parts.append(np.mod(mix[..., None], sizes))
    ids = np.concatenate(parts, axis=-1)
    return (ids if head_offsets is None else ids + head_offsets).astype(dtype)


def _shifted(joined: np.ndarray, length: int, orders: int, starts: np.ndarray, fill: int) -> list[np.ndarray]:
    """Return the token s positions back for s in 0..orders-1; positions before ``starts`` give ``fill``.

    ``joined`` is (batch, orders - 1 + length); ``starts`` (batch, length) are positions in it.
    """
    position = np.arange(length) + orders - 1
    windows = []
    for shift in range(orders):
        taken = joined[:, orders - 1 - shift : orders - 1 - shift + length]
        windows.append(np.where(position - shift < starts, np.array(fill, joined.dtype), taken))
    return windows


def _history_starts(joined: np.ndarray, length: int, orders: int, eos: int | None, segments: Optional) -> np.ndarray:
    """Return, per token, the first position of ``joined`` that its window may see.

    An end-of-sequence token strictly before hides itself and what precedes it; a segment change hides the past.
    """
    index = np.arange(joined.shape[1])
    starts = np.zeros((joined.shape[0], length), np.int64)
    if eos is not None:
        after_end = np.maximum.accumulate(np.where(joined == eos, index + 1, 0), axis=1)
        starts = np.maximum(starts, after_end[:, orders - 2 : orders - 2 + length])
    if segments is not None:
        changed = np.zeros((joined.shape[0], joined.shape[1]), bool)
        changed[:, 1:] = segments[:, 1:] != segments[:, :-1]
        last_change = np.maximum.accumulate(np.where(changed, index, 0), axis=1)
        starts = np.maximum(starts, last_change[:, orders - 1 :])
    return starts


def _joined_segments(segments: Optional, past: Optional, batch: int, history: int) -> Optional:
    """Return segment ids for history and tokens; without past ids the history belongs to the first segment."""
    if segments is None:
        return None
    before = np.repeat(segments[:, :1], history, axis=1) if past is None else past
    return np.concatenate([before, segments], axis=1)


def _hash_rows(
    tokens: np.ndarray,
    past: Optional,
    segments: Optional,
    past_segments: Optional,
    fill: int,
    reset: int | None,
    orders: int,
) -> tuple[list[np.ndarray], np.ndarray, Optional]:
    """Return (windows, joined ids, joined segments) of (batch, length) tokens."""
    batch, length = tokens.shape
    history = orders - 1
    joined = np.concatenate([_history((batch, history), past, fill, tokens.dtype), tokens], axis=1)
    wide = _joined_segments(segments, past_segments, batch, history)
    starts = _history_starts(joined, length, orders, reset, wide)
    return _shifted(joined, length, orders, starts, fill), joined, wide


@kernel("NGramHashMapping", domain="com.microsoft")
def ngram_hash_mapping(
    input_ids: np.ndarray,
    multipliers: np.ndarray,
    vocab_sizes: np.ndarray,
    past_ids: Optional = None,
    head_offsets: Optional = None,
    eos_token_id: Optional = None,
    segment_ids: Optional = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Hash ids of the n-grams that end at each token, for n from 2 up, and the ids to pass to the next call."""
    if max_ngram_size < 2:
        raise errors.InvalidArgument(f"max_ngram_size must be at least 2, found {max_ngram_size}")
    eos = None if eos_token_id is None else int(eos_token_id.reshape(()))
    windows, joined, _ = _hash_rows(
        input_ids,
        past_ids,
        segment_ids,
        None,
        pad_id if eos is None else eos,
        eos if reset_on_eos else None,
        max_ngram_size,
    )
    ids = _mixed(windows, multipliers, vocab_sizes, head_offsets, n_head_per_ngram)
    return ids, joined[:, joined.shape[1] - max_ngram_size + 1 :]


@kernel("VarlenNGramHashMapping", domain="com.microsoft")
def varlen_ngram_hash_mapping(
    input_ids: np.ndarray,
    multipliers: np.ndarray,
    vocab_sizes: np.ndarray,
    cumulative_sequence_length: np.ndarray,
    past_ids: Optional = None,
    head_offsets: Optional = None,
    eos_token_id: Optional = None,
    segment_ids: Optional = None,
    past_segment_ids: Optional = None,
    capture_count: Optional = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
    state_update_capacity: int = 0,
    ctx: KernelContext,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """NGramHashMapping over requests packed one after the other; a window never reads another request."""
    eos = None if eos_token_id is None else int(eos_token_id.reshape(()))
    fill, history = pad_id if eos is None else eos, max_ngram_size - 1
    bounds = request_ends("VarlenNGramHashMapping", cumulative_sequence_length, len(input_ids), least=1)
    ids, presents, segment_presents = [], [], []
    capture = np.full((len(bounds) - 1, state_update_capacity, history), pad_id, input_ids.dtype)
    for request, (begin, end) in enumerate(pairwise(bounds)):
        row = slice(request, request + 1)
        windows, joined, segments = _hash_rows(
            input_ids[None, begin:end],
            None if past_ids is None else past_ids[row],
            None if segment_ids is None else segment_ids[None, begin:end],
            None if past_segment_ids is None else past_segment_ids[row],
            fill,
            eos if reset_on_eos else None,
            max_ngram_size,
        )
        ids.append(_mixed(windows, multipliers, vocab_sizes, head_offsets, n_head_per_ngram)[0])
        presents.append(joined[0, joined.shape[1] - history :])
        if segments is not None:
            segment_presents.append(segments[0, segments.shape[1] - history :])
        if capture_count is not None and state_update_capacity:
            count = min(int(capture_count[request]), int(end - begin), state_update_capacity)
            states = np.lib.stride_tricks.sliding_window_view(joined[0], history)[1 : 1 + max(count, 0)]
            capture[request, : states.shape[0]] = states
    present_segments = np.stack(segment_presents) if segment_presents else None
    if present_segments is None and ctx.output_present[2:3] == (True,):
        present_segments = np.zeros((len(bounds) - 1, history), np.int32)
    return np.concatenate(ids), np.stack(presents), present_segments, capture if state_update_capacity else None


@kernel("NGramRepeatBlock", domain="com.microsoft")
def ngram_repeat_block(input_ids: np.ndarray, scores: np.ndarray, *, ngram_size: int) -> np.ndarray:
    """Set to minus infinity the scores of tokens that would complete an n-gram that occurred already."""
    length = input_ids.shape[1]
    result = scores.copy()
    if ngram_size < 1 or length < ngram_size:
        return result
    grams = np.lib.stride_tricks.sliding_window_view(input_ids, ngram_size, axis=1)
    suffix = input_ids[:, length - ngram_size + 1 :]
    repeats = (grams[:, :, :-1] == suffix[:, None]).all(axis=2)
    row, gram = np.nonzero(repeats)
    banned = grams[row, gram, -1]
    wrong = banned[(banned < 0) | (banned >= scores.shape[1])]
    if wrong.size:
        raise errors.InvalidArgument(f"token_id {int(wrong[0])} is out of range [0, {scores.shape[1]})")
    result[row, banned] = -np.inf
    return result


@kernel("BifurcationDetector", domain="com.microsoft")
def bifurcation_detector(
    src_tokens: np.ndarray,
    cur_tokens: np.ndarray,
    prev_suffix_match_idx: np.ndarray,
    pred_tokens: Optional = None,
    *,
    max_ngram_size: int = 3,
    min_ngram_size: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Accept predicted tokens up to the first that differs from the source, then find where the source goes on."""
    if min_ngram_size < 1 or max_ngram_size < min_ngram_size:
        raise errors.InvalidArgument(
            f"BifurcationDetector: min_ngram_size is {min_ngram_size} and max_ngram_size {max_ngram_size}; expected "
            f"1 <= min_ngram_size <= max_ngram_size"
        )
    for name, tokens in (("src_tokens", src_tokens), ("cur_tokens", cur_tokens), ("pred_tokens", pred_tokens)):
        if tokens is not None and tokens.ndim != 1:
            raise errors.InvalidArgument(f"{name} must be a 1-D tensor; found shape {tokens.shape}")
    if prev_suffix_match_idx.size != 1:
        raise errors.InvalidArgument(
            f"prev_suffix_match_idx must contain exactly one element; found {prev_suffix_match_idx.size}"
        )
    tokens = cur_tokens
    if pred_tokens is not None:
        start = int(prev_suffix_match_idx.reshape(()))
        if start < 0:
            raise errors.InvalidArgument(f"prev_suffix_match_idx must be non-negative; found {start}")
        rest = src_tokens[start:]
        if start > src_tokens.size or pred_tokens.size != rest.size + 1:
            raise errors.InvalidArgument(
                f"pred_tokens length mismatch: found {pred_tokens.size}, expected {rest.size + 1}"
            )
        differs = np.flatnonzero(pred_tokens[:-1] != rest)
        tokens = np.concatenate([cur_tokens, pred_tokens[: (differs[0] if differs.size else rest.size) + 1]])
    match = -1
    for size in range(min_ngram_size, min(max_ngram_size, tokens.size) + 1):
        found = np.flatnonzero(_occurrences(src_tokens, tokens[tokens.size - size :]))
        if found.size == 0:
            break
        match = int(found[0]) + size
        if match >= src_tokens.size:
            break
        if found.size > 1:
            match = -1
    return tokens, np.full(prev_suffix_match_idx.shape, match, prev_suffix_match_idx.dtype)


def _occurrences(source: np.ndarray, gram: np.ndarray) -> np.ndarray:
    if source.size < gram.size:
        return np.zeros(0, bool)
    return (np.lib.stride_tricks.sliding_window_view(source, gram.size) == gram).all(axis=1)
