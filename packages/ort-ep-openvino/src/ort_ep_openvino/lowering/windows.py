"""Products, convolutions, pooling, and what else reads windows of its input."""

from __future__ import annotations

from collections.abc import Mapping

from ort_core.plugin import GraphView
from ort_core.plugin.claims import is_static
from ort_core.plugin.ir import DataType, Node
from ort_core.plugin.ops import TransposedAxis, known_sizes, node_transposed, node_windows
from ort_ep_openvino.lowering.compositions import causal_refusal
from ort_ep_openvino.lowering.conditions import constant_inputs, proven_between, without_attributes
from ort_ep_openvino.lowering.rule import BYTES, FLOATS, INDICES, Rule
from ort_ep_openvino.lowering.sized_view import SizedView

INT64 = frozenset({DataType.INT64})


def _text(node: Node, name: str, default: str) -> str:
    return node.string_attribute(name, default)


def _stacked_alike(view: GraphView, node: Node) -> str | None:
    """Refuse a stack of fixed matrices that broadcasts over data of open sizes: OpenVINO fails while it runs."""
    data, matrices = node.input(0), node.input(1)
    if data is None or matrices is None or data.shape is None or matrices.shape is None:
        return None
    stack = matrices.shape[:-2]
    if is_static(data) or not is_static(matrices) or all(size == 1 for size in stack) or data.shape[:-2] == stack:
        return None
    return f"{matrices.name!r} is a stack of matrices that broadcasts; OpenVINO fails to run that over open sizes"


def _counts_as_onnx(view: SizedView, node: Node) -> str | None:
    if not (node.int_attribute("ceil_mode", 0) and node.int_attribute("count_include_pad", 0)):
        return None
    shape, kernel = view.exact_shape(node.input(0)), node.ints_attribute("kernel_shape") or ()
    if shape is None:
        return "OpenVINO counts what a last window of AveragePool may reach beyond the padding"
    is_same = _text(node, "auto_pad", "NOTSET").startswith("SAME")
    for axis in node_windows(node, shape[2:], kernel):
        before, after, beyond = known_sizes((axis.before, axis.after, axis.beyond))
        if before + after if is_same else beyond:
            return "OpenVINO counts what the last window of AveragePool reaches beyond the padding"
    return None


def _transposes_as_onnx(view: GraphView, node: Node) -> str | None:
    weight, x = node.input(1), node.input(0)
    kernel = node.ints_attribute("kernel_shape") or (weight.shape if weight is not None and weight.shape else ())[2:]
    sizes = (x.shape if x is not None and x.shape else (None,) * (len(kernel) + 2))[2:]
    axes = node_transposed(node, sizes, kernel)
    if not all(isinstance(size, int) for size in kernel):
        return "the window of ConvTranspose is not known before a run"
    if node.ints_attribute("output_shape") is not None:
        exact = all(isinstance(axis.size, int) and _fills_exactly(axis) for axis in axes)
        is_extended = any(axis.extra for axis in axes) and not all(axis.whole == axis.result for axis in axes)
        cut = "OpenVINO cuts a ConvTranspose to its output_shape in another way"
        return None if exact and not is_extended else cut
    is_same = _text(node, "auto_pad", "NOTSET").startswith("SAME")
    if is_same and (x is None or not is_static(x)):
        return "OpenVINO makes more of a ConvTranspose by auto_pad where a size is open"
    if is_same and any(axis.extra or known_sizes((axis.reach,))[0] < axis.stride for axis in axes):
        return "OpenVINO makes less of a ConvTranspose by auto_pad whose windows do not meet, or with output_padding"
    return None


def _fills_exactly(axis: TransposedAxis) -> bool:
    """Return whether nothing has to be cut for the size that is asked for."""
    return known_sizes((axis.whole,)) <= known_sizes((axis.result,))


def _has_two_corners(view: GraphView, node: Node) -> str | None:
    if not node.int_attribute("align_corners", 0):
        return None
    sizes = (node.output.shape or (None,))[1:-1]
    if sizes and all(isinstance(size, int) and size > 1 for size in sizes):
        return None
    return "OpenVINO is wrong for AffineGrid with align_corners=1 where a size is 1 or not known before a run"


def _last_image(node: Node) -> int | None:
    """Return the number of the last image of a batch, where that is known."""
    x = node.input(0)
    size = None if x is None or not x.shape else x.shape[0]
    return size - 1 if isinstance(size, int) else None


WINDOWS: Mapping[str, Rule] = {
    "MatMul": Rule(FLOATS, conditions=(_stacked_alike,)),
    "Gemm": Rule(FLOATS, oldest=7),
    "Einsum": Rule(FLOATS),
    "Conv": Rule(FLOATS),
    "CausalConvWithState": Rule(FLOATS, conditions=(causal_refusal,)),
    "ConvTranspose": Rule(FLOATS, conditions=(_transposes_as_onnx,)),
    "AveragePool": Rule(FLOATS, conditions=(_counts_as_onnx,)),
    "MaxPool": Rule(FLOATS, results={1: INT64}, conditions=(without_attributes(ceil_mode=0),)),
    "LpPool": Rule(FLOATS, conditions=(without_attributes(ceil_mode=0),)),
    "GlobalAveragePool": Rule(FLOATS),
    "GlobalMaxPool": Rule(FLOATS),
    "GlobalLpPool": Rule(FLOATS),
    "GridSample": Rule(FLOATS),
    "AffineGrid": Rule(FLOATS, ports={1: INDICES}, conditions=(constant_inputs(1), _has_two_corners)),
    "RoiAlign": Rule(
        FLOATS,
        ports={2: INDICES},
        conditions=(without_attributes(mode="avg"), proven_between(2, 0, _last_image)),
    ),
    "NonMaxSuppression": Rule(FLOATS, ports={2: INT64}, results={0: INT64}, oldest=10),
    "HannWindow": Rule(FLOATS, ports={0: INDICES}),
    "HammingWindow": Rule(FLOATS, ports={0: INDICES}),
    "BlackmanWindow": Rule(FLOATS, ports={0: INDICES}),
    "MatMulInteger": Rule(BYTES, results={0: INDICES}),
    "ConvInteger": Rule(BYTES, results={0: INDICES}),
}
"""Rules by operator."""
