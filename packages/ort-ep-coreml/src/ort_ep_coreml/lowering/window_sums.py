"""Sums over windows by a convolution with ones: pools that Core ML has not, and causal convolutions with a state."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_core.plugin.claims import is_static
from ort_core.plugin.ir import Node
from ort_ep_coreml.lowering.conditions import ranks, static_inputs
from ort_ep_coreml.lowering.emission import EmissionState
from ort_ep_coreml.lowering.lowering_context import LoweringContext, sizes_of
from ort_ep_coreml.lowering.normalization import narrowed, widened
from ort_ep_coreml.lowering.rule import Rule
from ort_ep_coreml.lowering.terms import Term, first, joined, term
from ort_ep_coreml.lowering.windows import POOLED, kernel_of, padding_is_known, pooled, window_padding
from ort_ep_coreml.mil import Operand


def window_sums(x: Term, node: Node, channels: int) -> Term:
    """Return the sum of each window of each channel, what is padded counting nothing."""
    kernel = kernel_of(node)
    ones = x.number(np.ones((channels, 1, *kernel)))
    return x.do(
        "conv",
        weight=ones,
        strides=_ints(node.ints_attribute("strides") or (1,) * len(kernel)),
        pad_type="custom",
        pad=_ints(window_padding(node)),
        dilations=_ints(node.ints_attribute("dilations") or (1,) * len(kernel)),
        groups=channels,
    )


def _ints(values: tuple[int, ...]) -> np.ndarray:
    return np.array(values, np.int32)


def _channels(node: Node) -> int:
    channels = sizes_of(node.inputs[0])[1]  # type: ignore[arg-type]  # required
    assert isinstance(channels, int), "_channels_are_known was asked"
    return channels


def _average(to: EmissionState, node: Node) -> Operand:
    """Lower AveragePool; with dilations, which Core ML's own has not, to sums over the number of elements."""
    if not _is_dilated(node):
        return pooled(to, node)
    x, channels = first(to, node), _channels(node)
    wide = widened(x)
    total = window_sums(wide, node, channels)
    if node.int_attribute("count_include_pad", 0):
        return narrowed(total / int(np.prod(kernel_of(node))), x).operand
    counted = wide.with_("equal", wide).cast(wide.dtype, "fp32")  # ones
    return narrowed(total / window_sums(counted, node, channels), x).operand


def _is_dilated(node: Node) -> bool:
    return any(each != 1 for each in node.ints_attribute("dilations") or ())


def _norm_pool(to: EmissionState, node: Node) -> Operand:
    """Lower LpPool: the root of the sum of powers of each window."""
    x, p = first(to, node), node.int_attribute("p", 2)
    size = widened(x).do("abs")
    powers = size if p == 1 else size * size if p == 2 else size.with_("pow", p)
    total = window_sums(powers, node, _channels(node))
    return narrowed(total if p == 1 else total.do("sqrt") if p == 2 else total.with_("pow", 1 / p), x).operand


def _channels_are_known(context: LoweringContext, node: Node) -> str | None:
    if node.op_type == "AveragePool" and not _is_dilated(node):
        return None
    if not isinstance(sizes_of(node.inputs[0])[1], int):  # type: ignore[arg-type]  # required
        return f"{node.op_type} over channels whose number is open"
    if node.int_attribute("ceil_mode", 0) and not (is_static(node.input(0)) and is_static(node.output)):
        return f"{node.op_type} with ceil_mode=1 over sizes that are not known beforehand"
    return None


def _causal_convolution(to: EmissionState, node: Node) -> list[Operand]:
    """Lower CausalConvWithState: behind the past, or zeros, a convolution of each channel; its end is the next past."""
    x, weight, bias, past = first(to, node), term(to, node.input(1)), node.input(2), node.input(3)
    channels, _, taps = (size for size in sizes_of(node.inputs[1]) if isinstance(size, int))  # type: ignore[arg-type]  # static_inputs was asked
    reach = taps - 1
    if past is not None:
        x = joined([term(to, past), x], 2)
    elif reach:
        pads = np.array([0, 0, 0, 0, reach, 0], np.int32)
        x = x.do("pad", pad=pads, mode="constant", constant_val=x.number(0))
    found = x.do("conv", weight=weight.operand, pad_type="valid", groups=channels)
    if bias is not None:
        found = found + term(to, bias).reshaped(-1, 1)
    if node.string_attribute("activation", "none") != "none":
        found = found * found.do("sigmoid")
    return [found.operand, x.cut(2, -reach, None, 3).operand]


def _state_is_read(context: LoweringContext, node: Node) -> str | None:
    activation = node.string_attribute("activation", "none")
    if activation not in ("none", "silu", "swish"):
        return f"{node.op_type} with activation={activation!r} is not lowered"
    if sizes_of(node.inputs[1])[2] == 1 and len(node.outputs) > 1 and node.outputs[1] is not None:  # type: ignore[arg-type]  # required
        return f"{node.op_type} of one tap gives an empty state; Core ML has no empty tensors"
    return None


WINDOW_SUMS: Mapping[str, Rule] = {
    "AveragePool": Rule(_average, conditions=(*POOLED, _channels_are_known), oldest=7),
    "LpPool": Rule(_norm_pool, conditions=(ranks(3, 5), padding_is_known, _channels_are_known), oldest=2),
    "CausalConvWithState": Rule(
        _causal_convolution, conditions=(ranks(3, 3), static_inputs(1), _state_is_read), required=2, outputs=2
    ),
}
"""Rules by operator."""
