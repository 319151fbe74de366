"""MaxPool whose indices are used: by a kernel of its own, over rows as the tensor has them."""

from __future__ import annotations

import math

from ort_core.cpu.codegen.images.indexed_pooling import IndexedPooling, indexed_pooling_kernel
from ort_core.cpu.lowering.images.layout_steps import kernel_text
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.rules.images.images import pads_by_axis, strides_and_dilations
from ort_core.cpu.lowering.steps import Argument, NotLowered, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import count_of
from ort_core.plugin.ir import DataType, Node, minimum
from ort_core.plugin.ops import node_windows

MOST_TAPS = 64  # of a window: all of them are written out
_TYPES = frozenset({DataType.FLOAT, DataType.DOUBLE, DataType.INT8, DataType.UINT8})


def max_pooling_with_indices(lowering: Lowering, node: Node) -> None:
    """MaxPool with its second output; the windows are those that ``require_inner_pads`` has let through."""
    x = lowering.contiguous(node.input(0))
    kernel, axes = node.ints_attribute("kernel_shape") or (), len(x.shape) - 2
    if x.dtype not in _TYPES or len(kernel) != axes or not axes or not 0 < math.prod(kernel) <= MOST_TAPS:
        raise NotLowered(f"the indices of windows {kernel} over {x.dtype.text} are not generated")
    indices = node.outputs[1]
    assert indices is not None
    shape = tensor_type(indices)[1]
    if len(shape) != len(x.shape):
        raise NotLowered("the results have another rank")
    for left, right in zip(shape[:2], x.shape[:2], strict=True):
        lowering.require_equal(left, right)
    for size in x.shape[2:]:
        lowering.require_equal(minimum(size, 1), 1)
    strides, dilations = strides_and_dilations(node, axes)
    before, after = pads_by_axis(node, kernel, x.shape[2:])
    is_inner = not any(before) and not any(after) and not node.int_attribute("ceil_mode", 0)
    is_inner &= all(_fits(axis.size, axis.reach) for axis in node_windows(node, x.shape[2:], kernel))
    spec = IndexedPooling(
        x.dtype, tuple(kernel), strides, dilations, tuple(before), is_inner,
        node.int_attribute("storage_order", 0) != 0,
    )  # fmt: skip
    places = lowering.result_view(indices)
    first = node.outputs[0]
    target = lowering.new_view(x.dtype, shape) if first is None else lowering.result_view(first)
    words: list[Argument] = [pointer(target), pointer(places), pointer(x), count_of(x.shape[:2])]
    for size, count in zip(x.shape[2:], shape[2:], strict=True):
        words.extend((size, count))
    kernel_code = kernel_text("indexedpool", repr(spec), lambda name: indexed_pooling_kernel(name, spec))
    lowering.emit(
        kernel_code, words, [x.buffer], [target.buffer, places.buffer], count_of(shape) * (2 * math.prod(kernel)),
        (node,),
    )  # fmt: skip
    lowering.set(first, target)
    lowering.set(indices, places)


def _fits(size: object, reach: object) -> bool:
    """Return whether a window is known to be no larger than its axis."""
    return isinstance(size, int) and isinstance(reach, int) and reach <= size
