"""Feature preparation of ai.onnx.ml: scale, fill in, threshold, pick, join, normalize, one-hot."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.axes import check_size, shape_text


@kernel("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(data: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Z = X at ``positions`` of its last dimension; a vector gives one row."""
    if data.ndim == 0:
        raise InvalidArgument("Invalid argument: X input has empty dimensions.")
    index = positions.reshape(-1)
    if index.size == 0:
        raise InvalidArgument("Invalid Y argument: num_indices = 0")
    length = data.shape[-1]
    outside = (index < 0) | (index >= length)
    if outside.any():
        at = int(outside.argmax())
        raise InvalidArgument(
            f"Invalid Y argument: index is out of range: Y[{at}] ({index[at]}) must be in [0,{length})"
        )
    picked = data[..., index]
    return picked.reshape((1, -1)) if data.ndim == 1 else picked


@kernel("Binarizer", domain="ai.onnx.ml")
def binarizer(data: np.ndarray, *, threshold: float = 0.0) -> np.ndarray:
    """Y = 1 where X > threshold, else 0."""
    return (data > np.float32(threshold)).astype(data.dtype)


@kernel("FeatureVectorizer", domain="ai.onnx.ml")
def feature_vectorizer(
    *inputs: np.ndarray, inputdimensions: tuple[int, ...] | None = None, ctx: KernelContext | None = None
) -> np.ndarray:
    """Y = the inputs side by side, each cut or filled up with zeros to its entry of ``inputdimensions``."""
    matrices = [_rows_of_features(value) for value in inputs]
    widths = [matrix.shape[1] for matrix in matrices] if inputdimensions is None else list(inputdimensions)
    if (
        not matrices
        or min(widths, default=0) < 0
        or len(widths) != len(matrices)
        or len({len(matrix) for matrix in matrices}) > 1
    ):
        raise InvalidArgument(
            f"FeatureVectorizer: {len(matrices)} inputs of shapes "
            f"{', '.join(shape_text(value.shape) for value in inputs)} do not fit inputdimensions {widths}"
        )
    check_size((len(matrices[0]), sum(widths)), np.dtype(np.float32), "FeatureVectorizer", ctx)
    out = np.zeros((len(matrices[0]), sum(widths)), np.float32)
    start = 0
    for matrix, width in zip(matrices, widths, strict=True):
        used = min(width, matrix.shape[1])
        out[:, start : start + used] = matrix[:, :used]
        start += width
    return out


def _rows_of_features(value: np.ndarray) -> np.ndarray:
    if value.ndim == 0:
        return value.reshape((1, 1))
    return value.reshape((1, -1)) if value.ndim == 1 else value.reshape((len(value), math.prod(value.shape[1:])))


@kernel("Imputer", domain="ai.onnx.ml")
def imputer(
    data: np.ndarray,
    *,
    imputed_value_floats: tuple[float, ...] | None = None,
    imputed_value_int64s: tuple[int, ...] | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> np.ndarray:
    """Y = X with every value equal to the replaced one (NaN matches NaN) set to the imputed value of its column."""
    is_float = data.dtype.kind == "f"
    values = imputed_value_floats if is_float else imputed_value_int64s
    replaced = np.float32(replaced_value_float) if is_float else replaced_value_int64
    if not values:
        attribute = "imputed_value_floats" if is_float else "imputed_value_int64s"
        raise InvalidArgument(f"Imputer: an input of type {data.dtype} needs the attribute {attribute}")
    columns = data.shape[-1] if data.ndim else 1
    if len(values) != columns:
        values = values[:1]  # one value for all columns; onnxruntime takes any other number for that, too
    missing = np.isnan(data) if is_float and np.isnan(replaced) else data == replaced
    return np.where(missing, np.array(values, np.float32 if is_float else np.int64).astype(data.dtype), data)


@kernel("Scaler", domain="ai.onnx.ml")
def scaler(data: np.ndarray, *, offset: tuple[float, ...] = (), scale: tuple[float, ...] = ()) -> np.ndarray:
    """Y = (X - offset) * scale, both per column or one for all."""
    wide = data.astype(np.float64)
    return ((wide - _per_column(offset, data, "offset", 0.0)) * _per_column(scale, data, "scale", 1.0)).astype(
        np.float32
    )


def _per_column(values: Sequence[float], data: np.ndarray, name: str, default: float) -> np.ndarray:
    columns = data.shape[-1] if data.ndim else 1
    if len(values) not in (0, 1, columns):
        raise InvalidArgument(f"Scaler: {name} has {len(values)} values for {columns} columns; expected 1 or {columns}")
    return np.asarray(values or (default,), np.float32).astype(np.float64)


@kernel("Normalizer", domain="ai.onnx.ml")
def normalizer(data: np.ndarray, *, norm: str = "MAX") -> np.ndarray:
    """Y = X / norm of its row: the largest value (MAX), the sum of magnitudes (L1) or the length (L2); 0 stays."""
    if data.ndim == 0:
        raise InvalidArgument("Normalizer: the input must have at least one dimension, got a scalar")
    axis = 0 if data.ndim == 1 else 1
    wide = data.astype(np.float64)
    if norm == "MAX":
        divisor = wide.max(axis=axis, keepdims=True, initial=-np.inf)
    elif norm == "L1":
        divisor = np.abs(wide).sum(axis=axis, keepdims=True)
    elif norm == "L2":
        divisor = np.sqrt(np.square(wide).sum(axis=axis, keepdims=True))
    else:
        raise InvalidArgument(f"Normalizer: unknown norm {norm!r}; known: MAX, L1, L2")
    with np.errstate(invalid="ignore"):  # infinite / infinite is NaN, in C++ too
        return (wide / np.where(divisor == 0, 1.0, divisor)).astype(np.float32)


@kernel("OneHotEncoder", domain="ai.onnx.ml")
def one_hot_encoder(
    data: np.ndarray,
    *,
    cats_int64s: tuple[int, ...] | None = None,
    cats_strings: tuple[str, ...] | None = None,
    zeros: int = 1,
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Y[..., c] = 1 where X is category c; a value of no category is all zeros, or an error without ``zeros``."""
    categories: Sequence[object] = (cats_strings if data.dtype.kind == "O" else cats_int64s) or ()
    with np.errstate(invalid="ignore"):  # NaN becomes a number that no category has
        values = data if data.dtype.kind == "O" else data.astype(np.int64)
    check_size((*data.shape, len(categories)), np.dtype(np.float32), "OneHotEncoder", ctx)
    place = {category: index for index, category in enumerate(categories)}  # of equal ones the last counts
    distinct, inverse = np.unique(values.reshape(-1), return_inverse=True)
    column = np.array([place.get(value, -1) for value in distinct.tolist()], np.int64)[inverse]
    if not zeros and (column < 0).any():
        unknown = values.reshape(-1)[column < 0][0]
        raise InvalidArgument(
            f"Unknown Category and zeros = 0: {unknown!r} is none of the {len(categories)} categories"
        )
    out = (column[:, None] == np.arange(len(categories))).astype(np.float32)
    return out.reshape((*data.shape, len(categories)))
