"""Feeds for the model skeletons: small sizes by the names of dimensions, contents by the names of inputs, seeded."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np

import ort_core as ort

_SIZES = {
    "batch": 1, "sequence": 6, "past_sequence": 3, "total_sequence": 9,
    "batch_size": 1, "sequence_length": 6, "past_sequence_length": 3, "total_sequence_length": 9, "kv_cache_dim": 64,
}  # fmt: skip
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64}
_WORDS = ("the", "Model", "reads", "SMALL", "texts", "and", "numbers", "of 3")


def build_feeds(inputs: Iterable[ort.NodeArg]) -> dict[str, np.ndarray]:
    """Return one feed per input."""
    return {argument.name: _build_feed(argument) for argument in inputs}


def _build_feed(argument: ort.NodeArg) -> np.ndarray:
    shape = [size if isinstance(size, int) else _SIZES.get(size or "", 2) for size in argument.shape]
    random = np.random.default_rng(zlib.crc32(argument.name.encode()))
    if argument.type == "tensor(string)":
        return random.choice(np.array(_WORDS, object), shape)
    if "mask" in argument.name:
        return np.ones(shape, _TYPES[argument.type])
    if "position" in argument.name:
        return np.broadcast_to(np.arange(_SIZES["past_sequence"], _SIZES["total_sequence"]), shape).astype(np.int64)
    if argument.type == "tensor(int64)":
        return random.integers(0, 2 if "token_type" in argument.name else 200, shape)
    return random.standard_normal(shape).astype(_TYPES[argument.type])
