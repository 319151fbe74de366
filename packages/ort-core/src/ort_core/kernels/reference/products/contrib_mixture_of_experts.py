"""Mixture of experts: a router picks k experts per token, each a small feed-forward network; MoE and QMoE."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ort_core import errors
from ort_core.frozen import frozen
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.bit_unpacking import unpack_bits
from ort_core.kernels.reference.arrays.gates import fast_gelu, sigmoid, silu
from ort_core.kernels.reference.arrays.widening import narrow, widen, widen_optional
from ort_core.kernels.reference.products.contrib_block_quantized import once_per_weight
from ort_core.ops.expert_shapes import find_declared_shapes

Optional = np.ndarray | None
_SIMPLE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": fast_gelu,  # the tanh form, as in onnxruntime
    "silu": silu,
    "identity": lambda x: x,
}


@frozen
class ExpertActivation:
    """The activation between an expert's layers, and how a gate is found next to it.

    ``limits_late``: the activated gate is clamped, not the gate.
    """

    kind: str
    alpha: float
    beta: float
    limit: float | None
    fusion: int
    limits_late: bool = False

    def __call__(self, first: np.ndarray, third: Optional) -> np.ndarray:
        """Return the activated hidden state of rows ``first``; ``third`` is the product with fc3, if there is one."""
        if self.kind != "swiglu":
            if self.kind not in _SIMPLE:
                raise errors.InvalidArgument(f"activation_type {self.kind!r}: expected swiglu, {', '.join(_SIMPLE)}")
            active = _SIMPLE[self.kind](first)
            return active if third is None else active * third
        if self.fusion == 1:
            gate, linear = first[:, 0::2], first[:, 1::2]
        elif self.fusion == 2:
            gate, linear = np.split(first, 2, axis=1)
        elif third is not None:
            gate, linear = first, third
        else:
            raise errors.InvalidArgument("swiglu needs fc3 when swiglu_fusion is 0")
        most = np.float32(np.inf if self.limit is None else self.limit)
        gate = gate if self.limits_late else np.minimum(gate, most)
        active = gate * sigmoid(np.float32(self.alpha) * gate)
        active = np.minimum(active, most) if self.limits_late else active
        return active * (np.clip(linear, -most, most) + np.float32(self.beta))


def route(
    logits: np.ndarray, k: int, normalize: int, sparse_mixer: int, mixing: Optional = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return (experts, weights), both (tokens, k), from router logits (tokens, experts).

    ``mixing`` gives the weights themselves (tokens, experts) when the router only selects.
    """
    if not 0 < k <= logits.shape[1]:
        raise errors.InvalidArgument(f"'k' must be <= num_experts and positive; found {k} and {logits.shape[1]}")
    if sparse_mixer:
        return _sparse_mixer(logits, k)
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    if mixing is None:
        exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
        table = exponents / exponents.sum(axis=1, keepdims=True)
    else:
        table = mixing
    weights = np.take_along_axis(table, chosen, axis=1)
    if normalize:
        total = weights.sum(axis=1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    return chosen, weights


_JITTER = 0.01  # onnxruntime's


def _sparse_mixer(logits: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Pick experts one after the other; each one's weight is its softmax among the logits close to it."""
    if k != 2:
        raise errors.InvalidArgument(f"use_sparse_mixer is defined for k = 2, found {k}")
    rest, chosen, weights = logits.copy(), [], []
    for _ in range(k):
        best = rest.argmax(axis=1)[:, None]
        top = np.take_along_axis(rest, best, axis=1)
        near = (top - logits) / np.maximum(np.abs(logits), top) <= 2 * _JITTER
        close = np.where(near & ~np.isneginf(rest), rest, -np.inf)
        exponents = np.exp(close - top)
        chosen.append(best)
        weights.append(1 / exponents.sum(axis=1, keepdims=True))
        np.put_along_axis(rest, best, -np.inf, axis=1)
    return np.concatenate(chosen, axis=1), np.concatenate(weights, axis=1).astype(logits.dtype)


def mix_experts(
    x: np.ndarray,
    routed: tuple[np.ndarray, np.ndarray],
    weights: tuple[np.ndarray, np.ndarray, Optional],
    biases: tuple[Optional, Optional, Optional],
    activation: ExpertActivation,
) -> np.ndarray:
    """Return the weighted sum over experts of fc2(activation(fc1(x), fc3(x))), tokens grouped by expert."""
    chosen, mixing = routed
    result = np.zeros((x.shape[0], weights[1].shape[1]), np.float32)
    for expert in np.unique(chosen):
        token, slot = np.nonzero(chosen == expert)
        rows = x[token]

        def layer(index: int, values: np.ndarray, expert: int = int(expert)) -> Optional:
            weight, bias = weights[index], biases[index]
            if weight is None:
                return None
            product = values @ weight[expert].T
            return product if bias is None else product + bias[expert]

        first = layer(0, rows)
        assert first is not None
        second = layer(1, activation(first, layer(2, rows)))
        result[token] += mixing[token, slot][:, None] * second
    return result


@kernel("MoE", domain="com.microsoft")
def mixture_of_experts(
    x: np.ndarray,
    router_probs: np.ndarray,
    fc1_experts_weights: np.ndarray,
    fc1_experts_bias: Optional,
    fc2_experts_weights: np.ndarray,
    fc2_experts_bias: Optional = None,
    fc3_experts_weights: Optional = None,
    fc3_experts_bias: Optional = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: int = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: int = 0,
) -> np.ndarray:
    """Route each token to its k best experts and sum their outputs by the router's weights."""
    is_fused = activation_type == "swiglu" and swiglu_fusion != 0
    first, second = _as_the_schema_has_them(x.shape[-1], fc1_experts_weights, fc2_experts_weights, is_fused=is_fused)
    routed = route(widen(router_probs), k, normalize_routing_weights, use_sparse_mixer)
    result = mix_experts(
        widen(x).reshape(-1, x.shape[-1]),
        routed,
        (widen(first), widen(second), widen_optional(fc3_experts_weights)),
        (widen_optional(fc1_experts_bias), widen_optional(fc2_experts_bias), widen_optional(fc3_experts_bias)),
        ExpertActivation(
            activation_type,
            activation_alpha,
            activation_beta,
            swiglu_limit,
            swiglu_fusion,
            swiglu_limit_after_activation == 1,
        ),
    )
    return narrow(result.reshape(x.shape), x.dtype)


def _as_the_schema_has_them(
    hidden: int, first: np.ndarray, second: np.ndarray, *, is_fused: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return fc1 (experts, columns, hidden) and fc2 (experts, hidden, inner), whatever their file declares."""
    shapes = find_declared_shapes(hidden, first.shape, second.shape, is_fused=is_fused)
    return (first, second) if shapes is None else (first.reshape(shapes[0]), second.reshape(shapes[1]))


def dequantize_experts(packed: np.ndarray, scales: Optional, zeros: Optional, bits: int, block: int) -> np.ndarray:
    """Return float32 (experts, N, K) weights from packed codes with one scale per row, or per block of a row."""
    if scales is None:
        raise errors.InvalidArgument("integer experts need their scales")
    codes = unpack_bits(packed.view(np.uint8), bits).astype(np.float32)
    blocked = scales.ndim == 3 and scales.shape[2] > 0
    factors = widen(scales).reshape(*codes.shape[:2], -1)
    count = factors.shape[2]
    if zeros is None:
        middle: np.ndarray | np.float32 = np.float32(1 << (bits - 1))
    else:
        unpacked = unpack_bits(zeros, bits).astype(np.float32)
        middle = unpacked[:, :, :count] if blocked and zeros.ndim == 3 else unpacked[:, : codes.shape[1], None]
    if blocked and count > 1:
        index = np.arange(codes.shape[2]) // (block or codes.shape[2] // count)
        factors = factors[:, :, index]
        if isinstance(middle, np.ndarray) and middle.shape[2] == count:
            middle = middle[:, :, index]
    return (codes - middle) * factors


@kernel("QMoE", domain="com.microsoft")
def quantized_mixture_of_experts(
    x: np.ndarray,
    router_probs: np.ndarray,
    fc1_experts_weights: np.ndarray,
    fc1_scales: Optional,
    fc1_experts_bias: Optional,
    fc2_experts_weights: np.ndarray,
    fc2_scales: Optional = None,
    fc2_experts_bias: Optional = None,
    fc3_experts_weights: Optional = None,
    fc3_scales: Optional = None,
    fc3_experts_bias: Optional = None,
    fc1_zero_points: Optional = None,
    fc2_zero_points: Optional = None,
    fc3_zero_points: Optional = None,
    router_weights: Optional = None,
    fc1_global_scale: Optional = None,
    fc2_global_scale: Optional = None,
    fc1_act_scale: Optional = None,
    fc2_act_scale: Optional = None,
    fc1_act_block_scale: Optional = None,
    fc2_act_block_scale: Optional = None,
    *,
    accuracy_level: int = 0,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    block_size: int = 0,
    expert_weight_bits: int = 4,
    fc1_expert_weight_bits: int | None = None,
    fc2_expert_weight_bits: int | None = None,
    fc3_expert_weight_bits: int | None = None,
    k: int = 1,
    normalize_routing_weights: int = 0,
    quant_type: str = "int",
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: int = 0,
    weights_prepacked: int = -1,
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """MoE with integer experts; ``accuracy_level`` allows less than the float32 that is used here."""
    if quant_type != "int":
        raise errors.NotImplemented(f"QMoE with quant_type {quant_type!r}: this kernel reads integer experts only")
    sources = (
        (fc1_experts_weights, fc1_scales, fc1_zero_points, fc1_expert_weight_bits),
        (fc2_experts_weights, fc2_scales, fc2_zero_points, fc2_expert_weight_bits),
        (fc3_experts_weights, fc3_scales, fc3_zero_points, fc3_expert_weight_bits),
    )
    weights: list[Optional] = []
    for slot, (packed, scales, zeros, bits) in enumerate(sources):
        if packed is None:
            weights.append(None)
            continue

        def build(
            packed: np.ndarray = packed,
            scales: Optional = scales,
            zeros: Optional = zeros,
            bits: int = bits or expert_weight_bits,
        ) -> np.ndarray:
            return dequantize_experts(packed, scales, zeros, bits, block_size)

        weights.append(once_per_weight(ctx, (packed, scales, zeros), build, slot=f"fc{slot + 1}"))
    routed = route(widen(router_probs), k, normalize_routing_weights, use_sparse_mixer, widen_optional(router_weights))
    assert weights[0] is not None
    assert weights[1] is not None
    result = mix_experts(
        widen(x).reshape(-1, x.shape[-1]),
        routed,
        (weights[0], weights[1], weights[2]),
        (widen_optional(fc1_experts_bias), widen_optional(fc2_experts_bias), widen_optional(fc3_experts_bias)),
        ExpertActivation(
            activation_type,
            activation_alpha,
            activation_beta,
            swiglu_limit,
            swiglu_fusion,
            swiglu_limit_after_activation == 1,
        ),
    )
    return narrow(result.reshape(x.shape), x.dtype)
