"""Convolutions and pooling: what reads windows of its input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ort_core.plugin.claims import is_static
from ort_core.plugin.ir import Dim, Node, Value
from ort_core.plugin.ops import WindowAxis, known_sizes, node_transposed, node_windows
from ort_ep_coreml.lowering.conditions import only_attributes, ranks, static_inputs
from ort_ep_coreml.lowering.emission import EmissionState
from ort_ep_coreml.lowering.lowering_context import LoweringContext, rank_of
from ort_ep_coreml.lowering.rule import Condition, Lower, Rule
from ort_ep_coreml.mil import Operand

_SPATIAL = 2  # the axis of the first spatial size


def _ints(values: Sequence[int]) -> np.ndarray:
    return np.array(values, np.int32)


def kernel_of(node: Node) -> tuple[int, ...]:
    """Return the sizes of a window."""
    given = node.ints_attribute("kernel_shape")
    if given is not None:
        return given
    weight = node.input(3 if node.op_type == "QLinearConv" else 1)
    assert weight is not None, "pools state their kernel"
    return tuple(size for size in (weight.shape or ())[_SPATIAL:] if isinstance(size, int))


def _axes(node: Node) -> tuple[WindowAxis, ...]:
    kernel = kernel_of(node)
    sizes: Sequence[Dim] = (node.inputs[0].shape or ())[_SPATIAL:]  # type: ignore[union-attr]  # required
    return node_windows(node, sizes or (None,) * len(kernel), kernel)


def window_padding(node: Node) -> tuple[int, ...]:
    """Return what is padded before and behind each spatial axis, in MIL's order: begin and end, axis by axis.

    Behind are also the places that a last window reaches where their number is rounded up.
    """
    is_rounded = node.int_attribute("ceil_mode", 0) != 0
    pairs = [known_sizes((axis.before, axis.after, axis.beyond if is_rounded else 0)) for axis in _axes(node)]
    return tuple(each for before, after, beyond in pairs for each in (before, after + beyond))


def _rounds_as_lowered(context: LoweringContext, node: Node) -> str | None:
    if not node.int_attribute("ceil_mode", 0):
        return None
    if not is_static(node.input(0)) or not is_static(node.output):
        return f"{node.op_type} with ceil_mode=1 over sizes that are not known beforehand"
    if node.int_attribute("count_include_pad", 0) and any(known_sizes(axis.beyond for axis in _axes(node))):
        return f"{node.op_type} with ceil_mode=1 and count_include_pad=1: Core ML counts all of a window"
    return None


def _window(node: Node) -> dict[str, Operand]:
    count = len(kernel_of(node))
    return {
        "strides": _ints(node.ints_attribute("strides") or (1,) * count),
        "pad_type": "custom",
        "pad": _ints(window_padding(node)),
    }


def _conv(to: EmissionState, node: Node) -> Operand:
    bias = None if node.input(2) is None else to.operand(node.input(2))
    return convolved(to, node, to.operand(node.input(0)), to.operand(node.input(1)), bias)


def convolved(to: EmissionState, node: Node, x: Operand, weight: Operand, bias: Operand | None) -> Operand:
    """Return a convolution of a node with these operands."""
    inputs: dict[str, Operand] = {"x": x, "weight": weight, **_window(node)}
    if bias is not None:
        inputs["bias"] = bias
    inputs["dilations"] = _ints(node.ints_attribute("dilations") or (1,) * len(kernel_of(node)))
    return to.emit("conv", **inputs, groups=node.int_attribute("group", 1))


def _conv_transpose(to: EmissionState, node: Node) -> Operand:
    """Lower to MIL's own, which cuts; what ONNX adds at the ends is zeros, and gets the bias too."""
    count, cuts = len(kernel_of(node)), _cut_ends(node)
    found: Operand = to.emit(
        "conv_transpose",
        x=to.operand(node.input(0)),
        weight=to.operand(node.input(1)),
        strides=_ints(node.ints_attribute("strides") or (1,) * count),
        pad_type="custom",
        pad=_ints([max(each, 0) for each in cuts]),
        dilations=_ints(node.ints_attribute("dilations") or (1,) * count),
        groups=node.int_attribute("group", 1),
    )
    added = [max(-each, 0) for each in cuts]
    if any(added):
        zero = to.scalar(node.input(0), 0)
        found = to.emit("pad", x=found, pad=_ints(added), mode="constant", constant_val=zero)
    if node.input(2) is None:
        return found
    bias = to.reshape(to.operand(node.input(2)), (-1, *[1] * count))
    return to.emit("add", x=found, y=bias)


