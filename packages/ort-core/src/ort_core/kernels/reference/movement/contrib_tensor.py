"""Moving, selecting and shaping tensors: com.microsoft's own forms of standard operators, and a few of its own."""

from __future__ import annotations

import math

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.widening import narrow, widen
from ort_core.kernels.reference.movement.pad import pad_array

_PAD_MODES = ("constant", "reflect", "edge", "wrap")


@kernel("SampleOp", domain="com.microsoft")
def sample_op(x: np.ndarray) -> np.ndarray:
    """Y = X."""
    return x


@kernel("ExpandDims", domain="com.microsoft")
def expand_dims(x: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """Insert an axis of length 1."""
    if axis.size != 1 or axis.ndim > 1:
        raise errors.InvalidArgument(f"Input axis must be a single int32 scalar initializer; found shape {axis.shape}")
    position = int(axis.reshape(()))
    if not -x.ndim - 1 <= position <= x.ndim:
        raise errors.InvalidArgument(f"axis {position} is out of range [{-x.ndim - 1}, {x.ndim}]")
    return np.expand_dims(x, position)


@kernel("GatherND", domain="com.microsoft")
def gather_nd(data: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Slices of data at coordinates along the last axis of indices."""
    depth = indices.shape[-1]
    if depth > data.ndim:
        raise errors.InvalidArgument(f"last dimension of indices {depth} must not be larger than rank {data.ndim}")
    limits = np.array(data.shape[:depth])
    wrong = (indices < -limits) | (indices >= limits)
    if wrong.any():
        raise errors.InvalidArgument(f"invalid index found, index = {int(indices[wrong][0])}; data is {data.shape}")
    if depth == 0:
        return np.broadcast_to(data, (*indices.shape[:-1], *data.shape)).copy()
    return data[tuple(np.moveaxis(indices, -1, 0))]


@kernel("Range", domain="com.microsoft")
def arithmetic_range(start: np.ndarray, limit: np.ndarray, delta: np.ndarray | None = None) -> np.ndarray:
    """start, start + delta, ... up to but without limit."""
    first, last = start.reshape(()), limit.reshape(())
    step = start.dtype.type(1) if delta is None else delta.reshape(())
    if step == 0:
        raise errors.InvalidArgument("delta in Range operator can not be zero!")
    # Python integers and floats: a difference of two numbers of the type may not fit the type.
    span = (last.item() - first.item()) / step.item()
    if not math.isfinite(span) or span >= 2**63 / max(start.dtype.itemsize, 1):
        raise errors.InvalidArgument("Range: the computed number of elements exceeds the supported range.")
    count = max(math.ceil(span), 0)
    return (first + np.arange(count).astype(start.dtype) * step).astype(start.dtype)


@kernel("Pad", domain="com.microsoft")
def pad(
    data: np.ndarray,
    pads: np.ndarray,
    value: np.ndarray | None = None,
    *,
    mode: str = "constant",
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Pad or (with negative pads) crop each axis; as Pad of ai.onnx."""
    if mode not in _PAD_MODES:
        raise errors.InvalidArgument(f"Pad mode {mode!r}: expected one of {', '.join(_PAD_MODES)}")
    fill = None if value is None or value.size == 0 else value.reshape(-1)[0]
    return pad_array(data, pads.reshape(-1).tolist(), mode, fill, ctx)


@kernel("Trilu", domain="com.microsoft")
def trilu(x: np.ndarray, k: np.ndarray | None = None, *, upper: int = 1) -> np.ndarray:
    """Keep the upper or lower triangle of each matrix, from diagonal k."""
    diagonal = 0 if k is None else int(k.reshape(()))
    return np.triu(x, diagonal) if upper else np.tril(x, diagonal)


@kernel("Unique", domain="com.microsoft")
def unique(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct values in the order of their first occurrence, where each input went, and how often each occurs."""
    _, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return x[first[order]], rank[inverse.reshape(-1)].astype(np.int64), counts[order].astype(np.int64)


@kernel("UnfoldTensor", domain="com.microsoft")
def unfold_tensor(x: np.ndarray, *, size: int, dim: int = -1, step: int = 1) -> np.ndarray:
    """All slices of ``size`` along ``dim``, every ``step``, on a new last axis."""
    axis = dim % x.ndim
    if not 0 < size <= x.shape[axis] or step < 1:
        raise errors.InvalidArgument(f"size {size} and step {step} do not fit axis {axis} of shape {x.shape}")
    view = np.lib.stride_tricks.sliding_window_view(x, size, axis=axis)
    return view[(slice(None),) * axis + (slice(None, None, step),)]


@kernel("Inverse", domain="com.microsoft")
def inverse(x: np.ndarray) -> np.ndarray:
    """The inverse of each square matrix; a singular one gives NaN."""
    if x.ndim < 2:
        raise errors.InvalidArgument(f"Input rank must be >= 2; found {x.ndim}")
    if x.shape[-1] != x.shape[-2]:
        raise errors.InvalidArgument(f"the last two dimensions must be equal; found shape {x.shape}")
    wide = widen(x)
    singular = (np.linalg.det(wide.astype(np.float64)) == 0)[..., None, None]
    result = np.linalg.inv(np.where(singular, np.eye(x.shape[-1], dtype=wide.dtype), wide))
    return narrow(np.where(singular, np.nan, result), x.dtype)


@kernel("CDist", domain="com.microsoft")
def pairwise_distance(a: np.ndarray, b: np.ndarray, *, metric: str = "sqeuclidean") -> np.ndarray:
    """Distances between the rows of A and the rows of B, Euclidean or its square."""
    if metric not in ("euclidean", "sqeuclidean"):
        raise errors.InvalidArgument(f"metric {metric!r}: expected euclidean or sqeuclidean")
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise errors.InvalidArgument(f"A and B must be matrices of equal width; found {a.shape} and {b.shape}")
    left, right = a.astype(np.float64), b.astype(np.float64)
    squares = np.square(left).sum(1)[:, None] + np.square(right).sum(1) - 2 * (left @ right.T)
    squares = np.maximum(squares, 0)
    return (np.sqrt(squares) if metric == "euclidean" else squares).astype(a.dtype)


@kernel("DynamicTimeWarping", domain="com.microsoft")
def dynamic_time_warping(cost: np.ndarray) -> np.ndarray:
    """The path of least cost from the first to the last cell, by steps down, right or both; shape (2, length)."""
    table: np.ndarray = cost.reshape(cost.shape[-2:]).astype(np.float32)
    rows, columns = table.shape[0], table.shape[1]
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    total[0, 0] = 0
    moves = np.full((rows + 1, columns + 1), -1, np.int8)
    # Cells of one anti-diagonal do not depend on each other.
    for diagonal in range(2, rows + columns + 1):
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        both, down, right = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        move = np.where((both < down) & (both < right), 0, np.where((down < both) & (down < right), 1, 2))
        total[i, j] = table[i - 1, j - 1] + np.choose(move, [both, down, right])
        moves[i, j] = move
    moves[0, :], moves[:, 0] = 2, 1
    path, i, j = [], rows, columns
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        move = moves[i, j]
        i, j = i - (move != 2), j - (move != 1)
    return np.array(path[::-1], np.int32).reshape(-1, 2).T
