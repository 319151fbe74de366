"""Values of MIL's image resizing: samples between the nearest two places along each of the last two axes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_ep_coreml.evaluation.values import Inputs, Value


def _places(size: int, out: int, mode: str) -> np.ndarray:
    """Return where an axis is read, as the documentation of ``resize_bilinear`` gives it for a sampling mode."""
    at = np.arange(out)
    if mode == "UNALIGN_CORNERS":
        spacing = size / out
        places = at * spacing + 0.5 * spacing - 0.5
    elif mode in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS"):
        middle = (size - 1) / 2 if mode == "ALIGN_CORNERS" else 0.0
        places = at * (size - 1) / (out - 1) if out > 1 else np.array([middle])
    elif mode == "DEFAULT":
        places = at * (size - size / out) / (out - 1) if out > 1 else np.zeros(1)
    else:
        raise ValueError(f"sampling mode {mode} has no value here")
    return np.clip(places, 0, size - 1)


def _sampled(x: np.ndarray, axis: int, out: int, mode: str) -> np.ndarray:
    places = _places(x.shape[axis], out, mode)
    below = np.floor(places).astype(np.int64)
    above = np.minimum(below + 1, x.shape[axis] - 1)
    share = (places - below).reshape([-1] + [1] * (x.ndim - 1 - axis % x.ndim))
    return x.take(below, axis) * (1 - share) + x.take(above, axis) * share


def _resize_bilinear(inputs: Inputs) -> np.ndarray:
    x, mode = np.asarray(inputs["x"]), str(inputs.get("sampling_mode", "DEFAULT"))
    wide = _sampled(x.astype(np.float64), x.ndim - 2, int(inputs["target_size_height"]), mode)
    return _sampled(wide, x.ndim - 1, int(inputs["target_size_width"]), mode).astype(x.dtype)


def _upsample_nearest(inputs: Inputs) -> np.ndarray:
    x = np.asarray(inputs["x"])
    for axis, name in ((x.ndim - 2, "scale_factor_height"), (x.ndim - 1, "scale_factor_width")):
        factor = float(inputs.get(name, 1))
        if factor != int(factor):
            raise ValueError(f"{name}={factor}: only whole factors have a value here")
        x = x.repeat(int(factor), axis)
    return x


RESIZED_VALUES: Mapping[str, Value] = {
    "resize_bilinear": _resize_bilinear,
    "upsample_nearest_neighbor": _upsample_nearest,
}
"""Functions of the inputs by name, by operation."""