def _cut_ends(node: Node) -> list[int]:
    """Return what is cut of the whole result before and behind each axis; negative numbers are zeros behind it."""
    kernel = kernel_of(node)
    sizes: Sequence[Dim] = (node.inputs[0].shape or ())[_SPATIAL:]  # type: ignore[union-attr]  # required
    found: list[int] = []
    for axis in node_transposed(node, sizes or (None,) * len(kernel), kernel):
        before, after = known_sizes((axis.before, axis.after))
        missing = 0 if axis.whole is None else known_sizes((axis.missing,))[0]
        found += [before, after - axis.extra - missing]
    return found


def pooled(to: EmissionState, node: Node) -> Operand:
    """Lower to Core ML's own pool."""
    inputs = {"x": to.operand(node.input(0)), "kernel_sizes": _ints(kernel_of(node)), **_window(node)}
    if node.op_type == "MaxPool":
        return to.emit("max_pool", **inputs)
    return to.emit("avg_pool", **inputs, exclude_padding_from_average=not node.int_attribute("count_include_pad", 0))


def _global(kind: str) -> Lower:
    def lower(to: EmissionState, node: Node) -> Operand:
        axes = _ints(range(_SPATIAL, rank_of(node.input(0))))
        return to.emit(kind, x=to.operand(node.input(0)), axes=axes, keep_dims=True)

    return lower


def padding_is_known(context: LoweringContext, node: Node) -> str | None:
    """Refuse paddings that follow from sizes that are open."""
    mode = node.string_attribute("auto_pad", "NOTSET")
    value = node.input(0)
    sizes = () if value is None or value.shape is None else value.shape[_SPATIAL:]
    if mode in ("NOTSET", "", "VALID") or all(isinstance(size, int) for size in sizes):
        return None
    return f"auto_pad={mode} over sizes that are not known beforehand"


def _transposed_as_lowered(context: LoweringContext, node: Node) -> str | None:
    is_stated = node.string_attribute("auto_pad", "NOTSET") in ("NOTSET", "", "VALID")
    is_stated = is_stated and node.ints_attribute("output_shape") is None
    return None if is_stated or is_static(node.input(0)) else "ConvTranspose to sizes that are not known beforehand"


def _without_dilation(context: LoweringContext, node: Node) -> str | None:
    if any(each != 1 for each in node.ints_attribute("dilations") or ()):
        return f"{node.op_type} with dilations is not lowered: Core ML has none"
    return None


def _weights_are_fixed_or_dense(context: LoweringContext, node: Node) -> str | None:
    is_dilated = any(each != 1 for each in node.ints_attribute("dilations") or ())
    if not is_dilated or context.constant(node.input(1)) is not None or _is_dequantized(context, node.input(1)):
        return None
    return f"{node.op_type} with dilations and weights that are not constants: Core ML has none"


def _is_dequantized(context: LoweringContext, value: Value | None) -> bool:
    """Return whether a value is a constant that stays narrow in a package."""
    source = None if value is None else value.producer
    is_dequantized = source is not None and source.op_type == "DequantizeLinear"
    return is_dequantized and all(context.constant(each) is not None for each in source.present_inputs())  # type: ignore[union-attr]  # is_dequantized


def window_conditions() -> tuple[Condition, ...]:
    """Return what must hold of every convolution."""
    return (ranks(3, 5), padding_is_known)


POOLED = (only_attributes(storage_order=0), padding_is_known, ranks(3, 5), _rounds_as_lowered)
"""What must hold of every pool."""
_CONVOLVED = (ranks(3, 5), static_inputs(1))

WINDOWS: Mapping[str, Rule] = {
    "Conv": Rule(
        _conv,
        conditions=(ranks(3, 5), static_inputs(1, 2), padding_is_known, _weights_are_fixed_or_dense),
        required=2,
    ),
    "ConvTranspose": Rule(_conv_transpose, conditions=(*_CONVOLVED, _transposed_as_lowered), required=2),
    "MaxPool": Rule(pooled, conditions=(_without_dilation, *POOLED)),
    "GlobalAveragePool": Rule(_global("reduce_mean"), conditions=(ranks(3, 5),)),
    "GlobalMaxPool": Rule(_global("reduce_max"), conditions=(ranks(3, 5),)),
}
"""Rules by operator."""
