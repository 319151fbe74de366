"""Images and boxes: Resize, Upsample, GridSample, AffineGrid, NonMaxSuppression, ImageDecoder."""

from __future__ import annotations

from ort_core.ir.dims import Dim
from ort_core.ir.types import DataType, Shape
from ort_core.ops.infer.generators import shape_from_input
from ort_core.ops.infer_rule import infer_rule
from ort_core.ops.inference_context import InferenceContext
from ort_core.ops.resized_axes import aspect_factor, aspect_size, scaled_size
from ort_core.ops.shape_arithmetic import same_dim
from ort_core.ops.symbolic_values import multiply, whole

MAX_SCALE = 2.0**31
"""No axis grows by more: its result would not fit, and its size is not worked out."""


def _scaled(dim: Dim, scale: object) -> Dim:
    """Return how many outputs a scale makes of an axis, as the kernel has it."""
    if isinstance(dim, int) and isinstance(scale, (int, float)):
        return scaled_size(dim, scale) if 0 <= scale < MAX_SCALE else None
    whole_scale = whole(float(scale)) if isinstance(scale, (int, float)) else None
    if isinstance(whole_scale, int):
        found = multiply(dim, whole_scale)
        return None if isinstance(found, float) else found
    return None


def _scaled_shape(ctx: InferenceContext, shape: Shape, scales: tuple[object, ...] | None) -> Shape:
    if scales is None:
        return (None,) * len(shape)
    if len(scales) != len(shape):
        ctx.refuse(f"scales has {len(scales)} entries for an input of rank {len(shape)}")
    return tuple(_scaled(d, s) for d, s in zip(shape, scales, strict=True))


@infer_rule("Upsample")
def infer_upsample(ctx: InferenceContext) -> None:
    """Every size times its scale; scales are attributes before opset 9."""
    shape = ctx.shape(0)
    if shape is None:
        return
    if ctx.opset < 7:
        scales: tuple[object, ...] | None = (
            1.0, 1.0, ctx.float_of("height_scale", 1.0), ctx.float_of("width_scale", 1.0),
        )  # fmt: skip
    else:
        scales = ctx.items_of("scales") if ctx.opset < 9 else ctx.elements(1)
    ctx.set_shape(0, _scaled_shape(ctx, shape, scales))


@infer_rule("Resize")
def infer_resize_10(ctx: InferenceContext) -> None:
    """Opset 10: scales only."""
    shape = ctx.shape(0)
    if shape is not None:
        ctx.set_shape(0, _scaled_shape(ctx, shape, ctx.elements(1)))


@infer_rule("Resize", since=11)
def infer_resize(ctx: InferenceContext) -> None:
    """Sizes, or scales, for all axes or those named."""
    shape = ctx.shape(0)
    if shape is None:
        return
    axes = ctx.axes(ctx.ints_of("axes") or range(len(shape)), len(shape))
    result: list[Dim] = list(shape)
    sizes = ctx.dims(3) if ctx.has_input(3) else None
    scales = ctx.elements(2) if ctx.has_input(2) else None
    if sizes is not None and len(sizes) > 0:
        if len(sizes) != len(axes):
            ctx.refuse(f"sizes has {len(sizes)} entries for {len(axes)} axes")
        kept = _keep_aspect(ctx, shape, axes, sizes)
        for place, size in zip(axes, kept, strict=True):
            result[place] = size
    elif scales is not None and len(scales) > 0:
        if len(scales) != len(axes):
            ctx.refuse(f"scales has {len(scales)} entries for {len(axes)} axes")
        for place, scale in zip(axes, scales, strict=True):
            result[place] = _scaled(shape[place], scale)
    else:
        for place in axes:
            result[place] = None
    ctx.set_shape(0, result)


def _keep_aspect(ctx: InferenceContext, shape: Shape, axes: list[int], sizes: Shape) -> Shape:
    policy = ctx.string_of("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return sizes
    before = [shape[place] for place in axes]
    if not all(isinstance(d, int) and d > 0 for d in before) or not all(isinstance(d, int) for d in sizes):
        return (None,) * len(sizes)
    ratios = [s / d for s, d in zip(sizes, before, strict=True)]  # type: ignore[operator]  # all are numbers
    factor = aspect_factor(policy, ratios)
    assert factor is not None, "stretched sizes were returned above"
    return tuple(aspect_size(d, factor) for d in before)  # type: ignore[arg-type]  # all are numbers


@infer_rule("GridSample")
def infer_grid_sample(ctx: InferenceContext) -> None:
    """[N, C] of the input, spatial sizes of the grid."""
    x, grid = ctx.shape_min_rank(0, 2), ctx.shape_min_rank(1, 2)
    if x is None or grid is None:
        return
    if len(x) != len(grid):
        ctx.refuse(f"the input has rank {len(x)}, the grid has rank {len(grid)}")
    ctx.set_shape(0, (same_dim(ctx, x[0], grid[0], "the batch"), x[1], *grid[1:-1]))


@infer_rule("AffineGrid")
def infer_affine_grid(ctx: InferenceContext) -> None:
    """[N, spatial..., 2 or 3]."""
    size = shape_from_input(ctx, 1)
    if size is None:
        return
    if len(size) not in (4, 5):
        ctx.refuse(f"Length of input 'size' is {len(size)}. It must be 4 for 2D or 5 for 3D.")
    ctx.set_shape(0, (size[0], *size[2:], len(size) - 2))


@infer_rule("NonMaxSuppression")
def infer_non_max_suppression(ctx: InferenceContext) -> None:
    """An unknown number of (batch, class, box)."""
    ctx.set_output(0, DataType.INT64, (None, 3))


@infer_rule("ImageDecoder")
def infer_image_decoder(ctx: InferenceContext) -> None:
    """Height, width and channels; only gray images have a known number of channels here."""
    channels = 1 if ctx.string_of("pixel_format", "RGB") == "Grayscale" else 3
    ctx.set_output(0, DataType.UINT8, (None, None, channels))
