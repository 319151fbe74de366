"""Operators that slide a window: convolutions and pooling."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ort_core.plugin.ir import Node
from ort_core.plugin.ops import known_sizes, node_transposed, node_windows
from ort_ep_directml.lowering.elementwise import binary
from ort_ep_directml.lowering.emission import EmissionState
from ort_ep_directml.lowering.operand import Operand, reinterpreted
from ort_ep_directml.lowering.plan import Sizes
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.lowering.rule import Rule
from ort_ep_directml.schema.element_types import ElementType
from ort_ep_directml.schema.enumerators import ConvolutionDirection, ConvolutionMode, ReduceFunction


@dataclass(frozen=True, slots=True)
class Window:
    """A window over the last dimensions.

    Attributes:
        sizes: of the window.
        strides: between two places of it.
        dilations: between two elements of it.
        before: padding in front.
        after: padding behind.
    """

    sizes: Sizes
    strides: Sizes
    dilations: Sizes
    before: Sizes
    after: Sizes

    @property
    def spans(self) -> Sizes:
        """How many elements it reaches over."""
        return tuple((n - 1) * d + 1 for n, d in zip(self.sizes, self.dilations, strict=True))

    def fields(self) -> dict[str, object]:
        """Return what every operator with a window is told."""
        return {"Strides": self.strides, "StartPadding": self.before, "EndPadding": self.after}


def window_of(node: Node, kernel: Sequence[int], entering: Sequence[int]) -> Window:
    """Return a node's window, with the padding that gives the sizes of its result.

    Args:
        node: a convolution or a pooling.
        kernel: sizes of the window.
        entering: the last sizes of its input.
    """
    axes = node_windows(node, entering, kernel)
    before, after, beyond = (
        known_sizes(getattr(axis, name) for axis in axes) for name in ("before", "after", "beyond")
    )
    if min(*before, *after) < 0:
        raise Refused(f"{node.op_type} with negative padding is left to others")
    return Window(
        tuple(kernel),
        tuple(axis.stride for axis in axes),
        tuple(axis.dilation for axis in axes),
        before,
        tuple(map(operator.add, after, beyond)),  # the last place may reach beyond the padding
    )


def channel_shaped(to: EmissionState, operand: Operand, rank: int) -> Operand:
    """Return a vector of one number for each channel as sizes ``1, C, 1, ...``; a single number with as many ones."""
    count = math.prod(operand.sizes)
    return to.reshape(operand, (1, count, *(1,) * (rank - 2)))


def _conv(to: EmissionState, node: Node) -> Operand:
    x, filters = to.operand(node.input(0)), to.operand(node.input(1))
    window = window_of(node, filters.sizes[2:], x.sizes[2:])
    return convolved(to, node, (x, filters), window, ConvolutionDirection.FORWARD, (0,) * (x.rank - 2))


def convolved(
    to: EmissionState,
    node: Node,
    operands: tuple[Operand, Operand],
    window: Window,
    direction: ConvolutionDirection,
    output_padding: Sizes,
) -> Operand:
    """Append a convolution of a node's input and filters, with its bias where it has one."""
    x, filters = operands
    bias = None if node.input(2) is None else channel_shaped(to, to.operand(node.input(2)), x.rank)
    is_apart = bias is not None and any(output_padding)  # DirectML leaves the padding of a result without its bias
    flags = {"Mode": int(ConvolutionMode.CROSS_CORRELATION), "Direction": int(direction)}
    found = to.emit(
        "CONVOLUTION",
        (x.dtype, to.sizes(node.output)),
        Input=x,
        Filter=filters,
        Bias=None if is_apart else bias,
        Dilations=window.dilations,
        OutputPadding=output_padding,
        GroupCount=node.int_attribute("group", 1),
        **flags,
        **window.fields(),
    )
    return binary(to, "ELEMENT_WISE_ADD", found, bias) if is_apart and bias is not None else found


def _conv_transpose(to: EmissionState, node: Node) -> Operand:
    x, filters = to.operand(node.input(0)), to.operand(node.input(1))
    axes = node_transposed(node, x.sizes[2:], filters.sizes[2:])
    cut = [known_sizes((axis.before, axis.after, axis.missing)) for axis in axes]
    before, after = [each[0] for each in cut], [each[1] for each in cut]
    extra = [axis.extra + each[2] for axis, each in zip(axes, cut, strict=True)]
    for place in range(len(axes)):
        kept = min(after[place], extra[place])  # DirectML adds zeros behind what it cut, ONNX cuts less
        after[place], extra[place] = after[place] - kept, extra[place] - kept
    strides, dilations = tuple(axis.stride for axis in axes), tuple(axis.dilation for axis in axes)
    if any(map(operator.ge, extra, strides)):
        raise Refused("DirectML adds less than a stride to a transposed convolution")
    window = Window(filters.sizes[2:], strides, dilations, tuple(before), tuple(after))
    return convolved(to, node, (x, filters), window, ConvolutionDirection.BACKWARD, tuple(extra))


