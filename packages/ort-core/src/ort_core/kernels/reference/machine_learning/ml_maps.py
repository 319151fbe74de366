"""Operators of ai.onnx.ml between values: label encoders, and those on maps (Python dicts)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.ir.types import TensorType
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.axes import check_size, filled, string_array

MapKey = int | str
MapValue = int | float | str


@kernel("LabelEncoder", domain="ai.onnx.ml", since=1, until=1)
def label_encoder_1(
    data: np.ndarray,
    *,
    classes_strings: tuple[str, ...] = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> np.ndarray:
    """Y = the position of each string in ``classes_strings``, or the string at each position."""
    if data.dtype.kind == "O":
        # Of equal classes the last counts.
        last = np.arange(len(classes_strings))[::-1]
        return look_up(data, classes_strings[::-1], last, np.array(default_int64, np.int64))
    inside = (data >= 0) & (data < len(classes_strings))
    labels = string_array([*classes_strings, default_string])
    return np.asarray(labels[np.where(inside, data, len(classes_strings))], object)


@kernel("LabelEncoder", domain="ai.onnx.ml", since=2)
def label_encoder(
    data: np.ndarray,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: np.ndarray | None = None,
    keys_floats: tuple[float, ...] | None = None,
    keys_int64s: tuple[int, ...] | None = None,
    keys_strings: tuple[str, ...] | None = None,
    keys_tensor: np.ndarray | None = None,
    values_floats: tuple[float, ...] | None = None,
    values_int64s: tuple[int, ...] | None = None,
    values_strings: tuple[str, ...] | None = None,
    values_tensor: np.ndarray | None = None,
) -> np.ndarray:
    """Y = the value of the key that X equals (NaN equals NaN), else the default."""
    are_lists = keys_tensor is None and values_tensor is None and default_tensor is None
    if are_lists and data.dtype == np.int64 and values_strings and keys_int64s == tuple(range(len(values_strings))):
        return label_encoder_1(data, classes_strings=values_strings, default_string=default_string)
    keys = _encoder_list(keys_tensor, keys_floats, keys_int64s, keys_strings, "keys")
    values = _encoder_list(values_tensor, values_floats, values_int64s, values_strings, "values")
    if len(keys) != len(values):
        raise InvalidArgument(f"LabelEncoder: {len(keys)} keys for {len(values)} values; expected as many")
    if default_tensor is not None and default_tensor.size == 0:
        raise InvalidArgument("LabelEncoder: default_tensor must hold one value, it is empty")
    if default_tensor is not None:
        default = default_tensor.reshape(-1)[:1].reshape(())
    else:
        plain = {"O": default_string, "f": default_float}.get(values.dtype.kind, default_int64)
        default = filled((), plain, values.dtype)
    return look_up(data, keys, values, default)


def _encoder_list(
    tensor: np.ndarray | None,
    floats: Sequence[float] | None,
    integers: Sequence[int] | None,
    strings: Sequence[str] | None,
    name: str,
) -> np.ndarray:
    if tensor is not None:
        return tensor.reshape(-1)
    if strings is not None:
        return string_array(list(strings))
    if integers is not None:
        return np.array(integers, np.int64)
    if floats is not None:
        return np.array(floats, np.float32)
    raise InvalidArgument(f"LabelEncoder: one of {name}_tensor, {name}_strings, {name}_int64s, {name}_floats is needed")


def look_up(
    data: np.ndarray, keys: Sequence[object] | np.ndarray, values: np.ndarray, default: np.ndarray
) -> np.ndarray:
    """Return for each element the value of the first key that equals it, else ``default``.

    Each distinct element is looked up once: the Python work is one dictionary access per distinct value.
    """
    listed = keys.tolist() if isinstance(keys, np.ndarray) else list(keys)
    place = {_same_nan(key): index for index, key in reversed(list(enumerate(listed)))}
    distinct, inverse = np.unique(data.reshape(-1), return_inverse=True)
    found = np.array([place.get(_same_nan(key), len(listed)) for key in distinct.tolist()], np.int64)
    table = np.empty(len(listed) + 1, default.dtype)
    table[:-1] = values
    table[-1] = default[()]
    return table[found[inverse]].reshape(data.shape)


def _same_nan(key: object) -> object:
    return "NaN" if isinstance(key, float) and math.isnan(key) else key


@kernel("CategoryMapper", domain="ai.onnx.ml")
def category_mapper(
    data: np.ndarray,
    *,
    cats_int64s: tuple[int, ...] = (),
    cats_strings: tuple[str, ...] = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> np.ndarray:
    """Y = the integer of each string's category, or the string of each integer's."""
    if len(cats_int64s) != len(cats_strings):
        raise InvalidArgument(
            f"CategoryMapper: cats_int64s has {len(cats_int64s)} entries, cats_strings {len(cats_strings)}"
        )
    # Of equal categories the last counts.
    numbers, words = cats_int64s[::-1], cats_strings[::-1]
    if data.dtype.kind == "O":
        return look_up(data, words, np.array(numbers, np.int64), np.array(default_int64, np.int64))
    return look_up(data, numbers, string_array(list(words)), filled((), default_string, np.dtype(object)))


def _float_of(value: MapValue) -> MapValue:
    return float(value)


def _int_of(value: MapValue) -> MapValue:
    return int(value)


def _text_of(value: MapValue) -> MapValue:
    return value if isinstance(value, str) else f"{value:f}"


CASTS: dict[str, tuple[Callable[[MapValue], MapValue], np.dtype, MapValue]] = {
    "TO_FLOAT": (_float_of, np.dtype(np.float32), 0.0),
    "TO_INT64": (_int_of, np.dtype(np.int64), 0),
    "TO_STRING": (_text_of, np.dtype(object), "0.f"),
}


@kernel("CastMap", domain="ai.onnx.ml")
def cast_map(
    data: Mapping[int, MapValue],
    *,
    cast_to: str = "TO_FLOAT",
    map_form: str = "DENSE",
    max_map: int = 1,
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Y = the map's values as one row: in the order of the keys (DENSE), or at its key of ``max_map`` (SPARSE)."""
    if cast_to not in CASTS:
        raise InvalidArgument(f"CastMap: unknown cast_to {cast_to!r}; known: {', '.join(CASTS)}")
    if map_form not in ("DENSE", "SPARSE"):
        raise InvalidArgument(f"CastMap: unknown map_form {map_form!r}; known: DENSE, SPARSE")
    cast, dtype, nothing = CASTS[cast_to]
    keys = sorted(data)
    if keys and keys[0] < 0:
        raise InvalidArgument(
            f"CastMap: negative index values are not permitted. First entry in map has index {keys[0]}"
        )
    if map_form == "SPARSE" and max_map <= 0:
        raise InvalidArgument(f"CastMap: max_map must be > 0 if map_form is SPARSE, got {max_map}")
    values = [_cast(cast, data[key], cast_to) for key in keys]
    if map_form == "DENSE":
        out = filled((1, len(keys)), nothing, dtype)
        out[0, :] = values
        return out
    check_size((1, max_map), dtype, "CastMap", ctx)
    out = filled((1, max_map), nothing, dtype)
    kept = [(key, value) for key, value in zip(keys, values, strict=True) if key < max_map]
    if kept:
        out[0, [key for key, _ in kept]] = [value for _, value in kept]
    return out


