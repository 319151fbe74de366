"""Pooling of images that lie channels-first: inputs of a model, above all of one that is nothing but the pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypedDict

from ort_core.cpu.codegen.images.plane_pooling import (
    ARGUMENTS,
    MOST_STRIDE,
    MOST_TAPS,
    PlanePooling,
    plane_pooling_kernel,
)
from ort_core.cpu.codegen.nests.elementwise_nests import has_masks
from ort_core.cpu.lowering.images.layout_steps import kernel_text
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.products.quantized import quantized_value
from ort_core.cpu.lowering.rules.images.images import has_known_pads, open_pads_of, pair
from ort_core.cpu.lowering.steps import Argument, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, count_of, moved_nbytes
from ort_core.plugin.ir import DataType, KnownDim, Node, Value

F32 = DataType.FLOAT
Pair = tuple[int, int]
OPERATORS = ("MaxPool", "AveragePool")
LEAST_APART = 4  # taps along both axes: of 3 x 3 windows nine loads take as long as two passes
MOST_APART = 16  # taps along a row, as one pass of its own


class AxisWindow(TypedDict):
    """What of a window is another one where only one axis is pooled."""

    kernel: Pair
    strides: Pair
    pads: tuple[int, int, int, int]


def plane_pooling(lowering: Lowering, node: Node) -> bool:
    """Pool images that lie channels-first where they lie; return whether they do, and the window is small enough."""
    value = node.input(0)
    dtype, shape = tensor_type(node.output)
    rank = len(shape)
    if value is None or node.op_type not in OPERATORS or dtype is not F32 or rank not in (3, 4):
        return False
    kernel, strides = (pair(node.ints_attribute(name), rank) for name in ("kernel_shape", "strides"))
    if pair(node.ints_attribute("dilations"), rank) != (1, 1):
        return False
    is_apart = is_pooled_apart(kernel, is_maximum=node.op_type == "MaxPool")
    if rank == 4 and not _fills_rows(lowering, shape):
        return False
    most = MOST_APART if is_apart else MOST_TAPS
    if kernel[1] > most or strides[1] > MOST_STRIDE or not has_masks(lowering.target, [F32]):
        return False
    x = _planes(lowering, value)
    if x is None or len(x.shape) != rank:
        return False
    window, lines = (kernel[1:], (1,)) if rank == 3 else (kernel, ())
    pads = open_pads_of(node, rank, window, (*lines, *x.shape[2:]))
    if not has_known_pads(pads):
        return False
    counts_border = node.int_attribute("count_include_pad", 0) != 0
    spec = PlanePooling(kernel, strides, pads, node.op_type == "MaxPool", counts_border)
    target = _target(lowering, node, x)
    if is_apart:  # down the columns, then along the rows
        between = lowering.new_view(F32, (*target.shape[:3], x.shape[3]))
        down, along = (replace(spec, **each) for each in apart(kernel, strides, pads))
        _emit(lowering, node, down, x, between)
        x, spec = between, along
    _emit(lowering, node, spec, x, target)
    lowering.set(node.output, target)
    return True


def _fills_rows(lowering: Lowering, shape: Sequence[KnownDim]) -> bool:
    """Return whether rows fill vectors sooner than channels do: parts of vectors read under a mask at every tap."""
    width, channels, lanes = shape[-1], shape[1], lowering.target.lanes
    if isinstance(channels, int) and channels < lanes:
        return True
    return not isinstance(width, int) or width >= 2 * lanes


def is_pooled_apart(kernel: Pair, *, is_maximum: bool) -> bool:
    """Return whether a window is pooled along one axis, then along the other: nine rows and nine columns, not 81."""
    return is_maximum and min(kernel) >= LEAST_APART


def apart(kernel: Pair, strides: Pair, pads: tuple[int, int, int, int]) -> tuple[AxisWindow, AxisWindow]:
    """Return a window down the columns and one along the rows, which one after the other are the whole window."""
    top, left, bottom, right = pads
    return (
        {"kernel": (kernel[0], 1), "strides": (strides[0], 1), "pads": (top, 0, bottom, 0)},
        {"kernel": (1, kernel[1]), "strides": (1, strides[1]), "pads": (0, left, 0, right)},
    )


def _planes(lowering: Lowering, value: Value) -> View | None:
    """Return images that are given to the group as they lie, ``None`` for what a step of it makes or has turned."""
    if value.producer is not None and lowering.is_member(value.producer):
        return None
    if lowering.constant_of(value) is not None or quantized_value(lowering, value) is not None:
        return None
    view = lowering.view(value)
    return view if view.is_contiguous and view.dtype is F32 else None


def _target(lowering: Lowering, node: Node, x: View) -> View:
    target = lowering.result_view(node.output)
    lowering.require_equal(x.shape[0], target.shape[0])
    lowering.require_equal(x.shape[1], target.shape[1])
    return target


def _emit(lowering: Lowering, node: Node, spec: PlanePooling, x: View, target: View) -> None:
    machine = lowering.target
    sizes: list[KnownDim] = [1] * (4 - len(target.shape))
    arguments: list[Argument] = [
        pointer(x), pointer(target), count_of(x.shape[:2]), *sizes, *target.shape[2:], *sizes, *x.shape[2:],
    ]  # fmt: skip
    assert len(arguments) == ARGUMENTS.x_width + 1
    kernel = kernel_text(
        "planepool", repr(spec), lambda name: plane_pooling_kernel(name, spec, machine), is_vectorized=True
    )
    work = count_of(target.shape) * (spec.kernel[0] * spec.kernel[1])
    lowering.emit(
        kernel, arguments, [x.buffer], [target.buffer], work, (node,), work, moved_nbytes([x, target])
    )  # fmt: skip
