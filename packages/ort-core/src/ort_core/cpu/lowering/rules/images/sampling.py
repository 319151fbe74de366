"""Sampling of channels-last images at points that are data: GridSample and RoiAlign."""

from __future__ import annotations

from ort_core.cpu.codegen.images.grid_sampling import GridSampling, grid_sampling_kernel
from ort_core.cpu.codegen.images.region_align import RegionAlign, region_align_kernel
from ort_core.cpu.lowering.images.layout_steps import kernel_text
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.rules.images.images import images
from ort_core.cpu.lowering.steps import Argument, NotLowered, Pointer, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, channels_last, count_of, moved_nbytes
from ort_core.plugin.ir import DataType, KnownDim, Node, minimum

F32 = DataType.FLOAT
_MODES = {"bilinear": "linear", "linear": "linear", "nearest": "nearest", "bicubic": "cubic", "cubic": "cubic"}
_PADDINGS = ("zeros", "border", "reflection")
_TAPS = {"nearest": 1, "linear": 4, "cubic": 16}  # pixels that one result reads
_FIRST_WITH_SHIFT = 16  # of RoiAlign: before, no region was shifted by half a pixel
_POINTS = 4  # of a bin, where the model leaves them open: a guess, for the work


def grid_sample(lowering: Lowering, node: Node) -> None:
    """GridSample of images."""
    mode = _MODES.get(node.string_attribute("mode", "linear"))
    padding = node.string_attribute("padding_mode", "zeros")
    if mode is None or padding not in _PADDINGS:
        raise NotLowered(f"GridSample by {node.string_attribute('mode', 'linear')} and {padding} is not generated")
    grid = lowering.contiguous(node.input(1))
    x = _images(lowering, node)
    if len(grid.shape) != 4 or grid.dtype is not F32:
        raise NotLowered("only float32 grids of images are generated")
    lowering.require_equal(grid.shape[0], x.shape[0])
    lowering.require_equal(grid.shape[3], 2)
    channels = x.shape[1]
    assert isinstance(channels, int)
    shape = (x.shape[0], channels, grid.shape[1], grid.shape[2])
    target = _target(lowering, node, shape)
    spec = GridSampling(channels, mode, padding, bool(node.int_attribute("align_corners", 0)))
    machine = lowering.target
    kernel = kernel_text("gridsample", spec.structure, lambda name: grid_sampling_kernel(name, spec, machine))
    image, _, row, pixel = x.strides
    words: list[Argument] = [
        pointer(target), pointer(x), pointer(grid), x.shape[0], count_of(grid.shape[1:3]), *x.shape[2:], image, row,
        pixel, target.strides[0], target.strides[3],
    ]  # fmt: skip
    count, taps = count_of(shape), _TAPS[mode]
    lowering.emit(
        kernel, words, [x.buffer, grid.buffer], [target.buffer], count * taps, (node,), count * (2 * taps),
        moved_nbytes([target, grid]),
    )  # fmt: skip
    lowering.set(node.output, target)


def roi_align(lowering: Lowering, node: Node) -> None:
    """RoiAlign."""
    mode = node.string_attribute("mode", "avg")
    shifts = "half_pixel" if lowering.opset_of(node) >= _FIRST_WITH_SHIFT else "output_half_pixel"
    shift = node.string_attribute("coordinate_transformation_mode", shifts)
    rows, columns = node.int_attribute("output_height", 1), node.int_attribute("output_width", 1)
    if mode not in ("avg", "max") or shift not in ("half_pixel", "output_half_pixel") or min(rows, columns) < 1:
        raise NotLowered(f"RoiAlign by {mode} and {shift} to {rows} x {columns} is not generated")
    rois, numbers = lowering.contiguous(node.input(1)), lowering.contiguous(node.input(2))
    x = _images(lowering, node)
    if len(rois.shape) != 2 or rois.dtype is not F32 or len(numbers.shape) != 1 or not numbers.dtype.is_integer:
        raise NotLowered("only float32 regions, each with the number of its image, are generated")
    lowering.require_equal(rois.shape[1], 4)
    lowering.require_equal(numbers.shape[0], rois.shape[0])
    channels = x.shape[1]
    assert isinstance(channels, int)
    shape = (rois.shape[0], channels, rows, columns)
    target = _target(lowering, node, shape)
    ratio = node.int_attribute("sampling_ratio", 0)
    spec = RegionAlign(
        channels, ratio, node.float_attribute("spatial_scale", 1.0), shift == "half_pixel", mode == "max",
        numbers.dtype.bits,
    )  # fmt: skip
    machine = lowering.target
    kernel = kernel_text("roialign", spec.structure, lambda name: region_align_kernel(name, spec, machine))
    image, _, row, pixel = x.strides
    words: list[Argument] = [
        pointer(target), pointer(x), pointer(rois), pointer(numbers), Pointer(lowering.error_buffer()), rois.shape[0],
        rows, columns, x.shape[0], *x.shape[2:], image, row, pixel, target.strides[0], target.strides[3],
    ]  # fmt: skip
    work = count_of(shape) * (4 * (ratio * ratio if ratio > 0 else _POINTS))
    lowering.emit(
        kernel, words, [x.buffer, rois.buffer, numbers.buffer], [target.buffer], work, (node,), work * 2,
        moved_nbytes([target, rois]),
    )  # fmt: skip
    lowering.set(node.output, target)


def _images(lowering: Lowering, node: Node) -> View:
    """Return the images of a node's first input; where they have no pixels, the reference kernels say what that is."""
    value = node.input(0)
    if value is None or len(tensor_type(value)[1]) != 4:
        raise NotLowered("only images are sampled natively")
    x = images(lowering, value, as_parts=True)
    for size in x.shape[2:]:
        lowering.require_equal(minimum(size, 1), 1)
    return x


def _target(lowering: Lowering, node: Node, shape: tuple[KnownDim, ...]) -> View:
    dtype, declared = tensor_type(node.output)
    if dtype is not F32 or len(declared) != len(shape):
        raise NotLowered("only float32 images are sampled natively")
    for size, expected in zip(declared, shape, strict=True):
        lowering.require_equal(size, expected)
    return lowering.placed_view(node.output, F32, shape, channels_last(4))
