"""Products, embeddings and experts whose weights lie packed in blocks, as in GGUF files."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.ir.types import DataType
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.packed_formats import find_packed_format
from ort_core.kernels.reference.arrays.widening import narrow, widen

SQUARED_RELU = ("relu2", "relu_squared")
IQ2_XXS = 16
MOST_EXPERTS, MOST_EXPERTS_OF_SOFTMAX = 32, 16  # of which a token may have its result mixed


@kernel("GatherPacked", domain="com.microsoft")
def gather_packed(
    data: np.ndarray,
    indices: np.ndarray,
    *,
    K: int,
    output_dtype: int = DataType.BFLOAT16.value,
    packed_type: int,
) -> np.ndarray:
    """output[..., :] = unpacked data[indices]; an index outside of the table takes row 0."""
    packed = find_packed_format(packed_type, K, "GatherPacked")
    _require_shape("GatherPacked", "data", data, (None, packed.row_bytes(K)))
    if len(data) == 0:
        raise InvalidArgument("GatherPacked: data has no rows")
    inside = (indices >= 0) & (indices < len(data))
    rows = packed.unpack(data[np.where(inside, indices, 0)])
    return narrow(rows, DataType(output_dtype).numpy)


@kernel("MatMulPacked", domain="com.microsoft")
@np.errstate(over="ignore", invalid="ignore")
def matmul_packed(
    a: np.ndarray,
    b: np.ndarray,
    global_scale: np.ndarray | None = None,
    *,
    activation_type: str = "none",
    K: int,
    N: int,
    packed_type: int,
) -> np.ndarray:
    """Y = activation(A @ B^T): weights are rounded to A's type before the product, the product before the activation.

    ``global_scale`` belongs to NVFP4, whose number is not among the known formats.
    """
    packed = find_packed_format(packed_type, K, "MatMulPacked")
    _require_shape("MatMulPacked", "B", b, (N, packed.row_bytes(K)))
    if a.ndim == 0 or a.shape[-1] != K:
        raise InvalidArgument(f"MatMulPacked: A of shape {a.shape} has no rows of {K} elements")
    if global_scale is not None:
        raise InvalidArgument(f"MatMulPacked: global_scale goes with NVFP4 weights, found {packed.name}; leave it out")
    weights = widen(narrow(packed.unpack(b), a.dtype))
    product = narrow(np.matmul(widen(a), weights.T), a.dtype)
    return narrow(_activated(widen(product), activation_type), a.dtype)


def _activated(x: np.ndarray, name: str) -> np.ndarray:
    if name == "none":
        return x
    if name in SQUARED_RELU:
        return np.square(np.maximum(x, 0))
    if name == "silu":
        return _silu(x)
    raise InvalidArgument(f"MatMulPacked: activation_type {name!r}; known: none, relu2, relu_squared, silu")


def _silu(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x / (1 + np.exp(-x))


@kernel("MoEPacked", domain="com.microsoft")
@np.errstate(over="ignore", invalid="ignore")
def mixture_of_packed_experts(
    x: np.ndarray,
    router_probs: np.ndarray,
    gate_weights: np.ndarray,
    up_weights: np.ndarray | None,
    down_weights: np.ndarray,
    router_weights: np.ndarray | None = None,
    *,
    activation_type: str = "swiglu",
    down_type: int,
    gate_type: int,
    k: int = 1,
    normalize_routing_weights: int = 1,
    routed_scaling_factor: float = 1.0,
    routing_epsilon: float = 0.0,
    up_type: int = -1,
) -> np.ndarray:
    """For each token the sum over its k best experts of their share of ``(silu(x G^T) * x U^T) D^T``."""
    experts = _unpacked_experts(
        activation_type, (gate_weights, gate_type), (up_weights, up_type), (down_weights, down_type), x
    )
    tokens = widen(x).reshape(-1, x.shape[-1])
    count = len(experts.gate)
    scores = _routing_scores(router_probs, len(tokens), count, "router_probs")
    if router_weights is None:
        if routing_epsilon != 0 or routed_scaling_factor != 1:
            raise InvalidArgument("MoEPacked: routing_epsilon and routed_scaling_factor need router_weights")
        mixing = _softmax(scores)
    else:
        mixing = _routing_scores(router_weights, len(tokens), count, "router_weights")
    if not 1 <= k <= min(count, MOST_EXPERTS_OF_SOFTMAX if router_weights is None else MOST_EXPERTS):
        raise InvalidArgument(f"MoEPacked: k is {k}; there are {count} experts, and at most 16 (32) may be mixed")
    chosen = _best(scores, k)
    shares = _shares(np.take_along_axis(mixing, chosen, axis=1), normalize_routing_weights, routing_epsilon)
    total = np.zeros(tokens.shape, np.float32)
    for rank in range(k):
        share = shares[:, rank : rank + 1] * np.float32(routed_scaling_factor)
        total += share * experts.apply(tokens, chosen[:, rank])
    total[~np.isfinite(shares).all(axis=1)] = np.nan
    return narrow(total.reshape(x.shape), x.dtype)


@dataclass(frozen=True)
class _Experts:
    gate: np.ndarray  # float32 [experts, inner, hidden]
    up: np.ndarray | None  # likewise; ``None``: the activation is a squared ReLU of the gate alone
    down: np.ndarray  # float32 [experts, hidden, inner]

    def apply(self, tokens: np.ndarray, expert_of: np.ndarray) -> np.ndarray:
        """Return float32 [tokens, hidden]: each token through one expert."""
        result = np.zeros(tokens.shape, np.float32)
        for expert in np.unique(expert_of):
            rows = expert_of == expert
            gate = tokens[rows] @ self.gate[expert].T
            inner = (
                np.square(np.maximum(gate, 0)) if self.up is None else _silu(gate) * (tokens[rows] @ self.up[expert].T)
            )
            result[rows] = inner @ self.down[expert].T
        return result


def _unpacked_experts(
    activation: str,
    gate: tuple[np.ndarray, int],
    up: tuple[np.ndarray | None, int],
    down: tuple[np.ndarray, int],
    x: np.ndarray,
) -> _Experts:
    is_squared = activation in SQUARED_RELU
    if not is_squared and activation != "swiglu":
        raise InvalidArgument(f"MoEPacked: activation_type {activation!r}; known: swiglu, relu2, relu_squared")
    if is_squared != (up[0] is None):
        raise InvalidArgument("MoEPacked: up_experts_weights goes with swiglu, and only with it")
    if is_squared and (gate[1], down[1]) != (IQ2_XXS, IQ2_XXS):
        raise InvalidArgument(f"MoEPacked: relu2 needs packed weights of type {IQ2_XXS} (IQ2_XXS)")
    if x.ndim == 0 or gate[0].ndim != 3:
        raise InvalidArgument(f"MoEPacked: input of shape {x.shape} and gate weights of shape {gate[0].shape}")
    hidden, (count, inner) = x.shape[-1], gate[0].shape[:2]
    return _Experts(
        _unpacked("gate", gate[0], gate[1], (count, inner, hidden), x.dtype),
        None if up[0] is None else _unpacked("up", up[0], up[1], (count, inner, hidden), x.dtype),
        _unpacked("down", down[0], down[1], (count, hidden, inner), x.dtype),
    )


def _unpacked(name: str, blob: np.ndarray, number: int, shape: tuple[int, int, int], dtype: np.dtype) -> np.ndarray:
    """Return float32 of a shape, rounded to the activations' type."""
    packed = find_packed_format(number, shape[2], f"MoEPacked ({name})")
    _require_shape("MoEPacked", f"{name}_experts_weights", blob, (*shape[:2], packed.row_bytes(shape[2])))
    return widen(narrow(packed.unpack(blob), dtype))


