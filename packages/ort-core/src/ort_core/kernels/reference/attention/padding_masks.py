"""The attention masks of com.microsoft: index or raw masks turned into an additive (batch, query, key) array."""

from __future__ import annotations

import numpy as np

from ort_core import errors


def additive_mask(
    mask: np.ndarray | None,
    batch: int,
    query_length: int,
    key_length: int,
    *,
    causal: bool,
    filter_value: float,
    past: int,
) -> np.ndarray | None:
    """Return what to add to the scores, shape (batch, 1, query, key), or ``None`` when nothing is masked.

    ``mask`` is (batch,) of lengths, (2 * batch,) of ends then starts, (batch, key) or (batch, query, key) of 0 and 1,
    or (batch, 1, max, max) in the manner of Megatron. A causal mask lets query i see keys up to ``past`` + i, and
    the last query all, as onnxruntime has it.
    """
    fill = np.float32(filter_value)
    total = None
    if mask is not None:
        total = np.where(_kept(mask, batch, query_length, key_length), np.float32(0), fill)
    if causal:
        future = np.arange(key_length) > past + np.arange(query_length)[:, None]
        future[-1:] = False
        # Half of the lowest float: finite, and stays so when a raw mask's value and a score join it.
        hidden = np.where(future, np.finfo(np.float32).min / 2, 0).astype(np.float32)[None, None]
        total = hidden if total is None else np.where(future, hidden, total)
    return total


def _kept(mask: np.ndarray, batch: int, query_length: int, key_length: int) -> np.ndarray:
    positions = np.arange(key_length)
    if mask.ndim == 1:
        ends = mask[:batch]
        if (ends < 0).any():
            raise errors.InvalidArgument(f"mask_index value {int(ends[ends < 0][0])} is negative: expected a length")
        kept = positions < ends[:, None]
        if mask.size == 2 * batch:
            kept = kept & (positions >= np.minimum(mask[batch:], key_length)[:, None])
        elif mask.size != batch:
            raise errors.InvalidArgument(
                f"mask_index of {mask.size} elements: expected {batch} (lengths) or {2 * batch} (ends and starts)"
            )
        return kept[:, None, None, :]
    if mask.ndim == 2:
        return (mask > 0)[:, None, None, :]
    if mask.ndim == 3:
        return (mask > 0)[:, None]
    start = key_length - query_length
    return mask[:, :, start:key_length, :key_length] > 0
