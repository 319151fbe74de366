"""Images in bfloat16 for convolutions that multiply pairs of it, and which convolutions these are.

A convolution rounds what it reads. An image that only such convolutions read is rounded by the step that makes it, and
lies in memory in half of the bytes; one that others read as well, such as a residual, stays float32 and is rounded in a
step of its own, once for all convolutions. Either way the numbers are the same.

Depthwise convolutions and MaxPool gain nothing by multiplying pairs, but read half as much: they take an image that is
stored rounded, and are among those that read no other. For them alone none is rounded in a step of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ort_core.cpu.codegen.convolutions.convolution_plan import PAIR, Convolution
from ort_core.cpu.codegen.convolutions.depthwise import is_narrow
from ort_core.cpu.codegen.images.rounded_rows import CHANNELS, LANES, rounded_rows_kernel
from ort_core.cpu.codegen.products.bfloat16_product import rounds_both
from ort_core.cpu.codegen.products.bfloat16_tiles import has_tile_products
from ort_core.cpu.lowering.images.layout_steps import as_images, inside_border, kernel_text, words_of
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import Pending, PendingAnchor, PendingElementwise, order_of
from ort_core.cpu.lowering.products.quantized import quantized_value
from ort_core.cpu.lowering.rules.images.images import Pads, has_known_pads, images, open_pads_of
from ort_core.cpu.lowering.steps import Argument, NotLowered, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, channels_last, count_of, moved_nbytes
from ort_core.plugin.ir import DataType, KnownDim, Node, Value
from ort_core.plugin.loops import cast, element

F32, BF16 = DataType.FLOAT, DataType.BFLOAT16
LEAST_WIDTH = 14  # of images whose rows may lie apart
LEAST_PRODUCTS = 16  # with each number of the input: fewer save less than its rounding costs


def takes_pairs(lowering: Lowering, node: Node) -> bool:
    """Return whether a convolution is one of pairs of bfloat16: the user asked for it, and it is faster so here."""
    if not lowering.uses_bfloat16 or not rounds_both(lowering.target):
        return False
    return lowering.remembered(("takes pairs", node), lambda: _takes_pairs(lowering, node))


def _takes_pairs(lowering: Lowering, node: Node) -> bool:
    is_transposed = node.op_type == "ConvTranspose"
    if node.domain or not (is_transposed or node.op_type == "Conv") or not lowering.is_member(node):
        return False
    value, weights = node.input(0), lowering.constant_of(node.input(1))
    if value is None or weights is None or weights.ndim not in (3, 4) or weights.dtype not in (np.float32, np.float16):
        return False
    if tensor_type(value)[0] is not F32 or quantized_value(lowering, value) is not None:
        return False
    groups, (outputs, inputs) = node.int_attribute("group", 1), weights.shape[:2]
    if is_transposed:
        outputs, inputs = inputs * groups, outputs // groups
    window = weights.shape[2:] if weights.ndim == 4 else (1, weights.shape[2])
    strides = (1,) if is_transposed else node.ints_attribute("strides") or (1,)
    if inputs % PAIR or outputs % groups or not inputs:
        return False
    products = outputs // groups * int(np.prod(window)) // int(np.prod(strides))
    spec = Convolution(inputs * groups, outputs, (window[0], window[1]), groups=groups)
    return products >= LEAST_PRODUCTS and not is_narrow(spec, lowering.target)


def takes_rounded(lowering: Lowering, node: Node) -> bool:
    """Return whether a node reads images in bfloat16 as well, where they lie so: the user asked for it."""
    if not lowering.uses_bfloat16 or not rounds_both(lowering.target):
        return False
    reads = {"Conv": _is_depthwise, "MaxPool": _is_pooled_for_rounding}.get(node.op_type)
    if reads is None or node.domain or not lowering.is_member(node):
        return False
    return lowering.remembered(("takes rounded", node), lambda: reads(lowering, node))


def _is_depthwise(lowering: Lowering, node: Node) -> bool:
    """Return whether a node is a depthwise convolution of images with a border that is known."""
    value, weights = node.input(0), lowering.constant_of(node.input(1))
    if value is None or weights is None or weights.ndim not in (3, 4) or weights.dtype not in (np.float32, np.float16):
        return False
    dtype, shape = tensor_type(value)
    groups = node.int_attribute("group", 1)
    if dtype is not F32 or quantized_value(lowering, value) is not None or groups != shape[1] or groups == 1:
        return False
    return weights.shape[:2] == (groups, 1) and _has_known_border(node, weights.shape[2:], shape)


def _is_pooled_for_rounding(lowering: Lowering, node: Node) -> bool:
    """Return whether a MaxPool of images makes what is read in bfloat16 alone, with a border that is known."""
    value, window = node.input(0), node.ints_attribute("kernel_shape") or ()
    if value is None or any(node.outputs[1:]) or node.int_attribute("storage_order", 0):
        return False
    dtype, shape = tensor_type(value)
    if dtype is not F32 or len(shape) not in (3, 4) or quantized_value(lowering, value) is not None:
        return False
    is_known = _has_known_border(node, window, shape)
    return is_known and not lowering.is_returned(node.output) and _is_read_rounded(lowering, node.output)


def _has_known_border(node: Node, window: Sequence[int], shape: Sequence[KnownDim]) -> bool:
    """Return whether the pads of a node that reads images of a shape, rank 3 or 4, are numbers that kernels take."""
    rank = len(shape)
    try:
        return has_known_pads(open_pads_of(node, rank, window, (1, *shape[2:]) if rank == 3 else shape[2:]))
    except NotLowered:
        return False


def made_rounded(lowering: Lowering, value: Value) -> View | None:
    """Return a value as channels-last images of bfloat16 without gaps, if it lies so, or can be made so at no cost."""
    found = lowering.rounded.get(value)
    if found is None:
        pending = lowering.pending(value)
        if not _is_made_rounded(lowering, value, pending):
            return None
        found = lowering.rounded[value] = lowering.stored_by(value, lambda: _stored_rounded(lowering, value, pending))
    return as_images(found)


def rounded_images(lowering: Lowering, value: Value, channels: int) -> View:
    """Return a value as channels-last images (rank 4) of bfloat16 without gaps, rounded to the nearest once.

    Raises:
        NotLowered: these are not images, or how many channels they have is not known.
    """
    found = made_rounded(lowering, value)
    if found is None:
        pending = lowering.pending(value)
        if (twice := _as_stored_twice(lowering, pending)) is not None:
            found, anchor = twice
            lowering.set(value, anchor)
            images(lowering, value, channels, as_parts=True)
        else:
            found = _copied_rounded(lowering, images(lowering, value, channels, as_parts=True))
        lowering.rounded[value] = found
    return as_images(found)


def bordered_words(lowering: Lowering, x: View, weights: np.ndarray, pads: Pads) -> View | None:
    """Return images of a first layer as words with a border, ``None`` where its convolution is not one of tiles.

    ``x`` was copied from channels-first images, or may not be taken; that copy is dropped if nobody else reads it.
    """
    if not lowering.uses_bfloat16 or not has_tile_products(lowering.target) or weights.ndim != 4:
        return None
    origin, channels = lowering.row_major.get(x.buffer), weights.shape[1]
    if origin is None or origin.shape != x.shape or channels not in CHANNELS or x.shape[1] != channels:
        return None
    width = origin.shape[3]
    if not isinstance(width, int) or width < LANES:
        return None
    top, left, bottom, right = pads
    batch, _, height, _ = x.shape
    shape = (batch, channels + 1, height + (top + bottom), width + (left + right))
    words = words_of(lowering.new_view(BF16, shape, channels_last(4)))
    kernel = kernel_text(
        "roundrows", f"{channels}", lambda name: rounded_rows_kernel(name, channels), is_vectorized=True
    )
    arguments: list[Argument] = [
        pointer(origin), pointer(words), batch, height, width, origin.strides[2], origin.strides[0],
        words.strides[2], words.strides[0], top, bottom, left, right, origin.strides[1], 0, 0,
    ]  # fmt: skip
    moved = moved_nbytes([origin, words]) * 2
    lowering.emit(kernel, arguments, [origin.buffer], [words.buffer], count_of(shape), ("Round",), 0, moved)
    return words


def _is_made_rounded(lowering: Lowering, value: Value, pending: View | Pending | None) -> bool:
    """Return whether the step that makes a value can store it rounded, and nobody reads anything else."""
    if lowering.is_returned(value) or not isinstance(pending, PendingElementwise | PendingAnchor):
        return False
    rank = len(pending.shape)
    if rank not in (3, 4) or order_of(pending) != channels_last(rank) or not isinstance(pending.shape[1], int):
        return False
    if isinstance(pending, PendingAnchor) and BF16 not in pending.anchor.result_types:
        return False
    return _is_read_rounded(lowering, value)


def _is_read_rounded(lowering: Lowering, value: Value) -> bool:
    """Return whether all that read a value take it in bfloat16."""
    return all(
        (takes_pairs(lowering, node) or takes_rounded(lowering, node))
        and node.input(0) is value
        and value not in node.inputs[1:]
        for node in value.consumers()
    )


def _as_stored_twice(lowering: Lowering, pending: View | Pending | None) -> tuple[View, PendingAnchor] | None:
    """Return the view that a step which makes images can store them in as well, rounded, with that step."""
    if not isinstance(pending, PendingAnchor) or pending.dtype is not F32:
        return None
    with_copy, rank = getattr(pending.anchor, "with_copy", None), len(pending.shape)
    if with_copy is None or order_of(pending) != channels_last(rank) or not isinstance(pending.shape[1], int):
        return None
    view = lowering.new_view(BF16, pending.shape, channels_last(rank))
    anchor = with_copy(view, lowering.target)
    return None if anchor is None else (view, replace(pending, anchor=anchor))


def _stored_rounded(lowering: Lowering, value: Value, pending: View | Pending | None) -> View:
    assert isinstance(pending, PendingElementwise | PendingAnchor)
    target = _inside_border(lowering, value, pending)
    if target is None:
        target = lowering.new_view(BF16, pending.shape, channels_last(len(pending.shape)))
    expression = cast(pending.expression, BF16)
    if isinstance(pending, PendingElementwise):
        return lowering.stores.store_elementwise(replace(pending, expression=expression, core=None), target)
    rounded = replace(pending, expression=expression)
    pending.anchor.store(lowering, rounded, target)  # type: ignore[attr-defined]  # every anchor has it; see rules
    return target


def _inside_border(lowering: Lowering, value: Value, pending: PendingElementwise | PendingAnchor) -> View | None:
    """Return a place for images inside of the border that the one convolution which reads them has, or ``None``.

    Short rows are as well copied: those of one image side by side are fewer tiles.
    """
    is_able = isinstance(pending, PendingAnchor) and getattr(pending.anchor, "stores_in_border", False)
    if not is_able or not has_tile_products(lowering.target):
        return None
    channels, *sizes = (size for size in pending.shape[1:] if isinstance(size, int))
    node = next(value.readers()) if lowering.is_single_use(value) else None
    if node is None or node.op_type != "Conv" or not takes_pairs(lowering, node):
        return None
    if len(sizes) != 2 or sizes[1] < LEAST_WIDTH:
        return None
    weights = lowering.constant_of(node.input(1))
    pads = open_pads_of(node, 4, weights.shape[2:], sizes) if weights is not None else ()
    if not any(pads) or not has_known_pads(pads):
        return None
    return inside_border(lowering, pending.shape[0], (channels, sizes[0], sizes[1]), pads)


def _copied_rounded(lowering: Lowering, x: View) -> View:
    pending = PendingElementwise(cast(element(0, F32), BF16), (x,), x.shape, ("Round",))
    return lowering.stores.store_elementwise(pending, lowering.new_view(BF16, x.shape, channels_last(4)))
