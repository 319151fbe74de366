"""Preconditions of com.microsoft's streams side by side: branches of hyper-connections and the gate of an Engram."""

from __future__ import annotations

from ort_core.ir.dims import KnownDim
from ort_core.kernels.preconditions.conditions import Conditions, Sizes


def branches(c: Conditions) -> Sizes | None:
    """Streams (..., C, H), or (..., C * H) where num_branches is C; return their shape as (..., C, H)."""
    count = c.node.int_attribute("num_branches", 0)
    x = c.at_least(0, "streams", 1 if count else 2)
    c.require(count >= 0, f"num_branches must be at least 0, got {count}")
    if x is None:
        return None
    if not count:
        c.positive(x[-2], "streams must have at least one branch")
        return x
    text = f"the last dimension of streams must be a positive multiple of num_branches ({count}), got {x[-1]}"
    c.positive(x[-1], text)
    if not isinstance(x[-1], int):
        return None
    c.require(x[-1] % count == 0, text)
    return (*x[:-1], count, x[-1] // count)


def normalized_branches(c: Conditions) -> None:
    """BranchwiseRMSNorm: a scale of (C * H), (C, H) or (H)."""
    x, scale = branches(c), c.rank(1, "scale", 1, 2)
    if x is None or scale is None:
        return
    if len(scale) == 2:
        c.sized(1, "scale", x[-2], x[-1])
    elif scale[0] != x[-1]:
        c.equal(scale[0], x[-2] * x[-1], f"scale must have an element for each of a branch or of all, got {scale[0]}")


def pre_mix(c: Conditions) -> None:
    """HyperConnectionPreMix: streams and their gates."""
    x = branches(c)
    if x is not None:
        _gates(c, 1, "pre_mix", x, is_flat=c.node.int_attribute("num_branches", 0) > 0)


def post_mix(c: Conditions) -> None:
    """HyperConnectionPostMix: streams, the output of a block (..., H), gates, and a matrix (..., C, C)."""
    x = branches(c)
    if x is None:
        return
    c.sized(1, "block_output", *x[:-2], x[-1])
    _gates(c, 2, "post_mix", x, is_flat=False)
    c.sized(3, "stream_mix", *x[:-1], x[-2])


def _gates(c: Conditions, index: int, name: str, x: Sizes, *, is_flat: bool) -> None:
    """Gates of (..., C), (..., C, 1), (..., C, H), and of flattened streams (..., C * H)."""
    gate = c.rank(index, name, len(x) - 1, len(x))
    if gate is None:
        return
    if len(gate) == len(x):
        width: KnownDim = 1 if gate[-1] == 1 else x[-1]
        c.sized(index, name, *x[:-1], width)
    else:
        c.sized(index, name, *x[:-2], x[-2] * x[-1] if is_flat and gate[-1] != x[-2] else x[-2])


def engram_gate(c: Conditions) -> None:
    """EngramGate: key and query (B, S, M, H), value (B, S, H), a scale (M, H) of each and of the result."""
    key = c.rank(0, "key", 4)
    if key is None:
        return
    c.sized(1, "query", *key)
    c.sized(2, "value", key[0], key[1], key[3])
    for index, name in ((3, "key_norm_scale"), (4, "query_norm_scale"), (5, "conv_norm_scale")):
        c.sized(index, name, key[2], key[3])
