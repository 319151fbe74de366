"""Normalization: subtract a mean, divide by a deviation, scale and shift; the operators differ in the axes they pool.

    Y = (X - mean) / sqrt(var + epsilon) * scale + bias

Means and variances are those of the population, computed in two passes (the difference of large squares loses digits).
"""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.means import mean as mean_of
from ort_core.kernels.reference.arrays.widening import narrow, widen
from ort_core.kernels.reference.arrays.windows import slide
from ort_core.kernels.reference.images.pooling import fold

_BFLOAT16 = 16  # TensorProto.BFLOAT16, as in the attribute stash_type


def _over_channels(values: np.ndarray, rank: int) -> np.ndarray:
    """Shape one value per channel so that it broadcasts over [N, C, ...]."""
    return values.reshape(-1, *(1,) * (rank - 2))


def _moments(x: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and population variance over ``axes``, which stay with size 1."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = mean_of(x, axes)
        variance = mean_of(np.square(x - mean), axes)
    return mean, variance


def _standardize(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the standardized input, the mean and the inverse deviation over ``axes``."""
    if x.size == 0:
        shape = [1 if axis in {a % x.ndim for a in axes} else size for axis, size in enumerate(x.shape)]
        return x, np.zeros(shape, x.dtype), np.zeros(shape, x.dtype)
    mean = mean_of(x, axes)
    centered = x - mean
    inverse = 1 / np.sqrt(mean_of(np.square(centered), axes) + x.dtype.type(epsilon))
    centered *= inverse
    return centered, mean, inverse


def _batch_normalize(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray, mean: np.ndarray, variance: np.ndarray, epsilon: float
) -> np.ndarray:
    """Apply given statistics, folded into one multiplication and one addition."""
    wide, mean = widen(x), widen(mean)
    factor = widen(scale) / np.sqrt(widen(variance) + wide.dtype.type(epsilon))
    shift = widen(bias) - mean * factor
    if factor.ndim == 1:
        factor, shift = _over_channels(factor, max(x.ndim, 2)), _over_channels(shift, max(x.ndim, 2))
    return narrow(wide * factor + shift, x.dtype)


def _check_channels(x: np.ndarray, scale: np.ndarray, *others: np.ndarray, spatial: bool = True) -> None:
    channels = x.shape[1] if x.ndim > 1 else 1
    expected = (channels,) if spatial else x.shape[1:]
    for name, values in zip(("scale", "B", "mean", "var"), (scale, *others), strict=False):
        if values.shape != expected:
            raise InvalidArgument(
                f"Invalid input {name}: it has shape {values.shape}, expected {expected} for X {x.shape}"
            )


def _train(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray, epsilon: float, spatial: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the normalized batch with its own mean and variance (in full width)."""
    axes = (0, *range(2, x.ndim)) if spatial else (0,)
    wide = widen(x)
    mean, variance = _moments(wide, axes)
    factor, shift = (widen(each) for each in (scale, bias))
    if factor.ndim == 1:
        factor, shift = (_over_channels(each, max(x.ndim, 2)) for each in (factor, shift))
    # The mean is taken off first: it may be all that an element is, which a folded shift would lose.
    y = narrow((wide - mean) * (factor / np.sqrt(variance + wide.dtype.type(epsilon))) + shift, x.dtype)
    return y, np.squeeze(mean, axis=axes), np.squeeze(variance, axis=axes)


def _blend(running: np.ndarray, current: np.ndarray, momentum: float) -> np.ndarray:
    return narrow(widen(running) * np.float32(momentum) + current * np.float32(1 - momentum), running.dtype)


@kernel("BatchNormalization", since=14)
def batch_normalization(
    x: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray,
    input_mean: np.ndarray,
    input_var: np.ndarray,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Normalize each channel with the given statistics or, in training, with those of the batch."""
    _check_channels(x, scale, bias, input_mean, input_var)
    if not training_mode:
        return _batch_normalize(x, scale, bias, input_mean, input_var, epsilon), None, None
    y, mean, variance = _train(x, scale, bias, epsilon, spatial=True)
    return y, _blend(input_mean, mean, momentum), _blend(input_var, variance, momentum)


@kernel("BatchNormalization", since=7, until=13)
def batch_normalization_7(
    x: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray,
    mean: np.ndarray,
    var: np.ndarray,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    ctx: KernelContext | None = None,
) -> tuple[np.ndarray | None, ...]:
    """Normalize; naming more than the first output asks for training."""
    training = ctx is not None and any(ctx.output_present[1:])
    return _legacy(x, scale, bias, mean, var, epsilon, momentum, spatial=bool(spatial), training=training)


@kernel("BatchNormalization", since=1, until=6)
def batch_normalization_1(
    x: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray,
    mean: np.ndarray,
    var: np.ndarray,
    *,
    consumed_inputs: tuple[int, ...] = (),
    epsilon: float = 1e-5,
    is_test: int = 0,
    momentum: float = 0.9,
    spatial: int = 1,
) -> tuple[np.ndarray | None, ...]:
    """Normalize; trains unless ``is_test``. ``consumed_inputs`` was a hint for memory and means nothing here."""
    return _legacy(x, scale, bias, mean, var, epsilon, momentum, spatial=bool(spatial), training=not is_test)


def _legacy(
    x: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray,
    mean: np.ndarray,
    var: np.ndarray,
    epsilon: float,
    momentum: float,
    *,
    spatial: bool,
    training: bool,
) -> tuple[np.ndarray | None, ...]:
    """Compute the five outputs of the versions before 14."""
    _check_channels(x, scale, bias, mean, var, spatial=spatial)
    if not training:
        return _batch_normalize(x, scale, bias, mean, var, epsilon), None, None, None, None
    y, batch_mean, batch_var = _train(x, scale, bias, epsilon, spatial)
    saved = narrow(batch_mean, x.dtype), narrow(batch_var, x.dtype)
    return y, _blend(mean, batch_mean, momentum), _blend(var, batch_var, momentum), *saved


@kernel("InstanceNormalization")
def instance_normalization(
    x: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray,
    *,
    consumed_inputs: tuple[int, ...] = (),
    epsilon: float = 1e-5,
) -> np.ndarray:
    """Standardize each channel of each instance. ``consumed_inputs`` (version 1) was a hint for memory."""
    if x.ndim < 3:
        raise InvalidArgument(f"Invalid input data: number of dimensions is less than 3: {x.ndim}")
    _check_channels(x, scale, bias)
    y, _, _ = _standardize(widen(x), tuple(range(2, x.ndim)), epsilon)
    return narrow(y * _over_channels(widen(scale), x.ndim) + _over_channels(widen(bias), x.ndim), x.dtype)


def _last_axes(x: np.ndarray, axis: int) -> tuple[int, ...]:
    if not -x.ndim <= axis < max(x.ndim, 1):
        raise InvalidArgument(f"axis {axis} is not in valid range [-{x.ndim},{x.ndim - 1}]")
    return tuple(range(axis % x.ndim if x.ndim else 0, x.ndim))


def _stashed(statistic: np.ndarray, stash_type: int) -> np.ndarray:
    """Return a statistic in the type that ``stash_type`` names: bfloat16, or float."""
    if stash_type != _BFLOAT16:
        return narrow(statistic, np.dtype(np.float32))
    import ml_dtypes  # imported late: few models stash bfloat16

    return narrow(statistic, np.dtype(ml_dtypes.bfloat16))


@kernel("LayerNormalization", since=1)
def layer_normalization(
    x: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standardize over the axes from ``axis`` on; also return the mean and the inverse deviation.

    Standard since 17; models saved by onnxruntime import it at any older version too.
    """
    axes = _last_axes(x, axis)
    _check_broadcast(x, scale, bias, axes)
    y, mean, inverse = _standardize(widen(x), axes, epsilon)
    y = y * widen(scale)
    if bias is not None:
        y += widen(bias)
    return narrow(y, x.dtype), _stashed(mean, stash_type), _stashed(inverse, stash_type)


def _check_broadcast(x: np.ndarray, scale: np.ndarray, bias: np.ndarray | None, axes: tuple[int, ...]) -> None:
    for name, values in (("scale", scale), ("bias", bias)):
        if values is None:
            continue
        fits = values.ndim <= x.ndim and all(
            size in (1, against) for size, against in zip(values.shape[::-1], x.shape[::-1], strict=False)
        )
        if not fits:
            normalized = tuple(x.shape[axis] for axis in axes)
            raise InvalidArgument(
                f"Size of X.shape()[axis:] is {normalized}; the size of {name} must match it, found {values.shape}"
            )


@kernel("RMSNormalization", since=23)
def rms_normalization(
    x: np.ndarray, scale: np.ndarray, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> np.ndarray:
    """Divide by the root mean square over the axes from ``axis`` on; the result has the type of ``scale``."""
    y, _ = _rms(x, scale, axis, epsilon)
    return narrow(y, scale.dtype)


@kernel("SimplifiedLayerNormalization")
def simplified_layer_normalization(
    x: np.ndarray, scale: np.ndarray, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Divide by the root mean square, as onnxruntime's operator of this name; also return its inverse."""
    y, inverse = _rms(x, scale, axis, epsilon)
    return narrow(y, scale.dtype), _stashed(inverse, stash_type)


def _rms(x: np.ndarray, scale: np.ndarray, axis: int, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    axes = _last_axes(x, axis)
    _check_broadcast(x, scale, None, axes)
    wide = widen(x)
    with np.errstate(invalid="ignore", divide="ignore"):
        inverse = 1 / np.sqrt(mean_of(np.square(wide), axes) + wide.dtype.type(epsilon))
    return wide * inverse * widen(scale), np.asarray(inverse)


@kernel("GroupNormalization", since=21)
def group_normalization(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray, *, epsilon: float = 1e-5, num_groups: int, stash_type: int = 1
) -> np.ndarray:
    """Standardize each group of channels, then scale and shift each channel, or all by one number."""
    scale, bias = (_spread("GroupNormalization", n, v, x.shape[1]) for n, v in (("scale", scale), ("bias", bias)))
    y = _standardize_groups(x, num_groups, epsilon).reshape(x.shape)
    return narrow(y * _over_channels(widen(scale), x.ndim) + _over_channels(widen(bias), x.ndim), x.dtype)


@kernel("GroupNormalization", since=18, until=20)
def group_normalization_18(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray, *, epsilon: float = 1e-5, num_groups: int
) -> np.ndarray:
    """Standardize each group of channels, then scale and shift each group."""
    scale, bias = (_spread("GroupNormalization", n, v, num_groups) for n, v in (("scale", scale), ("bias", bias)))
    y = _standardize_groups(x, num_groups, epsilon) * widen(scale)[:, None] + widen(bias)[:, None]
    return narrow(y.reshape(x.shape), x.dtype)


def _spread(op_type: str, name: str, values: np.ndarray, count: int) -> np.ndarray:
    """Return as many values as ``count``: as many in any shape, or one for all."""
    if values.size not in (1, count):
        raise InvalidArgument(f"{op_type}: {name} has shape {values.shape}, expected ({count},)")
    return np.broadcast_to(values.reshape(-1), (count,))


def _standardize_groups(x: np.ndarray, num_groups: int, epsilon: float) -> np.ndarray:
    if num_groups <= 0 or x.shape[1] % num_groups:
        raise InvalidArgument(f"GroupNormalization: {x.shape[1]} channels do not divide into num_groups {num_groups}")
    per_group = int(np.prod(x.shape[1:], dtype=np.int64)) // num_groups
    return _standardize(widen(x).reshape(x.shape[0], num_groups, per_group), (2,), epsilon)[0]


@kernel("LpNormalization")
def lp_normalization(x: np.ndarray, *, axis: int = -1, p: int = 2) -> np.ndarray:
    """Divide by the p-norm along ``axis``; a vector of norm zero becomes zero."""
    if p not in (1, 2):
        raise InvalidArgument(f"LpNormalization: p is {p}, expected 1 or 2")
    wide = widen(x)
    if p == 1:
        norm = np.abs(wide).sum(axis=axis, keepdims=True)
    else:
        norm = np.sqrt(np.square(wide).sum(axis=axis, keepdims=True))
    return narrow(np.where(norm == 0, 0, wide / np.where(norm == 0, 1, norm)).astype(wide.dtype, copy=False), x.dtype)


@kernel("LRN")
def lrn(x: np.ndarray, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int) -> np.ndarray:
    """Divide by ``(bias + alpha / size * sum of squares over neighboring channels) ** beta``."""
    wide = widen(x)
    number = wide.dtype.type
    squares = np.square(wide).reshape(x.shape[0], 1, x.shape[1], -1 if x.size else 0)
    before, behind = (min(count, x.shape[1]) for count in ((size - 1) // 2, size // 2))  # more channels there are not
    windows = slide((x.shape[1],), (before + 1 + behind,), pads=(before, behind))
    total = fold(squares, windows, np.add, 0).reshape(x.shape)
    return narrow(wide / (number(bias) + number(alpha / size) * total) ** number(beta), x.dtype)


@kernel("MeanVarianceNormalization", until=8)
@np.errstate(all="ignore")  # what is not finite
def mean_variance_normalization_over_channels(
    x: np.ndarray, *, across_channels: int = 0, normalize_variance: int = 1
) -> np.ndarray:
    """Subtract the mean of each channel over the batch and its rows and columns, or over the channels, too.

    As onnxruntime computes it, whatever the rank; ``normalize_variance`` then divides by the deviation.
    """
    if x.ndim < 3:
        raise InvalidArgument(f"MeanVarianceNormalization: input must have at least 3 dimensions, got {x.ndim}")
    axes = tuple(axis for axis in range(min(x.ndim, 4)) if axis != 1 or across_channels)
    wide = widen(x)
    if normalize_variance or not x.size:
        return mean_variance_normalization(x, axes=axes)
    return narrow(wide - mean_of(wide, axes), x.dtype)


@kernel("MeanVarianceNormalization", since=9)
@np.errstate(all="ignore")  # what is not finite
def mean_variance_normalization(x: np.ndarray, *, axes: tuple[int, ...] = (0, 2, 3)) -> np.ndarray:
    """Subtract the mean over ``axes`` and divide by the deviation, kept from zero by 1e-9."""
    wide = widen(x)
    if not x.size:
        return x
    centered = wide - mean_of(wide, tuple(axes))
    deviation = np.sqrt(mean_of(np.square(centered), tuple(axes)))
    return narrow(centered / (deviation + wide.dtype.type(1e-9)), x.dtype)
