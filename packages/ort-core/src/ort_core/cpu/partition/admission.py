"""Which nodes become native: those whose types and operators are generated, in groups that are worth a program."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from ort_core.cpu.codegen.llvm_ir.scalar_printer import converts_halves
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.lowering.moved_halves import moves_halves
from ort_core.cpu.lowering.rule_table import find_rule, has_own_meaning
from ort_core.cpu.lowering.steps import NotLowered
from ort_core.cpu.lowering.value_types import computed_type, known_type
from ort_core.plugin.ir import DataType, Graph, Node, Shape, TensorType, Value
from ort_core.plugin.kernels import EvaluationContext
from ort_core.plugin.loops import SMALL_TYPES, SUPPORTED

CASTS = frozenset({"Cast", "CastLike"})
MIN_NODES = 2  # a single node over few elements is not worth a program of its own
FREE = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})  # numpy returns another view
HEAVY = frozenset(
    {
        "InstanceNormalization",
        "Conv",
        "ConvTranspose",
        "DeformConv",
        "MatMul",
        "Gemm",
        "Softmax",
        "LayerNormalization",
        "FusedMatMul",
        "MoE",
        "QMoE",
        "MultiHeadAttention",
        "Attention",
        "GroupQueryAttention",
        "PagedAttention",
        "RotaryEmbedding",
        "Gelu",
        "Erf",
        "Exp",
        "Tanh",
        "Sigmoid",
        "LinearClassifier",
        "LinearRegressor",
        "SVMClassifier",
        "SVMRegressor",
        "LpPool",
        "GlobalLpPool",
        "LRN",
        "MaxPool",
        "AveragePool",
        "GlobalMaxPool",
        "GlobalAveragePool",
        "Resize",
        "LogSoftmax",
        "RMSNormalization",
        "SimplifiedLayerNormalization",
        "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization",
        "BiasGelu",
        "FastGelu",
        "QuickGelu",
        "GroupNormalization",
        "GroupNorm",
        "SkipGroupNorm",
        "LSTM",
        "GRU",
        "RNN",
        "TreeEnsemble",
        "TreeEnsembleClassifier",
        "TreeEnsembleRegressor",
        "QuantizeLinear",
        "QLinearConv",
        "ConvInteger",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "QLinearMatMul",
        "QGemm",
        "DynamicQuantizeLinear",
        "MatMulNBits",
        "QLinearAdd",
        "QLinearMul",
        "QLinearSigmoid",
        "QLinearLeakyRelu",
        "QLinearConcat",
        "DynamicQuantizeMatMul",
        "QLinearAveragePool",
        "QLinearGlobalAveragePool",
        "QAttention",
        "EmbedLayerNormalization",
        "GatherBlockQuantized",
        "TopK",
        "OneHot",
        "GatherND",
        "GatherElements",
        "Scatter",
        "ScatterElements",
        "ScatterND",
        "Pad",
        "Hardmax",
        "ArgMax",
        "ArgMin",
        "CumSum",
        "CumProd",
        "Trilu",
        "ReduceSum",
        "ReduceMean",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceSumSquare",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
    }
)
_SMALL = 1024  # elements: to call numpy for each node takes a few microseconds, and to compile a program far more
ML_TYPES = frozenset({DataType.FLOAT, DataType.INT64, DataType.INT32, DataType.BOOL})
ML_TYPES_AND_DOUBLE = ML_TYPES | {DataType.DOUBLE}
WITH_SMALL_TYPES = frozenset({*SUPPORTED, *SMALL_TYPES})
OF_SMALL_TYPES = CASTS | {"QuantizeLinear", "DequantizeLinear"}
DOUBLE = frozenset(
    {
        "TreeEnsemble",
        "TreeEnsembleClassifier",
        "TreeEnsembleRegressor",
        "LinearClassifier",
        "LinearRegressor",
        "ArrayFeatureExtractor",
    }
)  # take float64, too

CALLS = frozenset({"NonMaxSuppression", "TfIdfVectorizer", "TopK"})  # native without a program (``native_calls``)
NO_HALVES = "the processor does not convert float16"  # the reason of a node that reads or gives them


def _generated_types(node: Node) -> Collection[DataType]:
    if node.op_type in OF_SMALL_TYPES:
        return WITH_SMALL_TYPES
    if node.domain != "ai.onnx.ml":
        return SUPPORTED
    return ML_TYPES_AND_DOUBLE if node.op_type in DOUBLE else ML_TYPES


def unsupported_reason(node: Node, context: EvaluationContext, target: Target) -> str | None:
    """Return why no kernel is generated for a node, ``None`` where one is."""
    if find_rule(node, context) is None:
        return f"{node.op_type} is not generated"
    takes_empty, generated = has_own_meaning(node, context), _generated_types(node)
    values = (*node.present_inputs(), *node.present_outputs())
    for value in values:
        if node.op_type == "DequantizeLinear" and value.constant is not None:
            continue  # made real at load, whatever its type
        if not isinstance(value.type, TensorType):
            return f"{value.name!r} is not a tensor of known type"
        dtype = value.type.dtype
        if (dtype if node.domain == "ai.onnx.ml" else computed_type(dtype)) not in generated:
            return f"{node.op_type} of {dtype.text} is not generated"
        if dtype is DataType.FLOAT16 and not (converts_halves(target) or moves_halves(node)):
            return NO_HALVES
        shape = value.type.shape or ()
        if 0 in shape and not takes_empty:
            is_list = value.constant is not None and len(shape) == 1  # without entries: ordinary
            if not is_list:
                return f"{value.name!r} has no elements"
    try:
        for value in values:
            known_type(value)
    except NotLowered as refusal:
        return str(refusal)
    return None


def _is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and computed_type(value.type.dtype) in (DataType.FLOAT, DataType.DOUBLE)


def is_worth_a_program(group: Sequence[Node], context: EvaluationContext) -> bool:
    """Return whether a group of nodes runs faster as a program than by numpy."""
    floats = [node for node in group if node.op_type not in FREE and any(map(_is_float, node.present_outputs()))]
    if len(floats) >= MIN_NODES:
        return True
    return any(
        node.op_type in HEAVY or _is_large(node) or _casts_small(node) or has_own_meaning(node, context)
        for node in group
    )


def _is_large(node: Node) -> bool:
    """Return whether a node may have so many elements that compiled code is faster than numpy's passes and calls."""
    if node.op_type in FREE:
        return False
    shapes = [value.shape for value in (*node.present_inputs(), *node.present_outputs())]
    sizes = [math.prod(dims) for dims in map(_numbers, shapes) if dims is not None]
    return len(sizes) < len(shapes) or max(sizes, default=0) >= _SMALL


def _numbers(shape: Shape | None) -> tuple[int, ...] | None:
    dims = tuple(dim for dim in shape or () if isinstance(dim, int))
    return dims if shape is not None and len(dims) == len(shape) else None


def is_plain(body: Graph, context: EvaluationContext, *, is_all: bool = False) -> bool:
    """Return whether nothing in the body of an If becomes native, as far as its operators tell.

    ``is_all``: the If is the whole model, whose branches run sooner by a direct call however small they are.
    """
    nodes = body.nodes
    if body.owner is None or body.owner.op_type != "If" or any(node.has_graphs for node in nodes):
        return False
    is_call = any(node.op_type in CALLS for node in nodes)
    if is_all and any(node.op_type not in FREE for node in nodes):
        return False
    return not is_call and not is_worth_a_program(nodes, context)


def _casts_small(node: Node) -> bool:
    """Return whether a node casts elements of 8-bit floats or of few bits: numpy takes 12 ns for each and more."""
    types = [value.type for value in (*node.present_inputs(), *node.present_outputs())]
    return node.op_type in CASTS and any(isinstance(of, TensorType) and of.dtype in SMALL_TYPES for of in types)
