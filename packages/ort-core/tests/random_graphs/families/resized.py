"""Resize with every attribute beside every other, along all axes or some, and regions of an image."""

from __future__ import annotations

from typing import Any

import numpy as np

from random_graphs import element_types as et
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value

_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
_ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_FACTORS = (0.3, 0.5, 0.7, 1.0, 1.0, 1.5, 2.0, 2.0, 2.5, 3.0)


def _attributes(g: GraphWriter) -> dict[str, Any]:
    mode = g.choice(("nearest", "linear", "linear", "cubic"))
    newer = ("half_pixel_symmetric",) if g.opset >= 19 else ()
    given: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": g.choice((*_COORDINATES, *newer))}
    if g.chance(0.25):
        given["coordinate_transformation_mode"] = "tf_crop_and_resize"
        given["extrapolation_value"] = g.choice((None, 0.0, -7.0, 2.5))
    if mode == "nearest" or g.chance(0.1):
        given["nearest_mode"] = g.choice(_ROUNDINGS)
    if mode == "cubic" or g.chance(0.1):
        given["cubic_coeff_a"] = g.choice((-0.75, -0.5, 0.3))
    if mode != "nearest" and g.opset >= 18 and g.chance(0.35):
        given["antialias"] = 1
        if given["coordinate_transformation_mode"] == "tf_crop_and_resize":
            raise Refused("filters of regions")
    if mode == "cubic" or "antialias" in given:
        given["exclude_outside"] = g.choice((0, 1))
    return given


@family(4)
def resized_any_way(g: GraphWriter) -> Value:
    if g.opset < 11:
        raise Refused("modes of Resize are newer")
    value = g.pick(et.F32, et.F32, et.F32, et.F16, et.U8, et.I8, et.F64, et.I32, least=1, most=5, filled=True)
    given = _attributes(g)
    if given["mode"] == "cubic":
        value = g.pick(et.F32, et.F16, rank=4, filled=True)
    axes = sorted(g.random.sample(range(value.rank), g.random.randint(1, min(value.rank, 3))))
    if value.rank >= 3 and g.chance(0.6):
        axes = list(range(2, value.rank))
    if given["mode"] == "cubic":
        axes = [2, 3]
    has_axes = g.opset >= 18 and g.chance(0.5)
    if has_axes:
        axes = g.random.sample(axes, len(axes)) if g.chance(0.3) else axes
        given["axes"] = [axis - value.rank if g.chance(0.3) else axis for axis in axes]
    places = axes if has_axes else range(value.rank)
    region = None
    if given["coordinate_transformation_mode"] == "tf_crop_and_resize":
        starts = [g.choice((0.0, 0.1, -0.2)) if axis in axes else 0.0 for axis in places]
        ends = [g.choice((1.0, 0.8, 1.3)) if axis in axes else 1.0 for axis in places]
        region = g.constant([*starts, *ends], et.F32)
    no_scales = None
    if g.opset < 13:  # both inputs are given, empty where nobody reads them
        region, no_scales = region or g.constant(np.zeros(0, np.float32)), g.constant(np.zeros(0, np.float32))
    if g.chance(0.5):
        scales = [g.choice(_FACTORS) if axis in axes else 1.0 for axis in places]
        return g.node("Resize", [value, region, g.constant(scales, et.F32)], **given)
    sizes = [g.choice((1, 2, 4, 7, 9, 16)) if axis in axes else value.size(axis) for axis in places]
    if has_axes and given["coordinate_transformation_mode"] != "tf_crop_and_resize" and g.chance(0.4):
        given["keep_aspect_ratio_policy"] = g.choice(("stretch", "not_larger", "not_smaller"))
    return g.node("Resize", [value, region, no_scales, g.constant(np.asarray(sizes, np.int64))], **given)
