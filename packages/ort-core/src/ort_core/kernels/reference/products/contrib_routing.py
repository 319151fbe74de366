"""Routers of experts and what stands beside them: group-limited choice, the first projection, clamped SwiGLU."""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.widening import narrow, widen

SMALLEST_SHARE = np.float32(1e-20)  # of which a logarithm is taken


def swiglu_of(
    gate: np.ndarray, up: np.ndarray, alpha: float, beta: float, limit: float, dtype: np.dtype | None
) -> np.ndarray:
    """Return ``G * sigmoid(alpha * G) * (L + beta)`` in float64, both clamped where ``limit`` is positive.

    Args:
        gate: G before the clamp.
        up: L before the clamp, of the same shape.
        alpha: the multiplier inside the sigmoid.
        beta: what is added to L.
        limit: the clamp; zero or less: none.
        dtype: to which the activation is rounded before the product; ``None``: not.
    """
    g, linear = gate.astype(np.float64), up.astype(np.float64)
    if limit > 0:
        g, linear = np.minimum(g, limit), np.clip(linear, -limit, limit)
    with np.errstate(over="ignore"):
        activated = g / (1 + np.exp(-alpha * g))
    if dtype is not None:
        activated = widen(narrow(activated, dtype)).astype(np.float64)
    return activated * (linear + beta)


@kernel("SwiGLU", domain="com.microsoft")
def swiglu(
    gate: np.ndarray,
    up: np.ndarray | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    limit: float = 0.0,
    round_activation: int = 0,
) -> np.ndarray:
    """Y = G * sigmoid(alpha * G) * (L + beta); without ``up`` the gate's last axis holds G, then L."""
    if up is None:
        if gate.ndim == 0 or gate.shape[-1] % 2:
            raise InvalidArgument(f"SwiGLU: gate of shape {gate.shape} holds no two halves; give up, or an even axis")
        gate, up = np.split(gate, 2, axis=-1)
    if up.shape != gate.shape:
        raise InvalidArgument(f"SwiGLU: gate has shape {gate.shape} and up {up.shape}; they must be the same")
    rounded = gate.dtype if round_activation else None
    return narrow(swiglu_of(gate, up, activation_alpha, activation_beta, limit, rounded), gate.dtype)


@kernel("RouterGateUpProj", domain="com.microsoft")
def router_gate_up_projection(
    x: np.ndarray,
    w: np.ndarray,
    *,
    activation: str = "swiglu",
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    limit: float = 0.0,
    router_size: int,
) -> tuple[np.ndarray, np.ndarray]:
    """X @ W = router logits, gate, up: the logits, and SwiGLU of the rounded halves."""
    if activation != "swiglu":
        raise InvalidArgument(f"RouterGateUpProj: activation {activation!r}; known: swiglu")
    columns = w.shape[-1] - router_size
    if w.ndim != 2 or x.ndim == 0 or x.shape[-1] != w.shape[0] or router_size < 1 or columns < 2 or columns % 2:
        raise InvalidArgument(
            f"RouterGateUpProj: X of shape {x.shape} and W of shape {w.shape} do not give {router_size} logits and two "
            "halves"
        )
    product = narrow(np.matmul(widen(x), widen(w)), x.dtype)
    gate, up = np.split(product[..., router_size:], 2, axis=-1)
    activated = swiglu_of(gate, up, activation_alpha, activation_beta, limit, None)
    return product[..., :router_size], narrow(activated, x.dtype)