def _flat(to: EmissionState, x: Operand) -> Operand:
    """Return an input of pooling with at least two dimensions behind the channels: one in front of a single one."""
    return to.reshape(x, (*x.sizes[:2], 1, x.sizes[2])) if x.rank == 3 else x


def _widened(window: Window) -> Window:
    if len(window.sizes) > 1:
        return window
    return Window(
        (1, *window.sizes), (1, *window.strides), (1, *window.dilations), (0, *window.before), (0, *window.after)
    )


def _pooling(to: EmissionState, node: Node) -> tuple[Operand, Window, Sizes]:
    """Return a pooling's input, its window, and the sizes that it makes."""
    x, sizes = to.operand(node.input(0)), to.sizes(node.outputs[0])
    kernel = node.ints_attribute("kernel_shape") or ()
    if len(kernel) != x.rank - 2:
        raise Refused(f"{node.op_type} has a window of {len(kernel)} dimensions over {x.rank - 2}")
    window = _widened(window_of(node, kernel, x.sizes[2:]))
    flat = _flat(to, x)
    return flat, window, (*sizes[:2], 1, sizes[2]) if x.rank == 3 else sizes


def _max_pool(to: EmissionState, node: Node) -> list[Operand]:
    if node.int_attribute("storage_order", 0):
        raise Refused("MaxPool whose indices count columns first is left to others")
    x, window, sizes = _pooling(to, node)
    made = {"Output": (x.dtype, sizes)}
    if len(node.outputs) > 1 and node.outputs[1] is not None:
        made["OutputIndices"] = (ElementType.UINT64, sizes)
    fields = {"WindowSize": window.sizes, "Dilations": window.dilations, **window.fields()}
    found = to.emit_many("MAX_POOLING2", made, Input=x, **fields)
    shaped = [to.reshape(each, to.sizes(value)) for each, value in zip(found, node.outputs, strict=False)]
    return [shaped[0], *(reinterpreted(each, ElementType.INT64) for each in shaped[1:])]


def _average_pool(to: EmissionState, node: Node) -> Operand:
    x, window, sizes = _pooling(to, node)
    counts = node.int_attribute("count_include_pad", 0)
    axes = node_windows(node, to.operand(node.input(0)).sizes[2:], node.ints_attribute("kernel_shape") or ())
    if counts and any(known_sizes(axis.beyond for axis in axes)):
        raise Refused("AveragePool that counts padding, and whose last window reaches beyond it, divides otherwise")
    return to.reshape(_pooled(to, "AVERAGE_POOLING", x, window, sizes, IncludePadding=counts), to.sizes(node.output))


def _lp_pool(to: EmissionState, node: Node) -> Operand:
    x, window, sizes = _pooling(to, node)
    return to.reshape(_pooled(to, "LP_POOLING", x, window, sizes, P=node.int_attribute("p", 2)), to.sizes(node.output))


def _pooled(to: EmissionState, kind: str, x: Operand, window: Window, sizes: Sizes, **fields: object) -> Operand:
    """Append a pooling, in the form with dilations where it has any."""
    fields |= {"WindowSize": window.sizes, **window.fields()}
    if any(step != 1 for step in window.dilations):
        return to.emit(f"{kind}1", (x.dtype, sizes), Input=x, Dilations=window.dilations, **fields)
    return to.emit(kind, (x.dtype, sizes), Input=x, **fields)


def over_space(to: EmissionState, x: Operand, function: ReduceFunction) -> Operand:
    """Append a reduction over all dimensions behind the channels, which become 1."""
    made = (x.dtype, (*x.sizes[:2], *(1,) * (x.rank - 2)))
    return to.emit("REDUCE", made, Function=int(function), Input=x, Axes=tuple(range(2, x.rank)))


def _global(function: ReduceFunction) -> Rule:
    return Rule(lambda to, node: over_space(to, to.operand(node.input(0)), function))


def _global_lp_pool(to: EmissionState, node: Node) -> Operand:
    functions = {1: ReduceFunction.L1, 2: ReduceFunction.L2}
    p = node.int_attribute("p", 2)
    if p not in functions:
        raise Refused(f"GlobalLpPool with p={p} is left to others; DirectML reduces by 1 and 2")
    return over_space(to, to.operand(node.input(0)), functions[p])


WINDOWS: Mapping[str, Rule] = {
    "AveragePool": Rule(_average_pool, oldest=7),
    "Conv": Rule(_conv, required=2),
    "ConvTranspose": Rule(_conv_transpose, required=2),
    "GlobalAveragePool": _global(ReduceFunction.AVERAGE),
    "GlobalLpPool": Rule(_global_lp_pool, oldest=2),
    "GlobalMaxPool": _global(ReduceFunction.MAX),
    "LpPool": Rule(_lp_pool, oldest=2),
    "MaxPool": Rule(_max_pool, outputs=2),
}
"""Rules by operator."""
