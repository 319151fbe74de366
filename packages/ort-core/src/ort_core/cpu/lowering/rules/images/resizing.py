"""Resize of channels-last images: by whole factors, nearest, a copy that reads pixels several times; else by tables.

Bytes are repeated where they lie, and mixed as float32, where every sum is exact, so that no order of adding decides
which integer it is cut to.
"""

from __future__ import annotations

import numpy as np

from ort_core.cpu.lowering.images.layout_steps import emit_channels_last, is_channels_last
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingElementwise
from ort_core.cpu.lowering.rules.images.images import images
from ort_core.cpu.lowering.rules.images.resampling import (
    FIRST_WITH_MODES,
    emit_resampled,
    mixes_bytes_exactly,
    planned_axes,
)
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, channels_last
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import cast, element

_Walk = tuple[KnownDim, KnownDim, KnownDim]  # a size, and how far elements lie apart where they are read and written
_BYTES = frozenset({DataType.UINT8, DataType.INT8})
# With these modes output pixel i reads input pixel i // factor: half-pixel centers never fall on a tie.
_FLOORED = frozenset({("asymmetric", "floor")})
_CENTERED = frozenset(
    (center, rounding)
    for center in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")
    for rounding in ("round_prefer_floor", "round_prefer_ceil")
)


def resize(lowering: Lowering, node: Node) -> None:
    """Resize and Upsample of one to three axes of space."""
    dtype, shape = tensor_type(node.output)
    if dtype in _BYTES and len(shape) in (3, 4, 5):
        _resize_bytes(lowering, node, dtype)
        return
    if dtype is not DataType.FLOAT or len(shape) not in (3, 4, 5):
        raise NotLowered("only float32 lines, images and volumes are resized natively")
    if len(shape) != 4 or not is_repetition(lowering, node):
        _resize_by_tables(lowering, node)
        return
    x = images(lowering, node.input(0), as_parts=True)
    _repeat(lowering, node, x, lowering.placed_view(node.output, dtype, shape, channels_last(4)))


def _repeat(lowering: Lowering, node: Node, x: View, target: View) -> None:
    """Write each pixel of images several times; they and the result lie in any order."""
    vertical, horizontal = _factors(lowering, node, x)
    batch, channels, height, width = x.shape
    for size, expected in zip(target.shape, (batch, channels, height * vertical, width * horizontal)):
        lowering.require_equal(size, expected)
    order = (0, 2, 3, 1) if target.strides[1] == 1 else (0, 1, 2, 3)
    axes: dict[int, list[_Walk]] = {
        0: [(batch, x.strides[0], target.strides[0])], 1: [(channels, x.strides[1], target.strides[1])],
        2: _repeated(height, vertical, x.strides[2], target.strides[2]),
        3: _repeated(width, horizontal, x.strides[3], target.strides[3]),
    }  # fmt: skip
    walks = [each for axis in order for each in axes[axis]]
    sizes, read, written = (tuple([walk[part] for walk in walks]) for part in range(3))
    repeated = View(x.buffer, sizes, read, x.offset)
    pending = PendingElementwise(element(0, x.dtype), (repeated,), sizes, (node,))
    lowering.stores.store_elementwise(pending, View(target.buffer, sizes, written, target.offset))
    lowering.set(node.output, target)


def _repeated(size: KnownDim, times: int, read: KnownDim, written: KnownDim) -> list[_Walk]:
    return [(size, read, written * times), (times, 0, written)]


def _resize_bytes(lowering: Lowering, node: Node, dtype: DataType) -> None:
    value = node.input(0)
    assert value is not None
    view = lowering.contiguous(value)
    if len(view.shape) == 4 and is_repetition(lowering, node):
        _repeat(lowering, node, view, lowering.result_view(node.output))
        return
    if node.string_attribute("mode", "nearest") == "cubic" or node.int_attribute("antialias", 0):
        raise NotLowered("cubic filters and antialiasing of bytes are not generated")
    if not isinstance(view.shape[1], int):
        raise NotLowered("only bytes with a known number of channels are resized")
    real = lowering.computed(cast(element(0, dtype), DataType.FLOAT), (view,))
    y = _by_tables(lowering, node, emit_channels_last(lowering, real), is_exact=True)
    lowering.set(node.output, PendingElementwise(cast(element(0, y.dtype), dtype), (y,), y.shape, (node,)))


