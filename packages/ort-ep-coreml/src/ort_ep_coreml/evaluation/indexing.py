"""Values of MIL operations that go along axes by places: indices count from the front and lie within their axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ort_ep_coreml.evaluation.values import Inputs, Value

_WRITES: Mapping[str, Callable[[np.ndarray, tuple[np.ndarray, ...], np.ndarray], None]] = {
    "add": np.add.at,
    "mul": np.multiply.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
    "update": lambda data, places, updates: data.__setitem__(places, updates),
}


def _written(data: np.ndarray, places: tuple[np.ndarray, ...], updates: np.ndarray, mode: str) -> np.ndarray:
    found = data.copy()
    _WRITES[mode](found, places, updates)
    return found


def _checked(indices: np.ndarray, sizes: np.ndarray | int) -> np.ndarray:
    if (indices < 0).any() or (indices >= sizes).any():
        raise IndexError("an index lies outside of its axis: Core ML does not look, what it would read is undefined")
    return indices


def _gather_nd(inputs: Inputs) -> np.ndarray:
    x, indices = np.asarray(inputs["x"]), np.asarray(inputs["indices"])
    batch, depth = int(inputs.get("batch_dims", 0)), indices.shape[-1]
    _checked(indices, np.array(x.shape[batch : batch + depth]))
    lead = x.shape[:batch]
    flat, flat_indices = x.reshape(-1, *x.shape[batch:]), indices.reshape(-1, *indices.shape[batch:])
    found = np.stack([each[tuple(np.moveaxis(at, -1, 0))] for each, at in zip(flat, flat_indices, strict=True)])
    return found.reshape(*lead, *found.shape[1:])


def _scatter_nd(inputs: Inputs) -> np.ndarray:
    data, indices = np.asarray(inputs["data"]), np.asarray(inputs["indices"])
    _checked(indices, np.array(data.shape[: indices.shape[-1]]))
    places = tuple(np.moveaxis(indices, -1, 0))
    return _written(data, places, np.asarray(inputs["updates"]), str(inputs.get("mode", "add")))


def _scatter_along_axis(inputs: Inputs) -> np.ndarray:
    data, indices = np.asarray(inputs["data"]), np.asarray(inputs["indices"])
    axis = int(inputs.get("axis", 0)) % data.ndim
    _checked(indices, data.shape[axis])
    places: list[np.ndarray] = list(np.indices(indices.shape, sparse=True))
    places[axis] = indices
    return _written(data, tuple(places), np.asarray(inputs["updates"]), str(inputs.get("mode", "add")))


def _one_hot(inputs: Inputs) -> np.ndarray:
    indices, count = np.asarray(inputs["indices"]), int(inputs["one_hot_vector_size"])
    on, off = (np.asarray(inputs.get(name, default)) for name, default in (("on_value", 1), ("off_value", 0)))
    axis = int(inputs.get("axis", -1)) % (indices.ndim + 1)
    shape = [1] * (indices.ndim + 1)
    shape[axis] = count
    return np.where(np.expand_dims(indices, axis) == np.arange(count).reshape(shape), on, off).astype(on.dtype)


def _cumsum(inputs: Inputs) -> np.ndarray:
    x, axis = np.asarray(inputs["x"]), int(inputs.get("axis", 0))
    x = np.flip(x, axis) if inputs.get("reverse", False) else x
    found = np.cumsum(x, axis, dtype=x.dtype)
    if inputs.get("exclusive", False):  # moved by one: what is not finite stays out of its own sum
        found = np.roll(found, 1, axis)
        np.moveaxis(found, axis, 0)[:1] = 0
    return np.flip(found, axis) if inputs.get("reverse", False) else found


def _reverse_sequence(inputs: Inputs) -> np.ndarray:
    x, lengths = np.asarray(inputs["x"]), np.asarray(inputs["lengths"])
    axes = (int(inputs.get("batch_axis", 0)), int(inputs.get("seq_axis", 0)))
    found = np.moveaxis(x, axes, (0, 1)).copy()
    for row, length in zip(found, lengths, strict=True):
        row[:length] = row[:length][::-1].copy()
    return np.moveaxis(found, (0, 1), axes)


INDEXED_VALUES: Mapping[str, Value] = {
    "gather_nd": _gather_nd,
    "scatter_nd": _scatter_nd,
    "scatter_along_axis": _scatter_along_axis,  # coremltools' own knows no mode but "update"
    "one_hot": _one_hot,
    "reverse_sequence": _reverse_sequence,
    "cumsum": _cumsum,  # coremltools' own fails where integers are summed exclusively
}
"""Functions of the inputs by name, by operation."""