def _cast(cast: Callable[[MapValue], MapValue], value: MapValue, cast_to: str) -> MapValue:
    try:
        found = cast(value)
        if isinstance(found, int) and not -(2**63) <= found < 2**63:
            raise OverflowError(f"{found} is not an int64")
        return found
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(f"CastMap: the map's value {value!r} cannot be read as {cast_to}") from error


@kernel("DictVectorizer", domain="ai.onnx.ml")
def dict_vectorizer(
    data: Mapping[MapKey, MapValue],
    *,
    int64_vocabulary: tuple[int, ...] | None = None,
    string_vocabulary: tuple[str, ...] | None = None,
    ctx: KernelContext | None = None,
) -> np.ndarray:
    """Y = the map's value for each word of the vocabulary, 0 or "" where it has none; one row."""
    words: Sequence[MapKey] = string_vocabulary or int64_vocabulary or ()
    dtype = _vectorizer_dtype(data, ctx)
    missing: MapValue = "" if dtype.kind == "O" else 0
    out = np.empty((1, len(words)), dtype)
    out[0, :] = [data.get(word, missing) for word in words]
    return out


def _vectorizer_dtype(data: Mapping[MapKey, MapValue], ctx: KernelContext | None) -> np.dtype:
    declared = ctx.output_types[0] if ctx is not None and ctx.output_types else None
    if isinstance(declared, TensorType) and declared.dtype:
        return declared.dtype.numpy
    # A Python value does not tell float from double; float is what the operator's own examples use.
    found = type(next(iter(data.values()), 0.0))
    return np.dtype({str: object, int: np.int64}.get(found, np.float32))


@kernel("ZipMap", domain="ai.onnx.ml")
def zip_map(
    data: np.ndarray,
    *,
    classlabels_int64s: tuple[int, ...] | None = None,
    classlabels_strings: tuple[str, ...] | None = None,
) -> list[dict[MapKey, float]]:
    """Z = one map from class label to score per row, in the labels' order; of equal ones the last holds."""
    labels: Sequence[MapKey] = classlabels_strings or classlabels_int64s or ()
    if data.ndim not in (1, 2):
        raise InvalidArgument(f"ZipMap only supports 1D or 2D input tensors, got {data.ndim} dimensions")
    rows = data.reshape((1, -1)) if data.ndim == 1 else data
    if rows.shape[1] != len(labels):
        raise InvalidArgument(
            f"Input features_per_batch[{rows.shape[1]}] != number of classlabels[{len(labels)}]; they must be as many"
        )
    places = {label: place for place, label in enumerate(labels)}
    names = sorted(places)
    return [dict(zip(names, row, strict=True)) for row in rows[:, [places[name] for name in names]].tolist()]
