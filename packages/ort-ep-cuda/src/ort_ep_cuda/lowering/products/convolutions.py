"""Convolutions and transposed ones: library calls, with what is added and applied behind them where it is fused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ort_core.plugin import InvalidArgument
from ort_core.plugin.ir import DataType, Node, Value
from ort_core.plugin.ops import TransposedAxis, WindowAxis, known_sizes, node_transposed, node_windows
from ort_ep_cuda.lowering.libraries.anchors import Addend, Anchor, lower_anchor, nowhere
from ort_ep_cuda.lowering.libraries.library_steps import Convolution, Window
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.products.products import refuse_type
from ort_ep_cuda.lowering.values.tensors import LazyTensor
from ort_ep_cuda.lowering.values.views import Shape

CONVOLUTION_TYPES = frozenset({DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16})


def refuse_convolution(node: Node) -> str | None:
    """Return why a convolution is not run: types, weights of unknown shape, or more than three axes of space."""
    weights = node.input(1)
    shape = getattr(weights.type, "shape", None) if isinstance(weights, Value) else None
    if shape is None or not 3 <= len(shape) <= 5:
        return "only convolutions over one to three axes of space with weights of known rank are run"
    return refuse_type(node, CONVOLUTION_TYPES)


def lower_convolution(facts: LoweredNode) -> None:
    """Convolve by the library; the bias joins the next elementwise kernel."""
    lower_anchor(facts, convolution_anchor(facts))


def lower_transposed(facts: LoweredNode) -> None:
    """Run the transpose of a convolution by the library; the bias joins the next elementwise kernel."""
    lower_anchor(facts, transposed_anchor(facts))


def convolution_anchor(facts: LoweredNode) -> Anchor:
    """Return the convolution of Conv and its bias."""
    axes = node_windows(facts.node, facts.tensor(0).shape[2:], facts.tensor(1).shape[2:])
    shape = (facts.tensor(0).shape[0], facts.tensor(1).shape[0], *window_counts(facts.node, axes))
    return _anchor(facts, shape, _window(axes))


def transposed_anchor(facts: LoweredNode) -> Anchor:
    """Return the transposed convolution of ConvTranspose and its bias."""
    axes = node_transposed(facts.node, facts.tensor(0).shape[2:], facts.tensor(1).shape[2:])
    channels = facts.tensor(1).shape[1] * facts.node.int_attribute("group", 1)
    shape = (facts.tensor(0).shape[0], channels, *known_sizes(axis.result for axis in axes))
    return _anchor(facts, shape, _window(axes), is_transposed=True)


def window_counts(node: Node, axes: Sequence[WindowAxis], *, is_pooling: bool = False) -> Shape:
    """Return how many windows there are along each axis; pooling may have none, as on the CPU.

    Raises:
        InvalidArgument: a window does not fit into its padded axis, or is two strides too large where it is pooled.
    """
    for number, axis in enumerate(axes):
        size, before, after, reach = known_sizes((axis.size, axis.before, axis.after, axis.reach))
        missing = reach - (size + before + after)
        if missing > 0 and not axis.count and not (is_pooling and missing < 2 * axis.stride):
            raise InvalidArgument(
                f"{node.describe()}: a window of {reach} does not fit into axis {number} of size {size} and its padding"
            )
    return known_sizes(axis.count for axis in axes)


def _window(axes: Sequence[WindowAxis] | Sequence[TransposedAxis]) -> Window:
    return Window(
        known_sizes(axis.before for axis in axes),
        known_sizes(axis.after for axis in axes),
        tuple(axis.stride for axis in axes),
        tuple(axis.dilation for axis in axes),
    )


def _anchor(facts: LoweredNode, shape: Shape, window: Window, *, is_transposed: bool = False) -> Anchor:
    builder = facts.builder
    addend = Addend(_column(facts.tensor(2), len(shape) - 1)) if facts.has(2) else None
    if not all(shape):
        return Anchor(None, shape, addend)
    dtype = facts.tensor(0).dtype
    order = channels_last(len(shape)) if len(shape) > 3 and builder.libraries.prefers_channels_last(dtype) else ()
    x, weights = (builder.dense(facts.value(index), order) for index in (0, 1))
    out = nowhere(x, shape, order)
    step = Convolution(out, x, weights, window, facts.node.int_attribute("group", 1), is_transposed)
    return Anchor(step, shape, addend, order)


def _column(bias: LazyTensor, rank: int) -> LazyTensor:
    """Return a bias with axes of one place behind its channels."""
    ones = (1,) * (rank - 1)
    shape = (bias.shape[0], *ones)
    return bias.moved(lambda view: replace(view, shape=shape, strides=(view.strides[0], *ones)), shape)


def channels_last(rank: int) -> Shape:
    """Return the order of axes in which channels lie behind the space."""
    return (0, *range(2, rank), 1)
