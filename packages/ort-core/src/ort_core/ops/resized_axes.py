"""Resize along one axis: where each output stands in the input, and which input is nearest to it.

Coordinates of all but float64 data are computed in float32, in the order in which ONNX writes its formulas: an output
that stands exactly between two inputs, as 4.5 / 0.3 - 0.5, falls to one side by a rounding error, and onnxruntime and
PyTorch make that same error. Kernels, compiled code and providers all ask here.
"""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.frozen import frozen

TIE = 1e-6
"""How far from the middle of two inputs an output may stand and yet be taken to stand there, as in onnxruntime."""

SHRINKS_BY_SCALE = 19  # the opset of the cases that shrink with aligned corners


@frozen
class ResizedAxis:
    """The sizes that one axis is resized between.

    Attributes:
        size: of the input.
        made: of the output.
        scale: outputs per input, as the node gives it or as the sizes tell.
        start: where the region of interest begins, in [0, 1] inside the input.
        end: where it ends.
    """

    size: int
    made: int
    scale: float
    start: float = 0.0
    end: float = 1.0


def goes_by_scale(mode: str, scale: float, opset: int) -> bool:
    """Return whether aligned corners are those of the size that a scale asks for, before it is cut to an integer.

    ONNX's text, onnxruntime and PyTorch know only the size that the result has. ONNX's cases of linear and cubic
    filters that shrink, from opset 19 on, expect the uncut one; there, and only there, it is taken.
    """
    return opset >= SHRINKS_BY_SCALE and mode != "nearest" and scale < 1


def source_coordinates(
    axis: ResizedAxis, transformation: str, *, by_scale: bool = False, dtype: type[np.floating] = np.float32
) -> np.ndarray:
    """Return the position in the input that each output stands for, ``[made]`` of ``dtype``.

    Raises:
        InvalidArgument: the coordinate transformation mode is not known.
    """
    f = dtype
    x, scale, half = np.arange(axis.made, dtype=f), f(axis.scale), f(0.5)
    if transformation == "asymmetric":
        return np.asarray(x / scale)
    if transformation == "half_pixel" or (transformation == "pytorch_half_pixel" and axis.made > 1):
        return np.asarray((x + half) / scale - half)
    if transformation == "pytorch_half_pixel":
        return np.zeros_like(x)
    if transformation == "tf_half_pixel_for_nn":
        return np.asarray((x + half) / scale)
    if transformation == "align_corners":
        length = scale * f(axis.size) if by_scale else f(axis.made)
        return np.asarray(x * f(axis.size - 1) / (length - f(1))) if length != 1 else np.zeros_like(x)
    if transformation == "half_pixel_symmetric":
        offset = f(axis.size) / f(2) * (f(1) - f(axis.made) / (scale * f(axis.size)))
        return np.asarray((np.float64(offset) + (x.astype(np.float64) + 0.5) / np.float64(scale) - 0.5).astype(f))
    if transformation == "tf_crop_and_resize":
        return _crop(axis, x)
    raise InvalidArgument(f"coordinate_transformation_mode {transformation!r} is not known to Resize")


def _crop(axis: ResizedAxis, x: np.ndarray) -> np.ndarray:
    f = x.dtype.type
    last, start, end = f(axis.size - 1), f(axis.start), f(axis.end)
    if axis.made == 1:
        return np.full_like(x, 0.5 * float(start + end) * float(last))
    return np.asarray(start * last + x * (end - start) * last / f(axis.made - 1))


def nearest_inputs(x: np.ndarray, axis: ResizedAxis, rounding: str) -> np.ndarray:
    """Return the index of the one input that each output at coordinates ``x`` copies, int64.

    ``simple`` is what the operators did before they had the attribute ``nearest_mode``.

    Raises:
        InvalidArgument: the rounding is not known.
    """
    x = x.astype(np.float64)  # so that adding a half does not round
    if rounding == "simple":
        rounded = np.ceil(x) if axis.scale < 1 else np.trunc(x)
    elif rounding == "round_prefer_floor":
        rounded = np.ceil(x - (0.5 + TIE))
    elif rounding == "round_prefer_ceil":
        rounded = np.floor(x + (0.5 + TIE))
    elif rounding in ("floor", "ceil"):
        rounded = np.floor(x) if rounding == "floor" else np.ceil(x)
    else:
        raise InvalidArgument(f"nearest_mode {rounding!r} is not known to Resize")
    return np.asarray(np.clip(rounded, 0, axis.size - 1).astype(np.int64))
