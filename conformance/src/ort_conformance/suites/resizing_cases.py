"""Resize and Upsample: each way to compute coordinates, with scales that shrink, enlarge, and keep a size.

The truth is ONNX's formulas in float64. Sizes and scales are such that no coordinate stands where rounding errors
decide, and that the size of the result is what the scales ask for wherever corners are aligned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx

from ort_conformance.case import Case
from ort_conformance.suites.case_values import numbers
from ort_conformance.suites.model_text import evaluated, node_model

SIZES = (1, 2, 5, 2)
SCALES = ((0.6, 2.0), (1.1, 3.0), (3.0, 1.1), (2.0, 1.5), (0.4, 0.5))
"""Of the last two axes. 2 elements times 1.1 are 2: the size stays, and yet other elements are read."""

WAYS = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
ROUNDINGS = {
    "round_prefer_floor": lambda at: math.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: math.floor(at + 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}


def _coordinate(index: int, size: int, made: int, scale: float, way: str) -> float:
    if way == "asymmetric":
        return index / scale
    if way == "align_corners":
        return index * (size - 1) / (made - 1) if made > 1 else 0.0
    if way == "pytorch_half_pixel" and made == 1:
        return 0.0
    return (index + 0.5) / scale - 0.5


def _weights(size: int, scale: float, way: str, rounding: str | None) -> np.ndarray:
    """Return what each output takes of each input: ``[made, size]``, linear where there is no rounding."""
    made = int(np.float32(scale) * np.float32(size))
    found = np.zeros((made, size))
    for index in range(made):
        at = _coordinate(index, size, made, float(np.float32(scale)), way)
        if rounding is not None:
            found[index, min(max(ROUNDINGS[rounding](round(at, 5)), 0), size - 1)] = 1
        else:
            at = min(max(at, 0.0), size - 1.0)
            low = min(int(at), size - 1)
            found[index, low] += 1 - (at - low)
            found[index, min(low + 1, size - 1)] += at - low
    return found


def _case(op_type: str, opset: int, scales: Sequence[float], way: str, rounding: str | None) -> Case:
    x = numbers(("Resize",), SIZES, "float32")
    mode = "linear" if rounding is None else "nearest"
    attributes: dict[str, object] = {"mode": mode}
    given: dict[str, np.ndarray] = {"s": np.array([1, 1, *scales], np.float32)}
    if op_type == "Resize":
        attributes["coordinate_transformation_mode"] = way
        given = {"roi": np.zeros(0, np.float32), **given}
        if rounding is not None:
            attributes["nearest_mode"] = rounding

    def build() -> tuple[onnx.ModelProto, Mapping[str, np.ndarray]]:
        return node_model(op_type, {"x": x}, attributes, opset=opset, constants=given), {"x": x}

    def truth(feeds: Mapping[str, np.ndarray]) -> Sequence[object]:
        rows, columns = (_weights(size, scale, way, rounding) for size, scale in zip(SIZES[2:], scales, strict=True))
        return [np.einsum("ih,nchw,jw->ncij", rows, feeds["x"].astype(np.float64), columns).astype(np.float32)]

    shown = "_".join(f"{scale:g}" for scale in scales)
    return evaluated(f"{op_type}_{rounding or mode}_{way}_{shown}@{opset}", build, "approximate", truth=truth)


def resizing_cases() -> Iterator[Case]:
    """Yield each way with each rounding, at the oldest and a newer opset of the form, and Upsample."""
    for scales in SCALES:
        for way in WAYS:
            for rounding in (None, *ROUNDINGS):
                yield _case("Resize", 19 if rounding is None else 11, scales, way, rounding)
        yield _case("Upsample", 9, scales, "asymmetric", None)
    yield _case("Upsample", 9, (2.0, 3.0), "asymmetric", "floor")
