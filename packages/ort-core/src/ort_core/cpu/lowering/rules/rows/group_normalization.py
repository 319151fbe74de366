"""Normalization of groups of channels, and of channels: as images lie, with the channels last or first."""

from __future__ import annotations

from ort_core.cpu.lowering.images.group_scales import normalized_groups, takes_groups
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, PendingElementwise
from ort_core.cpu.lowering.rows.formula_steps import reduced_over
from ort_core.cpu.lowering.rows.reducing import store_operand
from ort_core.cpu.lowering.rules.rows import rows
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, count_of
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import Scalar, element, meaning_of, normalized

F32 = DataType.FLOAT


def group_normalization(lowering: Lowering, node: Node) -> None:
    """GroupNormalization: statistics of each group's run of elements; scale and bias for each channel (or group)."""
    images = lowering.view(rows.float_input(node))
    groups, per_group = node.int_attribute("num_groups", 1), lowering.opset_of(node) < 21
    _require_numbers(lowering, node, groups if per_group else images.shape[1])
    if takes_groups(images):
        lowering.set(node.output, _as_they_lie(lowering, node, images, groups))
        return
    source = lowering.contiguous(node.input(0))
    shape = source.shape
    if not isinstance(shape[1], int):
        raise NotLowered("the number of channels is not known")
    if groups < 1 or shape[1] % groups:
        raise NotLowered(f"{shape[1]} channels do not divide into {groups} groups")
    pixels = count_of(shape[2:])
    view = source.reshaped((shape[0], groups, shape[1] // groups, pixels))
    inner = (groups, 1, 1) if per_group else (groups, shape[1] // groups, 1)
    scale, bias = (lowering.contiguous(node.input(i)).reshaped(inner) for i in (1, 2))
    x, factor, shift = (element(k, F32) for k in range(3))
    normal = normalized(x, node.float_attribute("epsilon", 1e-5), factor, shift)
    (operand,) = reduced_over(lowering, [normal.result], [view, scale, bias], view.shape, (2, 3), (node,))
    target = lowering.result_view(node.output, view.shape)
    lowering.set(node.output, store_operand(lowering, operand, (node,), target).reshaped(shape))


def instance_normalization(lowering: Lowering, node: Node) -> None:
    """InstanceNormalization: each channel is a group of its own; a row where images are channels-first."""
    images = lowering.view(rows.float_input(node))
    _require_numbers(lowering, node, images.shape[1])
    if takes_groups(images):
        channels = images.shape[1]
        assert isinstance(channels, int)
        lowering.set(node.output, _as_they_lie(lowering, node, images, channels))
    else:
        rows.instance_normalization(lowering, node)


def _require_numbers(lowering: Lowering, node: Node, count: KnownDim) -> None:
    """Say that scale and bias are so many numbers."""
    for value in (node.input(1), node.input(2)):
        assert value is not None
        lowering.require_equal(count_of(tensor_type(value)[1]), count)


def _as_they_lie(lowering: Lowering, node: Node, images: View, groups: int) -> PendingElementwise:
    scale, bias = (lowering.contiguous(node.input(i)) for i in (1, 2))
    return normalized_groups(lowering, images, groups, scale, bias, node.float_attribute("epsilon", 1e-5), (node,))


def group_norm(lowering: Lowering, node: Node) -> None:
    """GroupNorm of com.microsoft: images whose last axis is the channels, and SiLU behind."""
    x = lowering.view(_channels_last_input(node))
    lowering.set(node.output, _activated(lowering, node, x))


def skip_group_norm(lowering: Lowering, node: Node) -> None:
    """SkipGroupNorm of com.microsoft: the sum of images, a residual or one number a channel, and a bias; then as above.

    The sum is the second output, where it is wanted.
    """
    value = _channels_last_input(node)
    _, shape = tensor_type(value)
    state = FusionState()
    total = state.add(lowering.view(value))
    for other in (node.input(3), node.input(4)):
        if other is None:
            continue
        view = lowering.contiguous(other)
        if len(view.shape) == 2:
            view = view.reshaped((view.shape[0], *(1 for _ in shape[2:]), view.shape[1]))
        total = total + state.add(lowering.operands.spread(view, shape))
    pending = PendingElementwise(total, tuple(state.inputs), shape, (node,))
    wanted = node.outputs[1] if len(node.outputs) > 1 else None
    target = lowering.new_view(total.dtype, shape) if wanted is None else lowering.result_view(wanted)
    stored = lowering.stores.store_elementwise(pending, target)
    lowering.set(wanted, stored)
    lowering.set(node.output, _activated(lowering, node, stored))


def _channels_last_input(node: Node) -> Value:
    value = node.input(0)
    if value is None or len(tensor_type(value)[1]) != 4:
        raise NotLowered("only images of rank 4 are generated")
    if not node.int_attribute("channels_last", 1):
        raise NotLowered("the channels are not last")
    return value


def _activated(lowering: Lowering, node: Node, x: View) -> PendingElementwise | View:
    """Return the normalized images, and SiLU of them where it is asked for, in the order of the operator's axes."""
    x = x if x.is_contiguous else lowering.copied(x)
    images = x.transposed((0, 3, 1, 2))
    if not takes_groups(images):
        raise NotLowered("only float32 images with a known number of channels are generated")
    epsilon = node.float_attribute("epsilon", 1e-5)
    scale, bias = (lowering.contiguous(node.input(i)) for i in (1, 2))
    normal = normalized_groups(lowering, images, node.int_attribute("groups", 1), scale, bias, epsilon, (node,))
    result = normal.expression
    if node.int_attribute("activation", 0):
        silu = meaning_of("com.microsoft", "QuickGelu", [result], {"alpha": 1.0})
        assert isinstance(silu, Scalar)
        result = silu
    views = tuple(_channels_behind(view) for view in normal.inputs)
    return PendingElementwise(result, views, x.shape, normal.operators)


def _channels_behind(view: View) -> View:
    """Return what broadcasts to images with the channels in front of the pixels as it does with them behind."""
    order = (0, 2, 3, 1) if len(view.shape) == 4 else (1, 2, 0)
    return view.transposed(order)
