"""GatedDeltaNet: attention through one state matrix per value head that each token decays, corrects and adds to.

With the state S (width of keys, depth of values): S = exp(g) S;  d = beta (v - S'k);  S = S + k d';  y = scale S'q.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.frozen import frozen
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.gates import sigmoid, softplus
from ort_core.kernels.reference.arrays.widening import narrow, widen

Optional = np.ndarray | None
MOST_CAPTURED = 8
SMALLEST_NORM = 1e-12  # added below the root of a head's squares
_RULES = ("linear", "gated", "delta", "gated_delta")


@frozen
class _Tokens:
    """All tokens one after the other: query, key [T, Hk, width], value [T, Hv, depth], decay and rate, or none."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    growth: Optional  # exp(g) [T, Hv, 1 or width]
    rate: Optional  # beta [T, Hv]


@kernel("GatedDeltaNet", domain="com.microsoft")
def gated_delta_net(
    query: np.ndarray,
    key: Optional = None,
    value: Optional = None,
    cu_seqlens: Optional = None,
    decay: Optional = None,
    beta: Optional = None,
    initial_state: Optional = None,
    a_log: Optional = None,
    dt_bias: Optional = None,
    capture_count: Optional = None,
    state_update_active: Optional = None,
    *,
    beta_activation: str = "none",
    chunk_size: int = 64,
    gate_activation: str = "none",
    gate_lower_bound: float = -5.0,
    qk_l2_norm: int = 0,
    scale: float = 0.0,
    state_update_capacity: int = 0,
    update_rule: str = "gated_delta",
    ctx: KernelContext,
) -> tuple[np.ndarray, np.ndarray, Optional]:
    """Return outputs like the values, the last states [batch, Hv, depth, width], and captured transitions.

    ``chunk_size`` is a hint for implementations that work on many tokens at once.
    """
    if update_rule not in _RULES:
        raise InvalidArgument(f"GatedDeltaNet: update_rule {update_rule!r}; known: {', '.join(_RULES)}")
    is_gated, is_delta = "gated" in update_rule, "delta" in update_rule
    is_raw = gate_activation != "none"
    if (decay is not None) != is_gated or (beta is not None) != is_delta or (a_log is not None) != is_raw:
        raise InvalidArgument(
            "GatedDeltaNet: decay, beta and a_log must be there exactly where the update rule and the gate use them; "
            f"update_rule is {update_rule!r} and gate_activation {gate_activation!r}"
        )
    parts = _parts(query, key, value, initial_state)
    q, k, v = (widen(part).reshape(-1, *part.shape[-2:]) for part in parts)
    _check_heads(q, k, v)
    if qk_l2_norm:
        q, k = _unit(q), _unit(k)
    growth = _growth(decay, a_log, dt_bias, (gate_activation, gate_lower_bound), v) if is_gated else None
    tokens = _Tokens(q, k, v, growth, _rate(beta, beta_activation, v) if is_delta else None)
    bounds = _bounds(cu_seqlens, initial_state, parts[0], len(q))
    states = _first_states(initial_state, len(bounds) - 1, tokens)
    captured = _captures(capture_count, state_update_active, state_update_capacity, len(states))
    factor = np.float32(scale or 1 / np.sqrt(q.shape[2]))
    outputs = np.empty((len(v), *v.shape[1:]), np.float32)
    updates = [_Capture(state_update_capacity, tokens) for _ in states]
    for request, (begin, end) in enumerate(pairwise(bounds)):
        state = states[request].swapaxes(1, 2)
        for t in range(begin, end):
            ctx.guard.check()
            state, delta = _step(tokens, t, state)
            outputs[t] = np.einsum("hwd,hw->hd", state, _spread(q[t], len(v[t]))) * factor
            if t - begin < captured[request]:
                updates[request].take(t - begin, tokens, t, delta)
        states[request] = state.swapaxes(1, 2)
    rows = np.stack([update.row() for update in updates]) if state_update_capacity and updates else None
    return narrow(outputs.reshape(parts[2].shape), query.dtype), states, rows


def _parts(query: np.ndarray, key: Optional, value: Optional, state: Optional) -> tuple[np.ndarray, ...]:
    """Return query, key and value [..., heads, width]; packed ones are taken apart by the state's sizes."""
    if (key is None) != (value is None):
        raise InvalidArgument("GatedDeltaNet: key and value must be there together, or query hold all three")
    if key is not None and value is not None:
        if not query.ndim == key.ndim == value.ndim or query.ndim not in (3, 4):
            raise InvalidArgument(
                f"GatedDeltaNet: query, key and value must have 3 or 4 dimensions each, found {query.ndim}, {key.ndim} "
                f"and {value.ndim}"
            )
        return query, key, value
    if state is None or state.ndim != 4 or query.ndim not in (2, 3):
        raise InvalidArgument("GatedDeltaNet: packed query, key and value need initial_state, which tells their sizes")
    _, heads, depth, width = state.shape
    own, rest = divmod(query.shape[-1] - heads * depth, 2 * max(width, 1))
    if rest or own < 1:
        raise InvalidArgument(f"GatedDeltaNet: query of width {query.shape[-1]} does not fit states {state.shape}")
    first, second = np.split(query[..., : 2 * own * width], 2, axis=-1)
    lead = query.shape[:-1]
    packed = query[..., 2 * own * width :]
    return first.reshape(*lead, own, width), second.reshape(*lead, own, width), packed.reshape(*lead, heads, depth)