@kernel("MoEGroupRouter", domain="com.microsoft")
def moe_group_router(
    logits: np.ndarray,
    expert_bias: np.ndarray,
    projection_weight: np.ndarray | None = None,
    *,
    group_topk: int = 2,
    n_group: int = 1,
    router_sentinel: float = -10000.0,
    top_k: int,
    topk_group: int = 1,
    ctx: KernelContext,
) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]:
    """Log-shares of the chosen experts, the sentinel elsewhere; or all shares, with the bias and without."""
    wanted = (*ctx.output_present, False, False, False)[:3]
    rows, experts = _scores(logits, expert_bias, projection_weight)
    if wanted[1] or wanted[2]:
        _require_full_scores(wanted, n_group, topk_group)
        share = 1 / (1 + np.exp(-rows))
        return None, (share + expert_bias).astype(np.float32), share.astype(np.float32)
    if projection_weight is not None:
        raise InvalidArgument("MoEGroupRouter: projection_weight needs the outputs selection_scores and router_weights")
    _require_groups(experts, n_group, topk_group, top_k, group_topk)
    share = (1 / (1 + np.exp(-rows))).astype(np.float32)
    chosen = _chosen(share + expert_bias, n_group, topk_group, top_k, group_topk)
    values = np.where(chosen, np.log(np.maximum(share, SMALLEST_SHARE)), np.float32(router_sentinel))
    return narrow(values, logits.dtype), None, None


def _scores(logits: np.ndarray, bias: np.ndarray, projection: np.ndarray | None) -> tuple[np.ndarray, int]:
    """Return logits [tokens, experts] and the number of experts."""
    if bias.ndim != 1:
        raise InvalidArgument(f"MoEGroupRouter: expert_bias must be a vector, found shape {bias.shape}")
    if logits.ndim < 2:
        raise InvalidArgument(f"MoEGroupRouter: logits must have at least 2 dimensions, found shape {logits.shape}")
    experts = len(bias)
    width = experts if projection is None else projection.shape[-1]
    fits = logits.shape[-1] == width and (projection is None or projection.shape == (experts, width))
    if not fits or experts == 0:
        raise InvalidArgument(
            f"MoEGroupRouter: logits of shape {logits.shape} do not fit {experts} experts"
            + ("" if projection is None else f" and projection_weight of shape {projection.shape}")
        )
    rows = widen(logits).reshape(-1, width)
    return (rows if projection is None else rows @ widen(projection).T), experts


def _require_full_scores(wanted: tuple[bool, ...], n_group: int, topk_group: int) -> None:
    if wanted[0] or not (wanted[1] and wanted[2]) or n_group != 1 or topk_group != 1:
        raise InvalidArgument(
            "MoEGroupRouter: selection_scores and router_weights come together, without router_probs, and with n_group "
            f"and topk_group 1; found {n_group} and {topk_group}"
        )


def _require_groups(experts: int, n_group: int, topk_group: int, top_k: int, group_topk: int) -> None:
    sound = n_group > 0 and experts % max(n_group, 1) == 0 and 0 < topk_group <= n_group and group_topk > 0
    if not sound or not 0 < top_k <= experts:
        raise InvalidArgument(
            f"MoEGroupRouter: n_group {n_group}, topk_group {topk_group}, group_topk {group_topk} and top_k {top_k} do "
            f"not fit {experts} experts"
        )


def _chosen(scores: np.ndarray, n_group: int, topk_group: int, top_k: int, group_topk: int) -> np.ndarray:
    """Return which experts [tokens, experts] are chosen: of equal scores the first."""
    tokens, experts = scores.shape
    grouped = scores.reshape(tokens, n_group, experts // n_group)
    best = -np.sort(-grouped, axis=-1)[..., : min(group_topk, experts // n_group)]
    groups = _highest(best.sum(axis=-1), topk_group)
    open_to = np.repeat(groups, experts // n_group, axis=-1)
    return _highest(np.where(open_to, scores, -np.inf), top_k) & open_to


def _highest(scores: np.ndarray, count: int) -> np.ndarray:
    """Return a mask of the ``count`` highest of each row: of equal ones the first."""
    order = np.argsort(-scores, axis=-1, kind="stable")[:, :count]
    mask = np.zeros(scores.shape, np.bool_)
    np.put_along_axis(mask, order, True, axis=-1)
    return mask
