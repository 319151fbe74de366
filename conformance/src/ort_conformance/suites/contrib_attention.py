"""Attentions of com.microsoft and what stands around them, by their formulas."""

from __future__ import annotations

import numpy as np

from ort_conformance.suites.contrib_row import Arrays, ContribRow

BATCH, LENGTH, HEADS, SIZE = 2, 5, 4, 8
WIDTH = HEADS * SIZE
SIDE = (BATCH, LENGTH, WIDTH)
_POSITIONS = np.arange(LENGTH, dtype=np.int64)[None].repeat(BATCH, 0)
_RANDOM = np.random.default_rng(22)
_WEIGHTS = {
    "w": _RANDOM.uniform(-0.1, 0.1, (WIDTH, 3 * WIDTH)).astype(np.float32),
    "b": _RANDOM.uniform(-0.1, 0.1, 3 * WIDTH).astype(np.float32),
}
_TOKENS = np.random.default_rng(20).integers(0, 11, (BATCH, LENGTH)).astype(np.int32)
_SEGMENTS = (np.arange(LENGTH)[None].repeat(BATCH, 0) % 2).astype(np.int32)


def _by_head(x: np.ndarray, heads: int = HEADS) -> np.ndarray:
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def _attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: np.ndarray | float = 0.0) -> np.ndarray:
    """Return softmax(q k' / sqrt(d) + bias) v of [batch, heads, length, size] as [batch, length, heads * size]."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = weights / weights.sum(-1, keepdims=True) @ v
    return mixed.swapaxes(1, 2).reshape(mixed.shape[0], mixed.shape[2], -1)


def _causal(rows: int, columns: int) -> np.ndarray:
    return np.where(np.arange(columns) <= np.arange(rows)[:, None] + columns - rows, 0.0, -np.inf)


def _packed_attention(v: Arrays, bias: np.ndarray | float = 0.0) -> np.ndarray:
    q, k, value = np.split(v["x"] @ v["w"] + v["b"], 3, -1)
    return _attended(_by_head(q), _by_head(k), _by_head(value), bias)


def _many_heads(v: Arrays) -> np.ndarray:
    return _attended(_by_head(v["q"]), _by_head(v["k"]), _by_head(v["v"]))


def _grouped(v: Arrays) -> tuple[np.ndarray, ...]:
    """A first call: nothing is in the caches, each pair of heads of the queries reads one of the keys."""
    k, value = (_by_head(v[name], HEADS // 2) for name in "kv")
    q = _by_head(v["q"])
    found = _attended(q, k.repeat(2, 1), value.repeat(2, 1), _causal(LENGTH, LENGTH))
    return found, k, value


def _rotated(v: Arrays) -> np.ndarray:
    x = _by_head(v["x"])
    cosine, sine = (v[name][v["positions"]][:, None] for name in ("cos", "sin"))
    first, second = np.split(x, 2, -1)
    turned = np.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)
    return turned.swapaxes(1, 2).reshape(SIDE)


def _embedded(v: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Without a mask the second output, the lengths of the sequences, is zero."""
    sums = v["words"][v["tokens"]] + v["places"][: v["tokens"].shape[1]] + v["kinds"][v["segments"]]
    centered = sums - sums.mean(-1, keepdims=True)
    found = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-12) * v["g"] + v["b"]
    return found, np.zeros(BATCH, np.int32)


ATTENTION_ROWS = (
    ContribRow(
        "Attention", {"x": SIDE}, _packed_attention, {"num_heads": HEADS}, given=_WEIGHTS, constants=("w", "b"),
    ),
    ContribRow(
        "Attention", {"x": SIDE},
        lambda v: _packed_attention(v, _causal(LENGTH, LENGTH)), {"num_heads": HEADS, "unidirectional": 1}, "causal",
        given=_WEIGHTS,
        constants=("w", "b"),
    ),
    ContribRow("MultiHeadAttention", {"q": SIDE, "k": SIDE, "v": SIDE}, _many_heads, {"num_heads": HEADS}),
    ContribRow(
        "MultiHeadAttention", {"q": (BATCH, 3, WIDTH), "k": SIDE, "v": SIDE}, _many_heads, {"num_heads": HEADS},
        "cross",
    ),
    ContribRow(
        "GroupQueryAttention", {"q": SIDE, "k": (*SIDE[:2], WIDTH // 2), "v": (*SIDE[:2], WIDTH // 2)}, _grouped,
        {"num_heads": HEADS, "kv_num_heads": HEADS // 2},
        given={"lengths": np.full(BATCH, LENGTH - 1, np.int32), "total": np.array(LENGTH, np.int32)},
        order=("q", "k", "v", "", "", "lengths", "total"), output_count=3,
    ),
    ContribRow(
        "RotaryEmbedding", {"x": SIDE, "cos": (16, SIZE // 2), "sin": (16, SIZE // 2)}, _rotated,
        {"num_heads": HEADS}, given={"positions": _POSITIONS}, constants=("cos", "sin"),
        order=("x", "positions", "cos", "sin"),
    ),
    ContribRow(
        "EmbedLayerNormalization",
        {"words": (11, WIDTH), "places": (8, WIDTH), "kinds": (2, WIDTH), "g": (WIDTH,), "b": (WIDTH,)}, _embedded,
        {"epsilon": 1e-12}, given={"tokens": _TOKENS, "segments": _SEGMENTS},
        constants=("words", "places", "kinds", "g", "b"),
        order=("tokens", "segments", "words", "places", "kinds", "g", "b"), output_count=2,
    ),
)  # fmt: skip
