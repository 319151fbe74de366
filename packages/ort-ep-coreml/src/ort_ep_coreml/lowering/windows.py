"""Convolutions and pooling: what reads windows of its input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ort_core.plugin.ir import Node
from ort_ep_coreml.lowering.asked import Asked, is_static, rank_of
from ort_ep_coreml.lowering.conditions import only_attributes, ranks, static_inputs
from ort_ep_coreml.lowering.emission import EmissionState
from ort_ep_coreml.lowering.rule import Condition, Lower, Rule
from ort_ep_coreml.mil import Operand

_SPATIAL = 2  # the axis of the first spatial size


def _ints(values: Sequence[int]) -> np.ndarray:
    return np.array(values, np.int32)


def _kernel(node: Node) -> tuple[int, ...]:
    given = node.ints_attribute("kernel_shape")
    if given is not None:
        return given
    weight = node.input(3 if node.op_type == "QLinearConv" else 1)
    assert weight is not None, "pools state their kernel"
    return tuple(size for size in (weight.shape or ())[_SPATIAL:] if isinstance(size, int))


def window_padding(node: Node) -> tuple[int, ...]:
    """Return what is padded before and behind each spatial axis, in MIL's order: begin and end, axis by axis."""
    kernel = _kernel(node)
    strides = node.ints_attribute("strides") or (1,) * len(kernel)
    dilations = node.ints_attribute("dilations") or (1,) * len(kernel)
    mode = node.string_attribute("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        pads = node.ints_attribute("pads") or (0,) * (2 * len(kernel))
        return tuple(pads[axis + side * len(kernel)] for axis in range(len(kernel)) for side in (0, 1))
    if mode == "VALID":
        return (0,) * (2 * len(kernel))
    found: list[int] = []
    sizes = (node.input(0).shape or ())[_SPATIAL:]  # type: ignore[union-attr]  # required
    for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        assert isinstance(size, int), "rules refuse open sizes with auto_pad"
        total = max((-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size, 0)
        less, more = total // 2, total - total // 2
        found += [less, more] if mode == "SAME_UPPER" else [more, less]
    return tuple(found)


def _window(node: Node) -> dict[str, Operand]:
    count = len(_kernel(node))
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
    kind = "conv_transpose" if node.op_type == "ConvTranspose" else "conv"
    inputs: dict[str, Operand] = {"x": x, "weight": weight, **_window(node)}
    if bias is not None:
        inputs["bias"] = bias
    inputs["dilations"] = _ints(node.ints_attribute("dilations") or (1,) * len(_kernel(node)))
    return to.emit(kind, **inputs, groups=node.int_attribute("group", 1))


def _pool(to: EmissionState, node: Node) -> Operand:
    inputs = {"x": to.operand(node.input(0)), "kernel_sizes": _ints(_kernel(node)), **_window(node)}
    if node.op_type == "MaxPool":
        return to.emit("max_pool", **inputs)
    return to.emit("avg_pool", **inputs, exclude_padding_from_average=not node.int_attribute("count_include_pad", 0))


def _global(kind: str) -> Lower:
    def lower(to: EmissionState, node: Node) -> Operand:
        axes = _ints(range(_SPATIAL, rank_of(node.input(0))))
        return to.emit(kind, x=to.operand(node.input(0)), axes=axes, keep_dims=True)

    return lower


def _padding_is_known(asked: Asked, node: Node) -> str | None:
    mode = node.string_attribute("auto_pad", "NOTSET")
    value = node.input(0)
    sizes = () if value is None or value.shape is None else value.shape[_SPATIAL:]
    if mode in ("NOTSET", "", "VALID") or all(isinstance(size, int) for size in sizes):
        return None
    return f"auto_pad={mode} over sizes that are not known beforehand"


def _transposed_as_lowered(asked: Asked, node: Node) -> str | None:
    if node.string_attribute("auto_pad", "NOTSET") not in ("NOTSET", ""):
        return "ConvTranspose with auto_pad is not lowered"
    if any(node.ints_attribute("output_padding") or ()) or node.ints_attribute("output_shape") is not None:
        return "ConvTranspose with output_padding or output_shape is not lowered"
    return None if is_static(node.input(0)) else "ConvTranspose over open sizes is not lowered"


def _averages_without_dilation(asked: Asked, node: Node) -> str | None:
    if any(each != 1 for each in node.ints_attribute("dilations") or ()):
        return f"{node.op_type} with dilations is not lowered: Core ML has none"
    return None


def window_conditions() -> tuple[Condition, ...]:
    """Return what must hold of every convolution."""
    return (ranks(3, 5), _padding_is_known)


_POOLED = (only_attributes(ceil_mode=0, storage_order=0), _averages_without_dilation, _padding_is_known, ranks(3, 5))
_CONVOLVED = (ranks(3, 5), static_inputs(1))

WINDOWS: Mapping[str, Rule] = {
    "Conv": Rule(_conv, conditions=(*_CONVOLVED, _padding_is_known), required=2),
    "ConvTranspose": Rule(_conv, conditions=(*_CONVOLVED, _transposed_as_lowered), required=2),
    "MaxPool": Rule(_pool, conditions=_POOLED),
    "AveragePool": Rule(_pool, conditions=_POOLED, oldest=7),
    "GlobalAveragePool": Rule(_global("reduce_mean"), conditions=(ranks(3, 5),)),
    "GlobalMaxPool": Rule(_global("reduce_max"), conditions=(ranks(3, 5),)),
}
"""Rules by operator."""
