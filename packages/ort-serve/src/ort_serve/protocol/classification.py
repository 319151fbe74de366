"""The classification extension: of each row the largest elements, as texts ``value:index``."""

from __future__ import annotations

import numpy as np

from ort_serve.failures import InvalidRequest


def classified(name: str, array: np.ndarray, classes: int) -> np.ndarray:
    """Return the ``classes`` largest elements of the last axis as texts, largest first.

    Args:
        name: the output's, for messages.
        array: numbers of shape [...] or [..., classes of the model].
        classes: how many of each row; all where the model has fewer.

    Returns:
        Strings of shape [..., min(classes, last size)].

    Raises:
        InvalidRequest: the output is no tensor of numbers with an axis.
    """
    if array.ndim == 0 or array.dtype.kind not in "biufV":
        raise InvalidRequest(f"output {name!r}: classification needs numbers with an axis of classes")
    count = min(classes, array.shape[-1])
    order = np.argsort(-array.astype(np.float64), axis=-1, kind="stable")[..., :count]
    values = np.take_along_axis(array, order, axis=-1)
    texts = [f"{value:f}:{index}" for value, index in zip(values.ravel().tolist(), order.ravel().tolist())]
    found = np.empty(len(texts), object)
    found[:] = texts
    return found.reshape(order.shape)
