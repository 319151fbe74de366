"""Pooling of channels-last images and volumes: over windows, and over whole images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ort_core.cpu.codegen.images.pooling import Pooling, RoundedPooling
from ort_core.cpu.lowering.images.layout_steps import as_images, emit_padded
from ort_core.cpu.lowering.images.pooling_steps import emit_pooling
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import PendingElementwise
from ort_core.cpu.lowering.rules.convolutions.rounded_images import made_rounded, takes_rounded
from ort_core.cpu.lowering.rules.convolutions.volumes import planes_as_rows, pooled_volumes, volumes
from ort_core.cpu.lowering.rules.images.images import Pads, has_known_pads, images, open_pads_of, pair
from ort_core.cpu.lowering.rules.images.indexed_pooling import max_pooling_with_indices
from ort_core.cpu.lowering.rules.images.plane_pooling import apart, is_pooled_apart, plane_pooling
from ort_core.cpu.lowering.rules.quantized.integer_pooling import byte_max_pooling
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, channels_last, dense_strides, ordered_strides
from ort_core.plugin.ir import DataType, KnownDim, Node, minimum
from ort_core.plugin.loops import cast, element, lift
from ort_core.plugin.ops import node_windows

F32 = DataType.FLOAT


def pooling(lowering: Lowering, node: Node) -> None:
    """MaxPool, AveragePool, GlobalAveragePool and GlobalMaxPool of images (1-D and 2-D) and volumes."""
    if any(value is not None for value in node.outputs[1:]):
        require_inner_pads(node)
        hangs_over(lowering, node, _space(node))
        max_pooling_with_indices(lowering, node)
        return
    if node.int_attribute("storage_order", 0):
        raise NotLowered("another storage_order than 0 is not generated")
    require_inner_pads(node)
    if takes_rounded(lowering, node) and rounded_max_pooling(lowering, node):
        return
    is_whole = not node.int_attribute("ceil_mode", 0) and not hangs_over(lowering, node, _space(node))
    if is_whole and byte_max_pooling(lowering, node):
        return
    if is_whole and plane_pooling(lowering, node):
        return
    x = pooled_operand(lowering, node)
    kind = Pooling(
        x.shape[1], None, is_maximum=node.op_type in ("MaxPool", "GlobalMaxPool"),  # type: ignore[arg-type]  # a number, as pooled_operand has made sure
        counts_border=node.int_attribute("count_include_pad", 0) != 0,
    )  # fmt: skip
    lowering.set(node.output, pooled(lowering, node, x, kind))


def rounded_max_pooling(lowering: Lowering, node: Node) -> bool:
    """Take the largest numbers of images that lie in bfloat16, or are made so; return whether they do."""
    value, (_, shape) = node.input(0), tensor_type(node.output)
    x = made_rounded(lowering, value) if value is not None else None
    if x is None or not isinstance(x.shape[1], int):
        return False
    hangs_over(lowering, node, _space(node))
    found = lowering.rounded[node.output] = _windows(lowering, node, x, shape, RoundedPooling(x.shape[1], None))
    real = PendingElementwise(cast(element(0, DataType.BFLOAT16), F32), (found,), found.shape, (node,))
    lowering.set(node.output, real)
    return True


def require_inner_pads(node: Node) -> None:
    """Make sure that every window reads more than its border.

    Raises:
        NotLowered: some do not, which the kernels refuse; how many windows there are is then unknown, too.
    """
    taps = node.ints_attribute("kernel_shape") or ()
    for axis in node_windows(node, (None,) * len(taps), taps):
        reach = axis.reach
        if any(isinstance(pad, int) and isinstance(reach, int) and pad >= reach for pad in (axis.before, axis.after)):
            raise NotLowered("pads that are as large as the window are not generated")


def hangs_over(lowering: Lowering, node: Node, sizes: Sequence[KnownDim]) -> bool:
    """Return whether windows are larger than their padded axes, with a place each; open sizes must hold theirs."""
    found, taps = False, node.ints_attribute("kernel_shape")
    for axis in () if taps is None else node_windows(node, sizes, taps):
        size, reach, before, after = axis.size, axis.reach, axis.before, axis.after
        if size is None or not isinstance(reach, int) or before is None or after is None or axis.stride == 1:
            continue
        room = size + before + after - reach
        if isinstance(room, int):
            found |= room < 0
        else:
            lowering.require_equal(minimum(room + 1, 1), 1)
    return found


def _space(node: Node) -> Sequence[KnownDim]:
    value = node.input(0)
    assert value is not None, "pooling has an input"
    return tensor_type(value)[1][2:]


def pooled_operand(lowering: Lowering, node: Node) -> View:
    """Return what is pooled: images (rank 4, a 1-D one has height 1) or volumes, channels-last.

    Raises:
        NotLowered: it is neither.
    """
    dtype, shape = tensor_type(node.output)
    if dtype is not F32 or len(shape) not in (3, 4, 5):
        raise NotLowered("only float32 images and volumes are pooled natively")
    return volumes(lowering, node.input(0)) if len(shape) == 5 else images(lowering, node.input(0), as_parts=True)


def pooled(lowering: Lowering, node: Node, x: View, kind: Pooling) -> View:
    """Pool images or volumes over the node's window, or whole; of ``kind`` the window does not matter."""
    _, shape = tensor_type(node.output)
    if node.op_type.startswith("Global"):
        return pooled_whole(lowering, node, planes_as_rows(x) if len(x.shape) == 5 else x, kind)
    hangs_over(lowering, node, _space(node))
    return pooled_volumes(lowering, node, x, kind) if len(shape) == 5 else _windows(lowering, node, x, shape, kind)


