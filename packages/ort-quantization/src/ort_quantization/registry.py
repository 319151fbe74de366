"""Which operators are quantized, and by what.

An entry is a class: see ``operators.base_operator`` and ``operators.qdq_base_operator``, from which the package's own
and those of programs derive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import NodeProto

from ort_quantization.operators.activation import QDQRemovableActivation, QLinearActivation
from ort_quantization.operators.argmax import QArgMax
from ort_quantization.operators.attention import AttentionQuant
from ort_quantization.operators.base_operator import QuantOperatorBase
from ort_quantization.operators.binary_op import QLinearBinaryOp
from ort_quantization.operators.built_in import MarkedOperator, is_meant
from ort_quantization.operators.concat import QLinearConcat
from ort_quantization.operators.conv import ConvInteger, QDQConv, QLinearConv
from ort_quantization.operators.direct_q8 import Direct8BitOp, QDQDirect8BitOp
from ort_quantization.operators.embed_layernorm import EmbedLayerNormalizationQuant
from ort_quantization.operators.gather import GatherQuant, QDQGather
from ort_quantization.operators.gavgpool import QGlobalAveragePool
from ort_quantization.operators.gemm import QDQGemm, QLinearGemm
from ort_quantization.operators.lstm import LSTMQuant
from ort_quantization.operators.matmul import MatMulInteger, QDQMatMul, QLinearMatMul
from ort_quantization.operators.maxpool import QDQMaxPool, QMaxPool
from ort_quantization.operators.norm import QDQNormalization
from ort_quantization.operators.pad import QDQPad, QPad
from ort_quantization.operators.pooling import QLinearPool
from ort_quantization.operators.qdq_base_operator import QDQOperatorBase
from ort_quantization.operators.resize import QDQResize, QResize
from ort_quantization.operators.softmax import QLinearSoftmax
from ort_quantization.operators.split import QDQSplit, QSplit
from ort_quantization.operators.where import QDQWhere, QLinearWhere
from ort_quantization.quantized_types import QuantizationMode

if TYPE_CHECKING:
    from ort_quantization.onnx_quantizer import ONNXQuantizer
    from ort_quantization.qdq_quantizer import QDQQuantizer

CommonOpsRegistry: dict[str, type[QuantOperatorBase]] = {
    "Gather": GatherQuant,
    "Transpose": Direct8BitOp,
    "EmbedLayerNormalization": EmbedLayerNormalizationQuant,
}
"""Operators that are quantized alike by both kinds of parameters."""

IntegerOpsRegistry: dict[str, type[QuantOperatorBase]] = {
    "Conv": ConvInteger,
    "MatMul": MatMulInteger,
    "Attention": AttentionQuant,
    "LSTM": LSTMQuant,
    **CommonOpsRegistry,
}
"""Operators quantized by parameters that are found while the model runs."""

QLinearOpsRegistry: dict[str, type[QuantOperatorBase]] = {
    "ArgMax": QArgMax,
    "Conv": QLinearConv,
    "Gemm": QLinearGemm,
    "MatMul": QLinearMatMul,
    "Add": QLinearBinaryOp,
    "Mul": QLinearBinaryOp,
    "Relu": QLinearActivation,
    "Clip": QLinearActivation,
    "LeakyRelu": QLinearActivation,
    "Sigmoid": QLinearActivation,
    "MaxPool": QMaxPool,
    "GlobalAveragePool": QGlobalAveragePool,
    "Split": QSplit,
    "Pad": QPad,
    "Reshape": Direct8BitOp,
    "Squeeze": Direct8BitOp,
    "Unsqueeze": Direct8BitOp,
    "Flatten": Direct8BitOp,
    "Resize": QResize,
    "AveragePool": QLinearPool,
    "Concat": QLinearConcat,
    "Softmax": QLinearSoftmax,
    "Where": QLinearWhere,
    **CommonOpsRegistry,
}
"""Operators quantized by parameters that calibration found."""

QDQRegistry: dict[str, type[QDQOperatorBase]] = {
    "Conv": QDQConv,
    "ConvTranspose": QDQConv,
    "Gemm": QDQGemm,
    "Clip": QDQRemovableActivation,
    "Relu": QDQRemovableActivation,
    "Reshape": QDQDirect8BitOp,
    "Transpose": QDQDirect8BitOp,
    "Squeeze": QDQDirect8BitOp,
    "Unsqueeze": QDQDirect8BitOp,
    "Flatten": QDQDirect8BitOp,
    "Resize": QDQResize,
    "MaxPool": QDQMaxPool,
    "AveragePool": QDQDirect8BitOp,
    "Slice": QDQDirect8BitOp,
    "Pad": QDQPad,
    "MatMul": QDQMatMul,
    "Split": QDQSplit,
    "Gather": QDQGather,
    "GatherElements": QDQGather,
    "Where": QDQWhere,
    "InstanceNormalization": QDQNormalization,
    "LayerNormalization": QDQNormalization,
    "BatchNormalization": QDQNormalization,
    "TopK": QDQDirect8BitOp,
    "CumSum": QDQOperatorBase,
}
"""Operators whose values are quantized in another way than all that they read and give."""


def find_marker(node: NodeProto) -> type[QDQOperatorBase] | None:
    """Return what says which values around a node are quantized, ``None`` where it stays as it is."""
    chosen = QDQRegistry.get(node.op_type, QDQOperatorBase)
    return None if issubclass(chosen, MarkedOperator) and not is_meant(node) else chosen


def CreateDefaultOpQuantizer(onnx_quantizer: ONNXQuantizer, node: NodeProto) -> QuantOperatorBase:  # noqa: N802 - onnxruntime's name
    """Return what leaves a node as it is."""
    return QuantOperatorBase(onnx_quantizer, node)


def CreateOpQuantizer(onnx_quantizer: ONNXQuantizer, node: NodeProto) -> QuantOperatorBase:  # noqa: N802 - onnxruntime's name
    """Return what writes a node as the registries say, or leaves it as it is."""
    is_dynamic = onnx_quantizer.mode is QuantizationMode.IntegerOps
    chosen = (IntegerOpsRegistry if is_dynamic else QLinearOpsRegistry).get(node.op_type)
    made = chosen(onnx_quantizer, node) if chosen is not None else None
    if made is None or not made.should_quantize():
        return CreateDefaultOpQuantizer(onnx_quantizer, node)
    return made


def CreateQDQQuantizer(onnx_quantizer: QDQQuantizer, node: NodeProto) -> QDQOperatorBase:  # noqa: N802 - onnxruntime's name
    """Return what marks the values around a node as the registry says."""
    return QDQRegistry.get(node.op_type, QDQOperatorBase)(onnx_quantizer, node)
