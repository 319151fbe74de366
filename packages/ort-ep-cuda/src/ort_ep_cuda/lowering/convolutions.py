"""Convolutions and transposed ones: library calls, with what is added and applied behind them where it is fused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ort_core.plugin.ir import DataType, Node, Value
from ort_ep_cuda.lowering.anchors import Addend, Anchor, lower_anchor, nowhere
from ort_ep_cuda.lowering.library_steps import Convolution, Window
from ort_ep_cuda.lowering.node_facts import LoweredNode
from ort_ep_cuda.lowering.products import refuse_type
from ort_ep_cuda.lowering.tensors import LazyTensor
from ort_ep_cuda.lowering.views import Shape

CONVOLUTION_TYPES = frozenset({DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16})


def refuse_convolution(node: Node) -> str | None:
    """Return why a convolution is not run: types, weights of unknown shape, or more than three axes of space."""
    weights = node.input(1)
    shape = getattr(weights.type, "shape", None) if isinstance(weights, Value) else None
    if shape is None or not 3 <= len(shape) <= 5:
        return "only convolutions over one to three axes of space with weights of known rank are run"
    return refuse_type(node, CONVOLUTION_TYPES)


def refuse_transposed(node: Node) -> str | None:
    """Return why a transposed convolution is not run: as a convolution, or sizes that a run does not know."""
    if node.string_attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        return "ConvTranspose with this auto_pad is not run"
    return refuse_convolution(node)


def lower_convolution(facts: LoweredNode) -> None:
    """Convolve by the library; the bias joins the next elementwise kernel."""
    lower_anchor(facts, convolution_anchor(facts))


def lower_transposed(facts: LoweredNode) -> None:
    """Run the transpose of a convolution by the library; the bias joins the next elementwise kernel."""
    lower_anchor(facts, transposed_anchor(facts))


def convolution_anchor(facts: LoweredNode) -> Anchor:
    """Return the convolution of Conv and its bias."""
    sizes, extent, strides, dilations = _window(facts)
    before, after = window_pads(facts.node, sizes, extent, strides)
    results = [
        (size + b + a - window) // stride + 1
        for size, b, a, window, stride in zip(sizes, before, after, extent, strides, strict=True)
    ]
    shape = (facts.tensor(0).shape[0], facts.tensor(1).shape[0], *results)
    return _anchor(facts, shape, Window(before, after, strides, dilations))


def transposed_anchor(facts: LoweredNode) -> Anchor:
    """Return the transposed convolution of ConvTranspose and its bias."""
    sizes, extent, strides, dilations = _window(facts)
    results, before, after = _transposed_sizes(facts.node, sizes, extent, strides)
    channels = facts.tensor(1).shape[1] * facts.node.int_attribute("group", 1)
    shape = (facts.tensor(0).shape[0], channels, *results)
    return _anchor(facts, shape, Window(before, after, strides, dilations), is_transposed=True)


def _window(facts: LoweredNode) -> tuple[Shape, Shape, Shape, Shape]:
    """Return the sizes of the space, how far a window reaches, its strides and its dilations."""
    sizes, taps = facts.tensor(0).shape[2:], facts.tensor(1).shape[2:]
    strides = tuple(facts.node.ints_attribute("strides") or (1,) * len(sizes))
    dilations = tuple(facts.node.ints_attribute("dilations") or (1,) * len(sizes))
    return sizes, tuple(d * (size - 1) + 1 for d, size in zip(dilations, taps, strict=True)), strides, dilations


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


def _transposed_sizes(
    node: Node, sizes: Sequence[int], extent: Sequence[int], strides: Sequence[int]
) -> tuple[Shape, Shape, Shape]:
    """Return the result's sizes and the padding that is cut off before and behind."""
    space = range(len(sizes))
    added = node.ints_attribute("output_padding") or (0,) * len(sizes)
    full = [(sizes[a] - 1) * strides[a] + extent[a] + added[a] for a in space]
    wanted = node.ints_attribute("output_shape")
    mode = node.string_attribute("auto_pad", "NOTSET")
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(sizes[a] * strides[a] for a in space)
    if wanted is None:
        pads = (node.ints_attribute("pads") if mode != "VALID" else None) or (0,) * (2 * len(sizes))
        before, after = tuple(pads[: len(sizes)]), tuple(pads[len(sizes) :])
        return tuple(full[a] - before[a] - after[a] for a in space), before, after
    total = [max(full[a] - wanted[-len(sizes) :][a], 0) for a in space]  # what lies beyond all windows stays zero
    small, large = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    before, after = (small, large) if mode == "SAME_UPPER" else (large, small)
    return tuple(wanted[-len(sizes) :]), before, after


def window_pads(node: Node, sizes: Sequence[int], extent: Sequence[int], strides: Sequence[int]) -> tuple[Shape, Shape]:
    """Return how far windows reach beyond each side of the space: ``pads``, or computed as ``auto_pad`` says."""
    mode = node.string_attribute("auto_pad", "NOTSET")
    space = len(sizes)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        needed = [
            max(0, (-(-size // stride) - 1) * stride + window - size)
            for size, stride, window in zip(sizes, strides, extent, strict=True)
        ]
        small, large = tuple(n // 2 for n in needed), tuple(n - n // 2 for n in needed)
        return (small, large) if mode == "SAME_UPPER" else (large, small)
    pads = node.ints_attribute("pads") if mode != "VALID" else None
    pads = pads or (0,) * (2 * space)
    return tuple(pads[:space]), tuple(pads[space:])
