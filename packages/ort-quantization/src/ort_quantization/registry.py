"""Which operators are quantized, and by what.

An entry is a function, or a class of one's own: see ``operators.base_operator`` and ``operators.qdq_base_operator``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from onnx import NodeProto

from ort_quantization.operators import boundaries, contributed, integer_products, linear, movement
from ort_quantization.operators.base_operator import QuantOperatorBase
from ort_quantization.operators.qdq_base_operator import QDQOperatorBase
from ort_quantization.quantized_types import MICROSOFT, QuantizationMode

if TYPE_CHECKING:
    from ort_quantization.onnx_quantizer import ONNXQuantizer
    from ort_quantization.qdq_quantizer import QDQQuantizer

Writer = Callable[["ONNXQuantizer", NodeProto], None]
Choice = Callable[["ONNXQuantizer", NodeProto], bool]
Marker = Callable[["QDQQuantizer", NodeProto], None]


def _is_chosen_float(quantizer: ONNXQuantizer, node: NodeProto) -> bool:
    """Return whether a node was chosen and its first input has floats."""
    return quantizer.should_quantize_node(node) and quantizer.is_float_tensor(node.input[0])


def _is_chosen_float32(quantizer: ONNXQuantizer, node: NodeProto) -> bool:
    return _is_chosen_float(quantizer, node) and integer_products.has_run_time_parameters(quantizer, node)


Entry = tuple[Choice, Writer] | type[QuantOperatorBase]

_CONTRIBUTED = frozenset({"Attention", "EmbedLayerNormalization"})
"""Names that mean operators of com.microsoft; the others mean ONNX's own. Classes choose themselves."""

_COMMON: dict[str, Entry] = {
    "Gather": (movement.is_chosen_gather, movement.write_gather),
    "Transpose": (_is_chosen_float, movement.write_direct),
    "EmbedLayerNormalization": (contributed.is_chosen, contributed.write_embedding),
}

IntegerOpsRegistry: dict[str, Entry] = {
    "Conv": (_is_chosen_float32, integer_products.write_conv),
    "MatMul": (integer_products.is_chosen_run_time_product, integer_products.write_matmul),
    "Attention": (contributed.is_chosen, contributed.write_attention),
    "LSTM": (_is_chosen_float, contributed.write_lstm),
    **_COMMON,
}
"""Operators quantized by parameters that are found while the model runs."""

QLinearOpsRegistry: dict[str, Entry] = {
    "ArgMax": (_is_chosen_float, movement.write_arg_max),
    "Conv": (_is_chosen_float, linear.write_conv),
    "Gemm": (integer_products.is_chosen_product, linear.write_gemm),
    "MatMul": (integer_products.is_chosen_product, linear.write_matmul),
    "Add": (_is_chosen_float, linear.write_binary),
    "Mul": (_is_chosen_float, linear.write_binary),
    "Relu": (_is_chosen_float, linear.write_clip),
    "Clip": (_is_chosen_float, linear.write_clip),
    "LeakyRelu": (_is_chosen_float, linear.write_unary),
    "Sigmoid": (_is_chosen_float, linear.write_unary),
    "MaxPool": (_is_chosen_float, movement.write_max_pool),
    "GlobalAveragePool": (_is_chosen_float, linear.write_global_pool),
    "Split": (_is_chosen_float, movement.write_split),
    "Pad": (_is_chosen_float, movement.write_pad),
    "Reshape": (_is_chosen_float, movement.write_direct),
    "Squeeze": (_is_chosen_float, movement.write_direct),
    "Unsqueeze": (_is_chosen_float, movement.write_direct),
    "Flatten": (_is_chosen_float, movement.write_direct),
    "Resize": (_is_chosen_float, movement.write_resize),
    "AveragePool": (_is_chosen_float, linear.write_unary),
    "Concat": (_is_chosen_float, linear.write_concat),
    "Softmax": (_is_chosen_float, linear.write_softmax),
    "Where": (contributed.is_chosen, linear.write_where),
    **_COMMON,
}
"""Operators quantized by parameters that calibration found."""