def pool_windows(lowering: Lowering, node: Node, x: View, shape: Sequence[KnownDim], *, is_maximum: bool) -> View:
    """Pool channels-last images of rank 4 under the node's windows; return the result of ``shape``, channels first."""
    require_inner_pads(node)
    hangs_over(lowering, node, x.shape[4 - len(node.ints_attribute("kernel_shape") or ()) :])
    channels = x.shape[1]
    assert isinstance(channels, int)
    counts = node.int_attribute("count_include_pad", 0) != 0
    return _windows(lowering, node, x, shape, Pooling(channels, None, is_maximum=is_maximum, counts_border=counts))


def _windows(lowering: Lowering, node: Node, x: View, shape: Sequence[KnownDim], kind: Pooling) -> View:
    rank = len(shape)
    kernel = pair(node.ints_attribute("kernel_shape"), rank)
    strides, dilations = pair(node.ints_attribute("strides"), rank), pair(node.ints_attribute("dilations"), rank)
    window = kernel[1:] if rank == 3 else kernel
    pads = open_pads_of(node, rank, window, x.shape[2:])
    if x.dtype is F32:
        target = lowering.placed_view(node.output, F32, shape, channels_last(rank))
    else:
        target = lowering.new_view(x.dtype, shape, channels_last(rank))
    spec = replace(kind, kernel=kernel, strides=strides, dilations=dilations)
    if not has_known_pads(pads):
        _bordered_windows(lowering, node, spec, x, pads, as_images(target))
        return target
    spec = replace(spec, pads=pads)
    if is_pooled_apart(kernel, is_maximum=kind.is_maximum):
        between = lowering.new_view(x.dtype, (*x.shape[:2], as_images(target).shape[2], x.shape[3]), channels_last(4))
        down, along = (replace(spec, **each) for each in apart(kernel, strides, pads))
        emit_pooling(lowering, node, replace(down, dilations=(dilations[0], 1)), x, between)
        x, spec = between, replace(along, dilations=(1, dilations[1]))
    emit_pooling(lowering, node, spec, x, as_images(target))
    return target


def _bordered_windows(lowering: Lowering, node: Node, spec: Pooling, x: View, pads: Pads, target: View) -> None:
    """Pool images with a border that only a run can size: it is copied around them.

    Means that leave the border out are those that count it, over the part of their window that is no border.
    """
    bordered = emit_padded(lowering, x, pads, -math.inf if spec.is_maximum else 0.0)
    if spec.is_maximum or spec.is_sum or spec.counts_border:
        emit_pooling(lowering, node, spec, bordered, target)
        return
    ones, sums = ((1, 1, *view.shape[2:]) for view in (x, target))
    inside = lowering.new_view(F32, ones, channels_last(4))
    lowering.stores.store(lift(1.0, F32), (), inside, (node,))
    shares = lowering.new_view(F32, sums, channels_last(4))
    counted = replace(spec, counts_border=True)
    emit_pooling(lowering, node, replace(counted, channels=1), emit_padded(lowering, inside, pads), shares)
    means = lowering.new_view(F32, target.shape, channels_last(4))
    emit_pooling(lowering, node, counted, bordered, means)
    lowering.stores.store(element(0, F32) / element(1, F32), (means, shares), target, (node,))


def pool_whole(lowering: Lowering, node: Node, x: View, *, is_maximum: bool) -> None:
    """Reduce channels-last images to one number per image and channel, in whatever shape the node gives it."""
    channels = x.shape[1]
    assert isinstance(channels, int)
    lowering.set(node.output, pooled_whole(lowering, node, x, Pooling(channels, None, is_maximum=is_maximum)))


def pooled_whole(lowering: Lowering, node: Node, x: View, kind: Pooling) -> View:
    """Return one number per image and channel of channels-last images, in whatever shape the node gives it."""
    target = lowering.new_view(F32, (x.shape[0], kind.channels, 1, 1), channels_last(4))
    emit_pooling(lowering, node, replace(kind, kernel=None), x, target)
    _, shape = tensor_type(node.output)
    is_images = len(shape) in (3, 4, 5)
    strides = ordered_strides(shape, channels_last(len(shape))) if is_images else dense_strides(shape)
    order = channels_last(len(shape)) if is_images else ()
    return View(target.buffer, shape, strides, 0, order)
