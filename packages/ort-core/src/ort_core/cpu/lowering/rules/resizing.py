"""Resize of channels-last images by whole factors, nearest neighbour: a copy that reads each pixel several times."""

from __future__ import annotations

from ort_core.cpu.lowering.lowering import Lowering, tensor_type
from ort_core.cpu.lowering.pending import PendingElementwise
from ort_core.cpu.lowering.rules.images import images
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.views import View, channels_last, dense_strides
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.loops import element

# With these modes output pixel i reads input pixel i // factor: half-pixel centres never fall on a tie.
_FLOORED = frozenset({("asymmetric", "floor")})
_CENTRED = frozenset(
    (centre, rounding)
    for centre in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")
    for rounding in ("round_prefer_floor", "round_prefer_ceil")
)


def resize(lowering: Lowering, node: Node) -> None:
    """Resize and Upsample where every output pixel is a copy and the factors of height and width are whole."""
    mode = node.string_attribute("mode", "nearest")
    modes = (
        node.string_attribute("coordinate_transformation_mode", "half_pixel"),
        node.string_attribute("nearest_mode", "round_prefer_floor"),
    )
    if node.op_type == "Upsample" or lowering.opset_of(node) < 11:
        modes = ("asymmetric", "floor")
    if mode != "nearest" or modes not in _FLOORED | _CENTRED:
        raise NotLowered(f"Resize by {mode}, {modes[0]}, {modes[1]}")
    if node.attribute("axes") is not None:
        raise NotLowered("Resize of chosen axes")
    dtype, shape = tensor_type(node.output)
    if dtype is not DataType.FLOAT or len(shape) != 4:
        raise NotLowered("only float32 images of rank 4 are resized natively")
    x = images(lowering, node.input(0))
    vertical, horizontal = _factors(lowering, node, x)
    batch, channels, height, width = x.shape
    for size, expected in zip(shape, (batch, channels, height * vertical, width * horizontal)):
        lowering.require_equal(size, expected)
    target = lowering.new_view(dtype, shape, channels_last(4))
    split = (batch, height, vertical, width, horizontal, channels)
    repeated = View(x.buffer, split, (x.strides[0], x.strides[2], 0, x.strides[3], 0, x.strides[1]), x.offset)
    pending = PendingElementwise(element(0, dtype), (repeated,), split, (node,))
    lowering.store_elementwise(pending, View(target.buffer, split, dense_strides(split), target.offset))
    lowering.set(node.output, target)


def _factors(lowering: Lowering, node: Node, x: View) -> tuple[int, int]:
    """Return the whole factors of height and width."""
    place = 1 if node.op_type == "Upsample" or lowering.opset_of(node) < 11 else 2
    scales, sizes = lowering.constant_of(node.input(place)), lowering.constant_of(node.input(3))
    if scales is not None and scales.size == 4:
        wanted = [float(scale) for scale in scales.reshape(-1)]
    elif sizes is not None and sizes.size == 4 and all(isinstance(size, int) and size > 0 for size in x.shape[2:]):
        given = [x.shape[axis] if axis < 2 else int(sizes.reshape(-1)[axis]) for axis in range(4)]
        wanted = [1.0, 1.0, *(given[axis] / x.shape[axis] for axis in (2, 3))]  # type: ignore[operator]  # sizes are ints, asked for above
    else:
        raise NotLowered("the scales are not constant")
    if wanted[:2] != [1.0, 1.0] or any(factor < 1 or factor != int(factor) for factor in wanted):
        raise NotLowered(f"Resize by factors {wanted}")
    return int(wanted[2]), int(wanted[3])
