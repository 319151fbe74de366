"""Pooling: one ufunc folds every window, axis after axis, because maximum and sum do not mind the order.

    MaxPool: max of X over the window    AveragePool: sum / count    LpPool: (sum |X| ** p) ** (1 / p)

Padding never takes part in a maximum; in an average it counts only with ``count_include_pad``.
"""

from __future__ import annotations

import functools

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.axes import check_size
from ort_core.kernels.reference.arrays.widening import narrow, widen
from ort_core.kernels.reference.arrays.windows import Windows, slide
from ort_core.ops.windows import known_sizes, transposed_axes


@kernel("MaxPool")
def max_pool(
    x: np.ndarray,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: tuple[int, ...] = (),
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] = (),
    storage_order: int = 0,
    strides: tuple[int, ...] = (),
    ctx: KernelContext | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the maximum of each window and, when it is asked for, where in the flattened input it stands."""
    if storage_order not in (0, 1):
        raise InvalidArgument(f"storage_order must be 0 (row major) or 1 (column major), found {storage_order}")
    windows = pool_windows(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode, ctx)
    if ctx is not None and len(ctx.output_present) > 1 and ctx.output_present[1]:
        return _max_with_indices(x, windows, storage_order)
    return fold(x, windows, np.maximum, lowest(x.dtype)), None


def lowest(dtype: np.dtype) -> float | int:
    """Return what a window wholly in padding gives: the lowest number, as in onnxruntime."""
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min)
    return float(np.finfo(dtype).min) if dtype.kind == "f" else _lowest_of_narrow(dtype)


def _lowest_of_narrow(dtype: np.dtype) -> float:
    import ml_dtypes  # imported late: only models with bfloat16 and narrower floats need it

    return float(ml_dtypes.finfo(dtype).min)


def pool_windows(
    x: np.ndarray,
    kernel_shape: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...],
    auto_pad: str,
    ceil_mode: int,
    ctx: KernelContext | None = None,
) -> Windows:
    """Return the windows of a pooling node over ``x``.

    Raises:
        InvalidArgument: the input has no spatial axis, or an attribute does not fit it.
    """
    if x.ndim < 3:
        raise InvalidArgument(
            f"Input dimension cannot be less than 3; pooling got shape {x.shape}, expected [N, C, ...]"
        )
    windows = slide(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    axes = zip(windows.kernel, windows.dilations, windows.pads_begin, windows.pads_end, strict=True)
    if any(max(before, after) > (k - 1) * d for k, d, before, after in axes):
        raise InvalidArgument(
            f"pads {tuple(pads)} must be smaller than the (dilated) kernel {windows.kernel}: "
            "a window would read nothing but padding"
        )
    check_size((*x.shape[:2], *windows.counts), x.dtype, "pooling", ctx)
    return windows


def fold(data: np.ndarray, windows: Windows, combine: np.ufunc, initial: float | int) -> np.ndarray:
    """Combine the elements of every window that lie inside the input."""
    for axis in range(len(windows.kernel)):
        lead = (slice(None),) * (axis + 2)
        shape = (*data.shape[: axis + 2], windows.counts[axis], *data.shape[axis + 3 :])
        out = np.full(shape, initial, data.dtype)
        for _, window, position in windows.along(axis):
            target = out[(*lead, window)]
            combine(target, data[(*lead, position)], out=target)
        data = out
    return data


def _max_with_indices(x: np.ndarray, windows: Windows, storage_order: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the maxima and the flat position of the first element that attains each."""
    best = np.full((*x.shape[:2], *windows.counts), lowest(x.dtype), x.dtype)
    size = int(np.prod(windows.spatial))
    numbers = np.arange(size, dtype=np.int64)
    places = numbers.reshape(windows.spatial[::-1]).T if storage_order else numbers.reshape(windows.spatial)
    indices = np.full(best.shape, -1, np.int64)
    for _, window, position in windows.offsets():
        values = x[(slice(None), slice(None), *position)]
        region = (slice(None), slice(None), *window)
        better = (values > best[region]) | (indices[region] < 0)
        if x.dtype.kind not in "iu":
            better |= np.isnan(values) & ~np.isnan(best[region])
        best[region] = np.where(better, values, best[region])
        indices[region] = np.where(better, places[position], indices[region])
    planes = np.arange(x.shape[0] * x.shape[1], dtype=np.int64).reshape(*x.shape[:2], *(1,) * len(windows.counts))
    return best, indices + planes * size


@kernel("AveragePool")
def average_pool(
    x: np.ndarray,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: tuple[int, ...] = (),
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] = (),
    strides: tuple[int, ...] = (),
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Average each window; with ``count_include_pad`` elements count as far as the padding goes."""
    windows = pool_windows(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode, ctx)
    total = fold(widen(x), windows, np.add, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        total /= _inside(windows, count_include_pad).astype(total.dtype)
    return narrow(total, x.dtype)


def _inside(windows: Windows, include_pad: int) -> np.ndarray:
    """Return how many elements each window has inside the input (and its padding)."""
    per_axis_counts = []
    for axis, count in enumerate(windows.counts):
        starts = np.arange(count) * windows.strides[axis] - windows.pads_begin[axis]
        reads = starts[:, None] + np.arange(windows.kernel[axis]) * windows.dilations[axis]
        first = -windows.pads_begin[axis] if include_pad else 0
        end = windows.spatial[axis] + (windows.pads_end[axis] if include_pad else 0)
        per_axis_counts.append(((reads >= first) & (reads < end)).sum(axis=1))
    return functools.reduce(np.multiply.outer, per_axis_counts)


@kernel("LpPool")
def lp_pool(
    x: np.ndarray,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: tuple[int, ...] = (),
    kernel_shape: tuple[int, ...] = (),
    p: float = 2,
    pads: tuple[int, ...] = (),
    strides: tuple[int, ...] = (),
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Return the p-norm of each window."""
    if not kernel_shape:
        raise InvalidArgument("kernel_shape is not set; LpPool needs one size per spatial axis")
    windows = pool_windows(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode, ctx)
    return narrow(_root(fold(_power(widen(x), p), windows, np.add, 0), p), x.dtype)