QDQRegistry: dict[str, Marker | type[QDQOperatorBase]] = {
    "Conv": boundaries.mark_conv,
    "ConvTranspose": boundaries.mark_conv,
    "Gemm": boundaries.mark_gemm,
    "Clip": boundaries.mark_removable,
    "Relu": boundaries.mark_removable,
    "Reshape": boundaries.mark_direct,
    "Transpose": boundaries.mark_direct,
    "Squeeze": boundaries.mark_direct,
    "Unsqueeze": boundaries.mark_direct,
    "Flatten": boundaries.mark_direct,
    "Resize": boundaries.mark_resize,
    "MaxPool": boundaries.mark_max_pool,
    "AveragePool": boundaries.mark_direct,
    "Slice": boundaries.mark_direct,
    "Pad": boundaries.mark_pad,
    "MatMul": boundaries.mark_product,
    "Split": boundaries.mark_split,
    "Gather": boundaries.mark_gather,
    "GatherElements": boundaries.mark_gather,
    "Where": boundaries.mark_where,
    "InstanceNormalization": boundaries.mark_normalization,
    "LayerNormalization": boundaries.mark_normalization,
    "BatchNormalization": boundaries.mark_normalization,
    "TopK": boundaries.mark_direct,
    "CumSum": boundaries.mark_all,
}
"""What is quantized around operators in the QDQ format; around others that are chosen, all they read and give."""


CommonOpsRegistry = _COMMON
"""Operators quantized alike with and without calibration."""


def find_writer(quantizer: ONNXQuantizer, node: NodeProto) -> Writer | None:
    """Return what quantizes a node, ``None`` where it stays as it is."""
    is_dynamic = quantizer.mode is QuantizationMode.IntegerOps
    chosen = (IntegerOpsRegistry if is_dynamic else QLinearOpsRegistry).get(node.op_type)
    if isinstance(chosen, type):
        return _write_by_class(chosen) if chosen(quantizer, node).should_quantize() else None
    return chosen[1] if chosen is not None and _is_meant(node) and chosen[0](quantizer, node) else None


def _is_meant(node: NodeProto) -> bool:
    """Return whether a node's operator is the one that is known by its name: ONNX has an Attention, too."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    return domain == (MICROSOFT if node.op_type in _CONTRIBUTED else "")


def _write_by_class(entry: type[QuantOperatorBase]) -> Writer:
    return lambda quantizer, node: entry(quantizer, node).quantize()


def find_marker(node: NodeProto) -> Marker | None:
    """Return what says which values around a node are quantized, ``None`` where it stays as it is."""
    chosen = QDQRegistry.get(node.op_type)
    if isinstance(chosen, type):
        return _mark_by_class(chosen)
    if chosen is None:
        return boundaries.mark_all
    return chosen if _is_meant(node) else None


def _mark_by_class(entry: type[QDQOperatorBase]) -> Marker:
    return lambda quantizer, node: entry(quantizer, node).quantize()


class _Written(QuantOperatorBase):
    """A node and its entry in a registry."""

    def quantize(self) -> None:
        """Add what stands for the node."""
        (find_writer(self.quantizer, self.node) or type(self.quantizer).keep)(self.quantizer, self.node)


class _Marked(QDQOperatorBase):
    """A node and its entry in the registry of the QDQ format."""

    def quantize(self) -> None:
        """Mark the values around the node."""
        marker = find_marker(self.node)
        if marker is not None:
            marker(self.quantizer, self.node)


def CreateDefaultOpQuantizer(onnx_quantizer: ONNXQuantizer, node: NodeProto) -> QuantOperatorBase:  # noqa: N802 - onnxruntime's name
    """Return what leaves a node as it is."""
    return QuantOperatorBase(onnx_quantizer, node)


def CreateOpQuantizer(onnx_quantizer: ONNXQuantizer, node: NodeProto) -> QuantOperatorBase:  # noqa: N802 - onnxruntime's name
    """Return what writes a node as the registries say."""
    return _Written(onnx_quantizer, node)


def CreateQDQQuantizer(onnx_quantizer: QDQQuantizer, node: NodeProto) -> QDQOperatorBase:  # noqa: N802 - onnxruntime's name
    """Return what marks the values around a node as the registry says."""
    return _Marked(onnx_quantizer, node)
