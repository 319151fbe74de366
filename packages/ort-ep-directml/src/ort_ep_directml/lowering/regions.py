"""Regions of images: RoiAlign."""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin.ir import Node
from ort_ep_directml.lowering.activations import scaled
from ort_ep_directml.lowering.elementwise import binary
from ort_ep_directml.lowering.emission import EmissionState
from ort_ep_directml.lowering.movement import sliced
from ort_ep_directml.lowering.operand import Operand
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.lowering.rule import Rule
from ort_ep_directml.schema.element_types import ElementType
from ort_ep_directml.schema.enumerators import InterpolationMode, ReduceFunction

_UNLIMITED = 0xFFFFFFFF
_OFFSETS = {"half_pixel": (0.5, -0.5), "output_half_pixel": (0.0, -0.5)}
"""Of input and output pixels. Before opset 16 there was the second way alone."""


def _of_one_pixel(to: EmissionState, regions: Operand, scale: float) -> Operand:
    """Return regions, [N, two edges and the opposite two], of at least one pixel, as which ONNX counts smaller ones."""
    if scale <= 0:
        raise Refused(f"RoiAlign with a spatial_scale of {scale} is left to others")
    count = regions.sizes[0]
    first, last = (sliced(to, regions, (0, at), (count, 2), (1, 1)) for at in (0, 2))
    reached = binary(to, "ELEMENT_WISE_MAX", last, scaled(to, first, 1.0, 1 / scale))
    return to.emit("JOIN", (regions.dtype, regions.sizes), Inputs=[first, reached], Axis=1)


def _roi_align(to: EmissionState, node: Node) -> Operand:
    if node.string_attribute("mode", "avg") != "avg":
        raise Refused("RoiAlign that takes the largest of weighted samples is left to others")
    x, regions, batches = (to.operand(node.input(place)) for place in range(3))
    is_old = to.context.opset(node) < 16
    way = "output_half_pixel" if is_old else node.string_attribute("coordinate_transformation_mode", "half_pixel")
    before, after = _OFFSETS[way]
    ratio, scale = node.int_attribute("sampling_ratio", 0), node.float_attribute("spatial_scale", 1.0)
    regions = _of_one_pixel(to, regions, scale) if way == "output_half_pixel" else regions
    return to.emit(
        "ROI_ALIGN1",
        (x.dtype, to.sizes(node.output)),
        Input=x,
        ROI=to.reshape(regions, (1, 1, *regions.sizes)),
        BatchIndices=to.reshape(to.cast(batches, ElementType.UINT64), (1, 1, 1, *batches.sizes)),
        ReductionFunction=int(ReduceFunction.AVERAGE),
        InterpolationMode=int(InterpolationMode.LINEAR),
        SpatialScaleX=scale,
        SpatialScaleY=scale,
        InputPixelOffset=before,
        OutputPixelOffset=after,
        OutOfBoundsInputValue=0.0,
        MinimumSamplesPerOutput=ratio or 1,
        MaximumSamplesPerOutput=ratio or _UNLIMITED,
        AlignRegionsToCorners=0,
    )


REGIONS: Mapping[str, Rule] = {"RoiAlign": Rule(_roi_align, required=3)}
"""Rules by operator."""