def _power(values: np.ndarray, p: float) -> np.ndarray:
    """Return ``|values| ** p``."""
    if p == 1:
        return np.abs(values)
    return np.square(values) if p == 2 else np.abs(values) ** values.dtype.type(p)


def _root(values: np.ndarray, p: float) -> np.ndarray:
    """Return ``values ** (1 / p)``."""
    if p == 1:
        return values
    return np.sqrt(values) if p == 2 else values ** values.dtype.type(1 / p)


def _spatial_axes(x: np.ndarray) -> tuple[int, ...]:
    if x.ndim < 2:
        raise InvalidArgument(f"global pooling got shape {x.shape}, expected [N, C, ...]")
    return tuple(range(2, x.ndim))


@kernel("GlobalAveragePool")
def global_average_pool(x: np.ndarray) -> np.ndarray:
    """Average over all spatial axes."""
    return narrow(np.asarray(widen(x).mean(axis=_spatial_axes(x), keepdims=True)), x.dtype)


@kernel("GlobalMaxPool")
def global_max_pool(x: np.ndarray) -> np.ndarray:
    """Return the maximum over all spatial axes."""
    start = lowest(x.dtype) if x.dtype.kind in "iu" else -np.inf
    return np.asarray(x.max(axis=_spatial_axes(x), keepdims=True, initial=start)).astype(x.dtype, copy=False)


@kernel("GlobalLpPool")
def global_lp_pool(x: np.ndarray, *, p: float = 2) -> np.ndarray:
    """Return the p-norm over all spatial axes."""
    total = _power(widen(x), p).sum(axis=_spatial_axes(x), keepdims=True)
    return narrow(_root(total, p), x.dtype)


@kernel("MaxUnpool", since=9)
def max_unpool(
    x: np.ndarray,
    indices: np.ndarray,
    output_shape: np.ndarray | None = None,
    *,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] = (),
    strides: tuple[int, ...] = (),
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Put each value back where ``MaxPool`` found it, zeros elsewhere."""
    if x.ndim < 3:
        raise InvalidArgument(f"Input dimension cannot be less than 3; MaxUnpool got shape {x.shape}")
    if indices.shape != x.shape:
        raise InvalidArgument(
            f"Index tensor shape should be same as that of the input data tensor to unpool: "
            f"{indices.shape} and {x.shape}"
        )
    axes = transposed_axes(x.shape[2:], kernel_shape, strides, pads=pads)
    spatial = known_sizes(axis.result for axis in axes)
    if min(spatial) <= 0:
        raise InvalidArgument(f"Computed output dimension is not positive: {spatial}")
    natural = (*x.shape[:2], *spatial)
    shape = natural if output_shape is None else tuple(int(d) for d in output_shape)
    if len(shape) != x.ndim or any(given < need for given, need in zip(shape, natural, strict=False)):
        raise InvalidArgument(
            f"output_shape is smaller than minimum required. output_shape: {shape} inferred: {natural}"
        )
    if shape[:2] != natural[:2]:
        raise InvalidArgument(
            f"output_shape batch and channel dimensions must match input: expected {natural[:2]}, got {shape[:2]}"
        )
    check_size(shape, x.dtype, "MaxUnpool", ctx)
    windows = Windows(
        spatial,
        kernel_shape,
        tuple(axis.stride for axis in axes),
        tuple(axis.dilation for axis in axes),
        known_sizes(axis.before for axis in axes),
        known_sizes(axis.after for axis in axes),
        x.shape[2:],
    )
    return _place(x, indices, shape, natural, windows)


def _place(
    x: np.ndarray, indices: np.ndarray, shape: tuple[int, ...], natural: tuple[int, ...], windows: Windows
) -> np.ndarray:
    """Write values at flat indices into an output of ``shape``.

    Indices count the elements of the tensor that was pooled. That is the output; but some writers number them in the
    smallest output that fits, so that is what they mean where they point into their windows there and not here.
    """
    if shape != natural and _in_windows(indices, natural, windows) and not _in_windows(indices, shape, windows):
        corner = np.zeros(shape, x.dtype)
        corner[tuple(slice(d) for d in natural)] = _place(x, indices, natural, natural, windows)
        return corner
    out = np.zeros(shape, x.dtype)
    flat = out.reshape(-1)
    if indices.size and (indices.min() < 0 or indices.max() >= flat.size):
        raise InvalidArgument(
            f"Index value out of bounds: {int(indices.min())}..{int(indices.max())} for an output of "
            f"{flat.size} elements"
        )
    flat[indices.reshape(-1)] = x.reshape(-1)
    return out


def _in_windows(indices: np.ndarray, shape: tuple[int, ...], windows: Windows) -> bool:
    """Return whether every flat index into ``shape`` points into the pooling window of its own value."""
    if indices.size and (indices.min() < 0 or indices.max() >= np.prod(shape)):
        return False
    places = np.unravel_index(indices, shape)[2:]
    for axis, place in enumerate(places):
        lead = np.arange(windows.counts[axis]) * windows.strides[axis] - windows.pads_begin[axis]
        start = lead.reshape(-1, *(1,) * (len(places) - 1 - axis))
        if not ((place >= start) & (place < start + windows.kernel[axis])).all():
            return False
    return True