def is_repetition(lowering: Lowering, node: Node) -> bool:
    """Return whether each pixel is repeated whole times, whatever the sizes."""
    modes = (
        node.string_attribute("coordinate_transformation_mode", "half_pixel"),
        node.string_attribute("nearest_mode", "round_prefer_floor"),
    )
    if node.op_type == "Upsample" or lowering.opset_of(node) < FIRST_WITH_MODES:
        modes = ("asymmetric", "floor")
    is_nearest = node.string_attribute("mode", "nearest") == "nearest" and modes in _FLOORED | _CENTERED
    if not is_nearest or node.attribute("axes") is not None:
        return False
    scales, sizes = _given(lowering, node)
    if scales is not None and scales.size:
        wanted = scales.reshape(-1)
    else:
        value = node.input(0)
        assert value is not None
        space = tensor_type(value)[1][2:]
        known = sizes is not None and all(isinstance(size, int) and size > 0 for size in space)
        if sizes is None or not known or sizes.size != 4:
            return False
        wanted = sizes.reshape(-1)[2:] / np.array(space, np.float64)
    return bool(np.all(wanted >= 1) and np.all(wanted == np.floor(wanted)))


def _resize_by_tables(lowering: Lowering, node: Node) -> None:
    lowering.set(node.output, _by_tables(lowering, node, _channels_last(lowering, node.input(0)), is_exact=False))


def _by_tables(lowering: Lowering, node: Node, x: View, *, is_exact: bool) -> View:
    """Resize what lies channels-last; ``is_exact``: only where no sum of bytes is rounded."""
    _, shape = tensor_type(node.output)
    scales, _ = _given(lowering, node)
    if scales is not None and not scales.size:
        scales = None
    by_sizes = node.op_type != "Upsample" and lowering.opset_of(node) >= FIRST_WITH_MODES
    axes = planned_axes(lowering, node, x, scales, lowering.elements_of(node.input(3)) if by_sizes else None)
    for size, expected in zip(shape, (*x.shape[:2], *(axis.made for axis in axes))):
        lowering.require_equal(size, expected)
    if is_exact and not mixes_bytes_exactly(lowering, node, axes):
        raise NotLowered("sums of bytes would be rounded before they are cut to integers")
    return emit_resampled(lowering, node, x, axes)


def _channels_last(lowering: Lowering, value: Value | None) -> View:
    """Return lines, images or volumes channels-last, with as many axes as they have."""
    assert value is not None
    if len(tensor_type(value)[1]) == 4:
        return images(lowering, value)
    view = lowering.view(value)
    if not isinstance(view.shape[1], int) or view.dtype is not DataType.FLOAT:
        raise NotLowered("only float32 images with a known number of channels are generated")
    if not is_channels_last(view):
        view = emit_channels_last(lowering, lowering.contiguous(value))
        lowering.replace(value, view)
    return view


def _given(lowering: Lowering, node: Node) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the constant scales and sizes."""
    if node.op_type == "Upsample" or lowering.opset_of(node) < FIRST_WITH_MODES:
        return lowering.constant_of(node.input(1)), None
    return lowering.constant_of(node.input(2)), lowering.constant_of(node.input(3))


def _factors(lowering: Lowering, node: Node, x: View) -> tuple[int, int]:
    """Return the whole factors of height and width."""
    scales, sizes = _given(lowering, node)
    if scales is not None and scales.size == 4:
        wanted = [float(scale) for scale in scales.reshape(-1)]
    elif sizes is not None and sizes.size == 4 and all(isinstance(size, int) and size > 0 for size in x.shape[2:]):
        given = [x.shape[axis] if axis < 2 else int(sizes.reshape(-1)[axis]) for axis in range(4)]
        wanted = [1.0, 1.0, *(given[axis] / x.shape[axis] for axis in (2, 3))]  # type: ignore[operator]  # sizes are ints, asked for above
    else:
        raise NotLowered("the scales are not constant")
    if wanted[:2] != [1.0, 1.0] or any(factor < 1 or factor != int(factor) for factor in wanted):
        raise NotLowered(f"Resize by factors {wanted} is not generated")
    return int(wanted[2]), int(wanted[3])
