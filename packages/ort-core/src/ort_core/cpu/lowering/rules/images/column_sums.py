"""Col2Im: columns of windows are added back into images."""

from __future__ import annotations

from ort_core.cpu.codegen.images.column_sums import ColumnSums, column_sums_kernel
from ort_core.cpu.lowering.images.layout_steps import kernel_text
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.rules.images.images import strides_and_dilations
from ort_core.cpu.lowering.steps import Argument, NotLowered, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import count_of
from ort_core.plugin.ir import DataType, Node

MOST_TAPS = 64  # of a window: all of them are written out
_AXES = 2


def column_sums(lowering: Lowering, node: Node) -> None:
    """Col2Im of images of known size and window."""
    columns = lowering.contiguous(node.input(0))
    image, block = (lowering.constant_of(node.input(place)) for place in (1, 2))
    if image is None or block is None or image.shape != (_AXES,) or block.shape != (_AXES,):
        raise NotLowered("the sizes of the image and of the window are not two constants each")
    size, taps = [int(each) for each in image], (int(block[0]), int(block[1]))
    count = taps[0] * taps[1]
    if columns.dtype is not DataType.FLOAT or len(columns.shape) != 3 or not 0 < count <= MOST_TAPS or min(taps) < 1:
        raise NotLowered(f"Col2Im of {columns.dtype.text} with a window of {taps[0]} x {taps[1]} is not generated")
    strides, dilations = strides_and_dilations(node, _AXES)
    pads = node.ints_attribute("pads") or (0,) * 4
    if len(pads) != 2 * _AXES or min(*pads, 0) < 0 or min(*strides, *dilations, *size) < 1:
        raise NotLowered("pads, strides or sizes of Col2Im are not generated")
    reaches = [(taps[axis] - 1) * dilations[axis] + 1 for axis in range(_AXES)]
    windows = [
        (size[axis] + pads[axis] + pads[axis + _AXES] - reaches[axis]) // strides[axis] + 1 for axis in range(_AXES)
    ]
    channels = columns.shape[1]
    if min(windows) < 1 or not isinstance(channels, int) or channels % count or not channels:
        raise NotLowered("the columns of Col2Im do not fit its windows, or their number is open")
    lowering.require_equal(columns.shape[2], windows[0] * windows[1])
    shape = (columns.shape[0], channels // count, *size)
    if len(tensor_type(node.output)[1]) != len(shape):
        raise NotLowered("the result has another rank")
    target = lowering.result_view(node.output, shape)
    spec = ColumnSums(
        taps, (strides[0], strides[1]), (dilations[0], dilations[1]), (pads[0], pads[1])
    )  # fmt: skip
    machine = lowering.target
    kernel = kernel_text("columnsums", repr(spec), lambda name: column_sums_kernel(name, spec, machine))
    words: list[Argument] = [pointer(target), pointer(columns), count_of(shape[:2]), *size, *windows]
    work = count_of(columns.shape)
    lowering.emit(kernel, words, [columns.buffer], [target.buffer], work, (node,), work)
    lowering.set(node.output, target)