def _routing_scores(x: np.ndarray, tokens: int, experts: int, name: str) -> np.ndarray:
    _require_shape("MoEPacked", name, x, (tokens, experts))
    return widen(x)


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _best(scores: np.ndarray, k: int) -> np.ndarray:
    """Return int64 [tokens, k]: highest first, of equal ones the first; NaN comes last of all."""
    is_number = ~np.isnan(scores)
    order = np.lexsort((-np.where(is_number, scores, 0), ~is_number), axis=1)
    return order[:, :k]


def _shares(selected: np.ndarray, normalized: int, epsilon: float) -> np.ndarray:
    """Return float32 [tokens, k]; where they are normalized by a sum of zero, zeros."""
    if not normalized:
        return selected
    total = np.zeros(len(selected), np.float32)
    for rank in range(selected.shape[1]):
        total += selected[:, rank]
    total = (total + np.float32(epsilon))[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        divided = selected / total if epsilon > 0 else selected * (1 / total)
    return np.where(total == 0, np.float32(0), divided)


def _require_shape(node: str, name: str, x: np.ndarray, wanted: tuple[int | None, ...]) -> None:
    fits = x.ndim == len(wanted) and all(size in (None, found) for size, found in zip(wanted, x.shape, strict=True))
    if not fits:
        text = ", ".join("?" if size is None else str(size) for size in wanted)
        raise InvalidArgument(f"{node}: {name} must have shape [{text}], found {list(x.shape)}")
