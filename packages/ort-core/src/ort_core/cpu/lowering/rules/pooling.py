"""Pooling of channels-last images: over windows, and over whole images."""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.cpu.codegen.pooling import ARGUMENTS, Pooling, pooling_kernel
from ort_core.cpu.lowering.layout_steps import as_images, kernel_text
from ort_core.cpu.lowering.lowering import Lowering, tensor_type
from ort_core.cpu.lowering.rules.images import images, pads_of, pair
from ort_core.cpu.lowering.rules.integer_pooling import byte_max_pooling
from ort_core.cpu.lowering.steps import Argument, NotLowered, pointer
from ort_core.cpu.lowering.views import View, channels_last, count_of, dense_strides, moved_nbytes, ordered_strides
from ort_core.plugin.ir import DataType, KnownDim, Node

F32 = DataType.FLOAT


def pooling(lowering: Lowering, node: Node) -> None:
    """MaxPool, AveragePool and GlobalAveragePool/GlobalMaxPool of 1-D and 2-D images."""
    if any(value is not None for value in node.outputs[1:]):
        raise NotLowered("the indices of MaxPool are used")
    if node.int_attribute("storage_order", 0):
        raise NotLowered("storage_order")
    if not node.int_attribute("ceil_mode", 0) and byte_max_pooling(lowering, node):
        return
    dtype, shape = tensor_type(node.output)
    if dtype is not F32 or len(shape) not in (3, 4):
        raise NotLowered("only 1-D and 2-D float32 images are pooled natively")
    x = images(lowering, node.input(0))
    is_maximum = node.op_type in ("MaxPool", "GlobalMaxPool")
    if node.op_type.startswith("Global"):
        pool_whole(lowering, node, x, is_maximum=is_maximum)
        return
    lowering.set(node.output, pool_windows(lowering, node, x, shape, is_maximum=is_maximum))


def pool_windows(lowering: Lowering, node: Node, x: View, shape: Sequence[KnownDim], *, is_maximum: bool) -> View:
    """Pool channels-last images of rank 4 under the node's windows; return the result of ``shape``, channels first."""
    rank, channels = len(shape), x.shape[1]
    assert isinstance(channels, int)
    kernel = pair(node.ints_attribute("kernel_shape"), rank)
    strides, dilations = pair(node.ints_attribute("strides"), rank), pair(node.ints_attribute("dilations"), rank)
    window = kernel[1:] if rank == 3 else kernel
    pads = pads_of(node, rank, window, strides, dilations, x.shape[2:])
    counts = node.int_attribute("count_include_pad", 0) != 0
    spec = Pooling(channels, kernel, strides, dilations, pads, is_maximum, counts)
    target = lowering.new_view(F32, shape, channels_last(rank))
    emit_pooling(lowering, node, spec, x, as_images(target))
    return target


def pool_whole(lowering: Lowering, node: Node, x: View, *, is_maximum: bool) -> None:
    """Reduce channels-last images to one number per image and channel, in whatever shape the node gives it."""
    channels = x.shape[1]
    assert isinstance(channels, int)
    spec = Pooling(channels, None, is_maximum=is_maximum)
    target = lowering.new_view(F32, (x.shape[0], channels, 1, 1), channels_last(4))
    emit_pooling(lowering, node, spec, x, target)
    _, shape = tensor_type(node.output)
    is_images = len(shape) in (3, 4)
    strides = ordered_strides(shape, channels_last(len(shape))) if is_images else dense_strides(shape)
    order = channels_last(len(shape)) if is_images else ()
    lowering.set(node.output, View(target.buffer, shape, strides, 0, order))


def emit_pooling(lowering: Lowering, node: Node, spec: Pooling, x: View, y: View) -> None:
    """Write the step that pools channels-last images of rank 4."""
    machine = lowering.target
    kernel_code = kernel_text("pool", repr(spec), lambda name: pooling_kernel(name, spec, machine), is_vectorised=True)
    words: list[Argument] = [
        pointer(x), pointer(y), y.shape[0], y.shape[2], y.shape[3], x.shape[2], x.shape[3], x.strides[2], x.strides[0],
        y.strides[2], y.strides[0],
    ]  # fmt: skip
    assert len(words) == ARGUMENTS.epilogue
    lowering.emit(
        kernel_code, words, [x.buffer], [y.buffer], count_of(x.shape), (node,), count_of(x.shape), moved_nbytes([x, y])
    )  # fmt: skip