def _check_heads(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> None:
    if q.shape != k.shape or len(v) != len(q) or not q.shape[1] or v.shape[1] % q.shape[1]:
        raise InvalidArgument(
            f"GatedDeltaNet: query {q.shape}, key {k.shape} and value {v.shape} (tokens, heads, width) do not fit: the "
            "values' heads must be a multiple of the others', which are alike"
        )


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.square(x).sum(axis=-1, keepdims=True) + np.float32(SMALLEST_NORM))


def _growth(decay: Optional, a_log: Optional, bias: Optional, gate: tuple[str, float], v: np.ndarray) -> np.ndarray:
    """Return exp(g), [T, Hv, 1 or width]."""
    if decay is None:
        raise InvalidArgument("GatedDeltaNet: the update rule needs the input decay")
    tokens, heads = v.shape[:2]
    raw = widen(decay).reshape(tokens, heads, -1)
    activation, bound = gate
    if activation == "none":
        return np.exp(raw)
    if activation not in ("softplus", "qwen", "sigmoid", "kda"):
        raise InvalidArgument(f"GatedDeltaNet: gate_activation {activation!r}; known: none, softplus, sigmoid, kda")
    if a_log is None or bias is None:
        raise InvalidArgument(f"GatedDeltaNet: gate_activation {activation!r} needs the inputs a_log and dt_bias")
    shifted, rate = raw + bias.reshape(heads, -1), np.exp(a_log).reshape(heads, 1)
    if activation in ("softplus", "qwen"):
        return np.exp(-rate * softplus(shifted))
    return np.exp(np.float32(bound) * sigmoid(rate * shifted))


def _rate(beta: Optional, activation: str, v: np.ndarray) -> np.ndarray:
    if beta is None or activation not in ("none", "sigmoid"):
        raise InvalidArgument(
            f"GatedDeltaNet: the update rule needs beta, and beta_activation none or sigmoid, found {activation!r}"
        )
    rate = widen(beta).reshape(v.shape[:2])
    return sigmoid(rate) if activation == "sigmoid" else rate


def _bounds(offsets: Optional, state: Optional, query: np.ndarray, tokens: int) -> list[int]:
    """Return where the requests' tokens begin, and where the last ones end."""
    if offsets is not None:
        found = [int(value) for value in offsets]
        if len(found) < 2 or found[0] != 0 or found[-1] != tokens or any(a > b for a, b in pairwise(found)):
            raise InvalidArgument(f"GatedDeltaNet: cu_seqlens {found} must rise from 0 to the {tokens} tokens")
        return found
    batch = query.shape[0] if query.ndim == 4 else None if state is None else state.shape[0]
    if not batch or tokens % batch:
        raise InvalidArgument(
            f"GatedDeltaNet: {tokens} tokens do not divide into requests; give cu_seqlens or initial_state"
        )
    return [request * (tokens // batch) for request in range(batch + 1)]


def _first_states(state: Optional, batch: int, tokens: _Tokens) -> np.ndarray:
    shape = (batch, tokens.value.shape[1], tokens.value.shape[2], tokens.key.shape[2])
    if state is None:
        return np.zeros(shape, np.float32)
    if state.shape != shape:
        raise InvalidArgument(f"GatedDeltaNet: initial_state has shape {state.shape}, expected {shape}")
    return state.astype(np.float32)


def _captures(count: Optional, active: Optional, capacity: int, batch: int) -> list[int]:
    """Return how many transitions of each request are captured."""
    if not 0 <= capacity <= MOST_CAPTURED or (count is None) != (capacity == 0):
        raise InvalidArgument(
            f"GatedDeltaNet: capture_count is there where state_update_capacity is from 1 to {MOST_CAPTURED}, found "
            f"{capacity}"
        )
    if count is None or (active is not None and not active.reshape(-1)[0]):
        return [0] * batch
    return np.clip(count, 0, capacity).reshape(-1).tolist()


def _spread(x: np.ndarray, heads: int) -> np.ndarray:
    """Return rows of keys' heads for the values' heads that share them."""
    return np.repeat(x, heads // len(x), axis=0)


def _step(tokens: _Tokens, t: int, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the state [Hv, width, depth] behind a token, and what was written at its key."""
    k, delta = _spread(tokens.key[t], len(state)), tokens.value[t]
    if tokens.growth is not None:
        state = state * tokens.growth[t][:, :, None]
    if tokens.rate is not None:
        delta = tokens.rate[t][:, None] * (delta - np.einsum("hwd,hw->hd", state, k))
    return state + k[:, :, None] * delta[:, None], delta


class _Capture:
    """The first transitions of a request: decays, keys and what was written, one after the other."""

    def __init__(self, capacity: int, tokens: _Tokens) -> None:
        heads = tokens.value.shape[1]
        decays = heads if tokens.growth is None else heads * tokens.growth.shape[2]
        widths = (decays, tokens.key[:1].size, tokens.value[:1].size)
        self._parts = [np.zeros((capacity, width), np.float32) for width in widths]

    def take(self, slot: int, tokens: _Tokens, t: int, delta: np.ndarray) -> None:
        """Keep the transition of a token."""
        decay = np.ones(self._parts[0].shape[1], np.float32) if tokens.growth is None else tokens.growth[t]
        for part, values in zip(self._parts, (decay, tokens.key[t], delta), strict=True):
            part[slot] = values.reshape(-1)

    def row(self) -> np.ndarray:
        """Return all of it as one row."""
        return np.concatenate([part.reshape(-1) for part in self._parts])
