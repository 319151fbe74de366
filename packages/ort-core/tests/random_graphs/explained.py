"""Differences that are known and no fault of ours: each as narrow as possible, with its reason.

A row holds for the least graph that shows a difference, never for whole graphs: what stands beside a known difference
is judged like everything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper

from random_graphs.cases import Case
from random_graphs.element_types import of_array
from random_graphs.judging import Difference
from random_graphs.truth import array_of

OURS = "every way of ours"
READER = "onnxruntime, with files of ours"


@dataclass(frozen=True)
class Explained:
    """A known difference: of which engine, kinds and operators, what its text holds, and why it is no fault.

    The engine ``OURS`` stands for all but onnxruntime, ``READER`` for onnxruntime with files of ours. ``most`` bounds
    how far two numbers lie apart, relative to the right one.
    """

    engine: str
    operators: str
    text: str
    reason: str
    where: Callable[[Case], bool] = lambda case: True
    most: float = np.inf

    def fits(self, case: Case, found: Difference) -> bool:
        """Return whether this row explains a difference."""
        made = operators_of(case.model.graph)
        engines = {found.engine, *([OURS] if found.engine != "onnxruntime" else [])}
        if found.engine.startswith("read"):
            engines.add(READER)
        return (
            self.engine in engines
            and bool(made & set(self.operators.split()) or self.operators == "*")
            and re.search(self.text, f"{found.kind} {found.text}") is not None
            and (self.most == np.inf or _distance(found.text) <= self.most)
            and self.where(case)
        )


def _distance(text: str) -> float:
    """Return how far the number that a text shows lies from the right one, relative to it; infinity without numbers."""
    numbers = re.search(r"np\.float\d+\(([^()]+)\), expected np\.float64\(([^()]+)\)", text)
    got, expected = map(float, numbers.groups()) if numbers else (np.inf, 1.0)
    return abs(got - expected) / max(abs(expected), float(np.finfo(np.float32).tiny))


def operators_of(graph: GraphProto) -> set[str]:
    """Return the operators of a graph and of all bodies in it."""
    found = {node.op_type for node in graph.node}
    bodies = [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return found.union(*map(operators_of, bodies))


def has_special_values(case: Case) -> bool:
    """Whether an assignment feeds what is not a number, or infinite."""
    return "special values" in case.flags or any(
        not np.isfinite(array.astype(np.float64)).all()
        for feeds in case.feeds
        for array in feeds.values()
        if isinstance(array, np.ndarray) and (dtype := of_array(array)) is not None and dtype.is_float
    )


def _reads_of(case: Case, *operators: str) -> set[str]:
    """Return the names that nodes of some operators read."""
    return {name for node in case.model.graph.node if node.op_type in operators for name in node.input}


def _inputs(case: Case) -> set[str]:
    """Return the names of the inputs of a graph, those with defaults among them."""
    return {each.name for each in case.model.graph.input}


def _masks(case: Case) -> bool:
    """Whether an attention leaves keys out."""
    nodes = [node for node in case.model.graph.node if node.op_type.endswith("Attention")]
    flags = [a.i for node in nodes for a in node.attribute if a.name in ("is_causal", "unidirectional")]
    return any(flags) or any(len([name for name in node.input if name]) > 3 for node in nodes)


def _filters_all_keys(case: Case) -> bool:
    """Whether an attention of com.microsoft adds a large negative number to the scores of all keys of a query."""
    places = {"Attention": 3, "MultiHeadAttention": 4}
    nodes = [node for node in case.model.graph.node if node.domain == "com.microsoft" and node.op_type in places]
    names = {name for node in nodes for name in node.input[places[node.op_type] : places[node.op_type] + 1] if name}
    masks = [array_of(each) for each in case.model.graph.initializer if each.name in names]
    masks += [np.asarray(feeds[name]) for feeds in case.feeds for name in names & set(feeds)]
    return any(_leaves_a_row_out(mask) for mask in masks)


def _leaves_a_row_out(mask: np.ndarray) -> bool:
    """Whether a mask of keys (rows of flags, or where keys end and then where they begin) leaves a row no key."""
    if mask.ndim > 1:
        return bool((mask <= 0).all(-1).any())
    ends, starts = np.array_split(mask, 2) if len(mask) % 2 == 0 else (mask, np.zeros_like(mask))
    return bool((mask <= 0).any() or (starts >= ends).any())


def _nodes_of(graph: GraphProto) -> list[NodeProto]:
    """Return the nodes of a graph and of all bodies in it."""
    bodies = [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return [*graph.node, *(node for body in bodies for node in _nodes_of(body))]


def _attribute(case: Case, name: str, default: Any) -> Any:
    """Return an attribute of the only node that has it, which may stand in a body."""
    given = [a for node in _nodes_of(case.model.graph) for a in node.attribute if a.name == name]
    value = helper.get_attribute_value(given[0]) if given else default
    return value.decode() if isinstance(value, bytes) else value


def _has_border(case: Case) -> bool:
    """Whether windows read beyond the image, by pads that are given or automatic."""
    return any(_attribute(case, "pads", ())) or _attribute(case, "auto_pad", "NOTSET").startswith("SAME")


def _steps_over(case: Case) -> bool:
    """Whether windows of some axis leave elements out between them."""
    strides, kernel = _attribute(case, "strides", None) or (), _attribute(case, "kernel_shape", None) or ()
    return any(stride > size for stride, size in zip(strides, kernel, strict=False))


def _is_larger_than_its_image(case: Case) -> bool:
    """Whether the window of the only pooling does not fit the padded image that some feed is, or a row of it."""
    kernel = _attribute(case, "kernel_shape", None) or ()
    pads, rank = _attribute(case, "pads", None) or (0,) * 2 * len(kernel), len(kernel) + 2
    ranks = (rank, rank + 1) if "Scan" in operators_of(case.model.graph) else (rank,)
    arrays = [array for feeds in case.feeds for array in feeds.values() if np.ndim(array) in ranks]
    images = [array.shape[array.ndim - len(kernel) :] for array in arrays]
    edges = list(zip(pads[: len(kernel)], pads[len(kernel) :], strict=True))
    return any(
        size + before + after < reach
        for sizes in images
        for size, (before, after), reach in zip(sizes, edges, kernel, strict=True)
    )


def _holds(graph: GraphProto, *numbers: int) -> bool:
    """Whether a constant of integers, in bodies too, holds one of some numbers."""
    arrays = [array_of(tensor) for tensor in graph.initializer if tensor.data_type == TensorProto.INT64]
    bodies = [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return any(np.isin(array, numbers).any() for array in arrays) or any(_holds(body, *numbers) for body in bodies)


def _is_scaled(case: Case) -> bool:
    """Whether a Resize is given scales, not sizes."""
    nodes = [node for node in case.model.graph.node if node.op_type == "Resize"]
    return any(len(node.input) == 3 and node.input[2] for node in nodes)


def _has_equal_experts(case: Case) -> bool:
    """Whether a router that is fed gives two experts of a token the same, if only rounded behind a softmax."""
    routers = {node.input[1] for node in case.model.graph.node if node.op_type in ("MoE", "QMoE")}
    fed = [array for feeds in case.feeds for name, array in feeds.items() if name in routers and array.ndim == 2]
    numbers = [array.astype(np.float32) for array in fed]
    powers = [np.exp(array - array.max(-1, keepdims=True)) for array in numbers]
    shares = [array / array.sum(-1, keepdims=True) for array in powers]
    return any(len(set(row)) < len(row) for array in (*numbers, *shares) for row in array.tolist())


WINDOWED = (
    "Conv FusedConv QLinearConv ConvInteger ConvTranspose If Loop Scan MaxPool AveragePool LpPool GlobalAveragePool "
    "GlobalMaxPool GlobalLpPool"
)
KNOWN: tuple[Explained, ...] = (
    Explained(
        "onnxruntime", "Loop Scan If", "loop.cc:[0-9]+ .*has unknown shape|scan.* has unknown shape",
        "it wants ranks of a body's inputs declared",
    ),
    Explained(
        "onnxruntime", WINDOWED, "Invalid input shape|ComputeOutputSize|pool_attributes.h|output dimension is <= 0",
        "it refuses windows that find no place, where the result is empty",
    ),
    Explained(
        "onnxruntime", "TreeEnsembleClassifier", r"int64\([01]\), expected np\.int64\([37]\)",
        "of two classes it gives 0 and 1, whatever labels are named",
        lambda case: len(_attribute(case, "classlabels_int64s", ())) == 2,
    ),
    Explained(
        "onnxruntime", "*", r"Type 'tensor\(float8\w+\)' of input parameter \(_inlfunc_",
        "it refuses float8 where a function calls another",
    ),
    Explained(
        "onnxruntime", "MeanVarianceNormalization",
        r"parameter \(T\) of Optype \(Pow\) bound to different types|\(op_type:Pow\): Y has inconsistent type",
        "it writes out the operator of half floats with an exponent of float32",
    ),
    Explained(
        "onnxruntime", "Scan", "must have the shape set for all", "it wants the shapes of a body's outputs declared"
    ),
    Explained(
        "onnxruntime", "LpPool", "ShapeInferenceError|^values .*int64",
        "the inference that it calls counts a window that begins behind the image",
        lambda case: bool(_attribute(case, "ceil_mode", 0)),
    ),
    Explained(
        "onnxruntime", "AveragePool MaxPool LpPool", r"^shape |^values ",
        "SAME of dilated windows: it pads as if they were not dilated",
        lambda case: (
            _attribute(case, "auto_pad", "").startswith("SAME") and max(_attribute(case, "dilations", [1])) > 1
        ),
    ),
    Explained(
        "onnxruntime", "AveragePool", "^values ",
        "of a window that is larger than its padded image it counts what lies beyond the padding",
        lambda case: bool(_attribute(case, "count_include_pad", 0)) and _is_larger_than_its_image(case),
    ),
    Explained(
        "onnxruntime", "MatMulInteger", r"^values .*int32, .*expected np\.int32\(0\)",
        "products over an axis of no elements: it leaves what the memory held",
        lambda case: any(0 in np.shape(array) for feeds in case.feeds for array in feeds.values()),
    ),
    Explained(
        "onnxruntime", "If Loop Scan", r"^error .*running (MaxPool|AveragePool) node.*OutputMLValue",
        "SAME of dilated windows within a body: the shapes that it infers and computes differ",
    ),
    Explained(
        "onnxruntime", "MeanVarianceNormalization", "^values ",
        "of nearly equal numbers it divides by their deviation alone, to which the function adds 1e-9", most=0.1,
    ),
    Explained(
        "onnxruntime", "Squeeze", "squeeze.h.* axes_tensor != nullptr",
        "axes that are left out by an empty name are missing for it, not absent",
    ),
    Explained(
        "onnxruntime", "DeformConv", r"^values .*\(-?nan\), expected",
        "it multiplies pixels beyond a border, which it reads elsewhere, by weights of zero", has_special_values,
    ),
    Explained(
        "onnxruntime", "Upsample", r"^values .*\(-?inf\), expected np\.float64\(-?nan\)",
        "beside an infinite pixel it leaves weights of zero out", has_special_values,
    ),
    Explained(
        "onnxruntime", "Elu Selu Celu", r"^values .*expected np\.float64\(-(0\.00|[0-9.]+e-)",
        "it takes one from an exponential near one, and few digits are left",
    ),
    Explained(
        "onnxruntime", "BatchNormalization", "^values ",
        "training: it writes the new moments over those that it was given, so that each run begins with other ones",
        lambda case: bool(_attribute(case, "training_mode", 0)),
    ),
    Explained(
        "onnxruntime", "GroupQueryAttention", r"expected np\.float64\(-?nan\)",
        "of scores that are no number it makes zeros", has_special_values,
    ),
    Explained(
        "onnxruntime", "Resize", "^values ",
        "regions: it takes a result of the input's sizes for the input, and so each axis that keeps its size",
        lambda case: _attribute(case, "coordinate_transformation_mode", "") == "tf_crop_and_resize",
    ),
    Explained(
        "onnxruntime", "MaxPool AveragePool", "padding values must be non-negative",
        "it computes padding below zero for SAME where steps are longer than the kernel, and refuses it",
        lambda case: _attribute(case, "auto_pad", "").startswith("SAME"),
    ),
    Explained(
        "onnxruntime", "MaxPool AveragePool LpPool", "values|different",
        "of SAME with steps longer than the kernel it cuts the beginning off, where its convolutions cut the end",
        lambda case: _attribute(case, "auto_pad", "").startswith("SAME") and _steps_over(case),
    ),
    Explained(
        "onnxruntime", "MeanVarianceNormalization", r"\(nan\), expected np\.float64\(-?0\.0\)",
        "it adds nothing to a deviation of zero, which onnx's function does",
    ),
    Explained(
        "onnxruntime", "LRN", r"\(nan\), expected np\.float64\(-?[0-9.e+-]+\)",
        "it slides its sum over channels, which what is not finite never leaves",
    ),
    Explained(
        "onnxruntime", "ReduceMax ReduceMin ArgMax ArgMin Hardmax MaxPool GlobalMaxPool TopK WordConvEmbedding",
        r"^values |^shape ",
        "which number wins over what is not a number hangs on the order of its comparisons", has_special_values,
    ),
    Explained(
        "onnxruntime", "Unique", "error|values|shape", "it counts what is not a number with any number beside it",
        has_special_values,
    ),
    Explained(
        "onnxruntime", "AttnLSTM GRU LSTM RNN MoE QMoE Normalizer RoiAlign Resize ScatterElements ScatterND",
        r"expected np\.float64\(-?nan\)",
        "its limits and weights of zero take what is not a number away", has_special_values,
    ),
    Explained(
        "onnxruntime", "Clip", r"e\+(04|38|308)\), expected np\.float64\(-?inf\)",
        "a limit that is left out is the largest number there; onnx's function has none, nor has its reference",
        has_special_values,
    ),
    Explained(
        "onnxruntime", "MultiHeadAttention GroupQueryAttention", r"\(nan\), expected np\.float64\(-?0\.0\)",
        "of a key that is infinite and masked it makes no number", has_special_values,
    ),
    Explained(
        "onnxruntime", "GroupQueryAttention", r"np\.int8\((-128|127)\), expected np\.int8\(0\)",
        "it keeps what is no number as a limit of a cache of integers, where the reference keeps 0", has_special_values,
    ),
    Explained(
        "onnxruntime", "GroupQueryAttention", r"expected np\.float64\(-?0\.0\)",
        "and reads that limit out of it again",
        lambda case: has_special_values(case) and bool(_attribute(case, "kv_cache_bit_width", 0)),
    ),
    Explained(
        "onnxruntime", "QAttention", "^values ", "it rotates nothing",
        lambda case: bool(_attribute(case, "do_rotary", 0)),
    ),
    Explained(
        "onnxruntime", "MoEGroupRouter AttnLSTM", "^values ",
        "its comparisons and gates take what is not a number, or infinite, away", has_special_values,
    ),
    Explained(
        "onnxruntime", "ReduceLogSumExp", r"\(inf\), expected np\.float64\(-?nan\)",
        "beside an infinity it does not see what is not a number", has_special_values,
    ),
    Explained(
        "onnxruntime", "Attention", r"\(nan\), expected np\.float64\(-?0\.0\)",
        "a query whose scores are all -inf gives zeros in the reference, as one whose keys are all masked",
        has_special_values,
    ),
    Explained(
        "onnxruntime", "FusedGemm", r"expected np\.float64\(-?nan\)",
        "with a beta of 0 it does not read C",
        lambda case: has_special_values(case) and not _attribute(case, "beta", 1.0),
    ),
    Explained(
        "onnxruntime", "MatMulNBitsMlp MatMulNBitsQkv", r"Shape of initializer .*does not match\. \{",
        "it gives what it packed of one constant the name of another",
    ),
    Explained(
        "onnxruntime", "DecoderMaskedSelfAttention", "Incompatible dimensions",
        "its inference gives the result the width of the input, where it is that of the values",
    ),
    Explained(
        "onnxruntime", "SimplifiedLayerNormalization", "op_kernel_context.h.*Missing Input",
        "its normalization of halves fails for empty rows",
    ),
    Explained(
        "onnxruntime", "GatedRMSNorm RNN LSTM GRU DynamicQuantizeLSTM Sigmoid FusedGemm",
        r"^values .*float32, .*expected np\.float64\(-?(0\.00[0-9]|[0-9.]+e-0[3-9])",
        "near their limits its exponential and hyperbolic tangent keep few digits", most=0.5,
    ),
    Explained(
        OURS, "MultiHeadAttention Attention GroupQueryAttention", r"\(nan\), expected np\.float64\(-?inf\)",
        "a weight that is too small for float32 is zero, which times infinity is no number", has_special_values,
    ),
    Explained(
        "onnxruntime", "DFT STFT", r"^values 1 of .* u?int(8|16), ",
        "its factors have few digits, and of what is quantized behind it a level beside a half is another one",
    ),
    Explained(
        "onnxruntime", "BeamSearch", r"^values .* (int32|float32), ", "it mixes masks of different entries of a batch",
        lambda case: any(
            array.ndim == 2 and len(array) > 1 for array in map(array_of, case.model.graph.initializer)
        ),
    ),
    Explained(
        OURS, "CDist", r"\(inf\), expected np\.float64\(-?nan\)",
        "what is compiled squares differences, of which one is infinite; the truth takes products from sums of squares",
        has_special_values,
    ),
    Explained(
        "onnxruntime", "If", r"^error .*running If node.*_inlfunc_Part.*OutputMLValue",
        "within functions it takes the shape that it infers of one branch for the other",
    ),
    Explained(
        "onnxruntime", "If", r"Op .Part.*Mismatch between the sum of 'split'",
        "within functions it infers a branch that is not taken by the sizes of a call, and refuses it",
    ),
    Explained(
        "onnxruntime", "DFT", "^values .* float32, ",
        "its factors of sizes that are no power of two have few digits", most=1e-2,
    ),
    Explained(
        READER, "*", "Cannot parse data from external tensors",
        "its inference reads no shapes and axes from a file beside a model, of files of its own neither",
        lambda case: any(len(tensor.raw_data) >= 100 for tensor in case.model.graph.initializer),
    ),
    Explained(
        READER, "BatchNormalization", "^values ", "what a training gives it writes over the moments of the model",
        lambda case: bool(_attribute(case, "training_mode", 0)),
    ),
    Explained(
        OURS, "LinearClassifier", r"expected np\.float64\([0-9.]+e-0[78]\)",
        "of two classes the truth takes what one of them leaves of one, in float32; it has digits of its own",
    ),
    Explained(
        "onnxruntime", "*", r"Op .Part.*op_type:SequenceConstruct.*Inferred shape and existing shape differ",
        "within functions it keeps the shapes of another call",
    ),
    Explained(
        "onnxruntime", "CausalConvWithState", r"expected np\.float64\(-?nan\)",
        "it does not multiply a state that is not given", has_special_values,
    ),
    Explained(
        "onnxruntime", "GatedRMSNorm", r"\(-?0\.0\), expected np\.float64\(-?[0-9.]+e-(09|[1-9][0-9])\)",
        "a gate below -18 is zero there",
    ),
    Explained(
        "onnxruntime", "If", "Can't merge shape info|running If node.*(OutputMLValue|pre-allocated shapes match)",
        "of opsets before 11 it takes the shape of one branch for both", lambda case: case.opset < 11,
    ),
    Explained(
        "onnxruntime", "EmbedLayerNormalization", "should have [12] dimension", "it wants ranks of tables declared"
    ),
    Explained(
        "onnxruntime", "ReduceSumInteger", "type inference failed", "its inference takes sums of uint8 to be int32"
    ),
    Explained(
        "onnxruntime", "StringNormalizer", "Exception during initialization.*string_normalizer",
        "it needs a locale of the system",
    ),
    Explained(
        "onnxruntime", "AveragePool MaxPool LpPool", "Incompatible dimensions",
        "the inference that it calls counts a window that begins behind the image",
        lambda case: bool(_attribute(case, "ceil_mode", 0)),
    ),
    Explained(
        "onnxruntime", "Resize Upsample", r"^values .*\(-?nan\), expected",
        "of an axis that keeps its size it multiplies what is infinite beside an element by zero",
        has_special_values,
    ),
    Explained(
        "onnxruntime", "Resize", "^values ",
        "filters that shrink: it takes corners to be those of the whole result, onnx's cases those of the uncut size",
        lambda case: (
            _attribute(case, "coordinate_transformation_mode", "") == "align_corners"
            and _attribute(case, "mode", "nearest") != "nearest"
            and _is_scaled(case)
        ),
    ),
    Explained(
        "onnxruntime", "GatherBlockQuantized", "zero points shape and scales shape do not match",
        "it compares shapes of which one is open",
    ),
    Explained(
        "onnxruntime", "DFT Rfft Irfft STFT", r"\(-?(nan|inf)\), expected|expected np\.float64\(-?(nan|inf)\)",
        "which outputs an infinity reaches hangs on how a transform is split", has_special_values,
    ),
    Explained("onnxruntime", "Binarizer", "Input data with index: [0-9]+ is NaN", "it refuses what is not a number"),
    Explained(
        "onnxruntime", "If Loop ReduceSumInteger",
        r"^error .*Op .Part.*(Input tensors of wrong rank \(0\)|Input 0 expected to have type but instead is null)",
        "within functions it lacks ranks in bodies, and types behind operators without inference",
    ),
    Explained(
        "onnxruntime", "*", "Op .Part.*Invalid tensor data type 0",
        "its functions want types of all outputs of a node, and infer none of those that nobody reads",
    ),
    Explained(
        OURS, "MultiHeadAttention Attention GroupQueryAttention PagedAttention", r"expected np\.float64\(nan\)",
        "compiled code leaves masked keys out, where a weight of zero times no number is no number",
        lambda case: has_special_values(case) and _masks(case),
    ),
    *(
        Explained(
            engine, "Attention MultiHeadAttention", r"^values ",
            "where a mask leaves out all keys, their scores count, and minus ten thousand rounds them to a thousandth",
            _filters_all_keys, most=2e-3,
        )
        for engine in (OURS, "onnxruntime")
    ),
    Explained(
        OURS, "Softmax", r"\(-?0\.0\), expected np\.float64\(nan\)",
        "fused to ONNX's Attention or to GroupQueryAttention, which give zeros for scores that are all minus infinity",
        lambda case: has_special_values(case) and "MatMul" in operators_of(case.model.graph),
    ),
    Explained(
        "onnxruntime", "GreedySearch Sampling",
        r"^values .*int32, .*expected np\.int32\((4|10|1000?)\)|indices element out of data bounds",
        "behind the last token of all sequences it leaves what the memory held, where padding belongs",
    ),
    Explained(
        "bfloat16", "BeamSearch Sampling", r"^values .*int32",
        "rounded scores move the borders between the tokens that are drawn, and the order of beams",
    ),
    Explained(
        READER, "Normalizer", r"^values .*\([0-9.e-]+\), expected np\.float64\(-",
        "where it knows the shape it writes over its input, and takes the sign from what it has written",
    ),
    Explained(
        "onnxruntime", "PackedAttention", r"ShapeInferenceError\] Incompatible dimensions",
        "where the length of the bias is open, it infers a result as wide as the input",
    ),
    Explained(
        "onnxruntime", "ConvTransposeWithDynamicPads", "output dimension is <= 0",
        "it refuses paddings that leave nothing, where the result is empty",
    ),
    Explained(
        "onnxruntime", "ConvTranspose",
        "Computed output shape is inconsistent.* but got 0|Input spatial dimension must be positive. Got: 0",
        "it refuses an empty image",
    ),
    Explained(
        "onnxruntime", "*", "marked single but has an empty string", "it wants a name for each output of these"
    ),
    Explained(
        "onnxruntime", "FastGelu", "expected to have 1 or more dimensions", "it refuses a single number"
    ),
    Explained(
        "onnxruntime", "SkipLayerNormalization SkipSimplifiedLayerNormalization", "hidden_size must be positive",
        "it refuses rows of no elements"
    ),
    Explained(
        "onnxruntime", "Gather", r"object, at .*: '', expected '",
        "of blocks of text it copies the first element only, and leaves the others empty",
    ),
    Explained("onnxruntime", "Resize", "Tensor type mismatch", "it has no cubic kernel for bytes, and says so late"),
    Explained(
        "onnxruntime", "GroupNormalization", "Invalid position of 0|reshape_helper",
        "its function of groups fails for empty images",
    ),
    Explained(
        "onnxruntime", "OneHot", "must be non-negative for OneHot opset < 11",
        "it refuses known indices below 0: before opset 11 the schema forbids them, and says what they give",
    ),
    Explained(
        "onnxruntime", "OneHot Loop Scan If", "Indices tensor must have rank >= 1",
        "it refuses a single index, which onnx allows"
    ),
    Explained(
        "onnxruntime", "SimplifiedLayerNormalization LayerNormalization RMSNormalization ReduceMean If Loop Scan",
        "must be at least 1, got 0",
        "it refuses rows of no elements, where the result is empty",
    ),
    Explained(
        "onnxruntime", "Sigmoid FusedGemm", r"\(0\.0\), expected np\.float64\(([0-9.]+e-(09|[1-9][0-9])|1\.0)\)",
        "below -18 it gives zero, where the value is small",
    ),
    Explained(
        "onnxruntime", "*",
        r"Type '(tensor\((u?int[24]|float8.*)\)|optional.*|seq.*|map.*)' of input parameter .* of operator \(Part",
        "its functions take only some types of values",
    ),
    *(
        Explained(
            engine, "Conv FusedConv", r"^values .*\(nan\), expected",
            "a weight that is not finite times the zeros of the padding; the truth leaves windows in padding out",
            lambda case: has_special_values(case) and _has_border(case),
        )
        for engine in ("onnxruntime", OURS)
    ),
    Explained(
        "onnxruntime", "Gelu", "_inlfunc_Gelu.*No Op registered for Erf",
        "its function asks for an operator that the opset does not have", lambda case: case.opset < 9,
    ),
    Explained(
        "onnxruntime", "Scan", r"Part[0-9].*op_type:Scan.*(Input tensors of wrong rank|rank larger than 0)",
        "within functions it infers the body of a Scan without the ranks of its items",
    ),
    Explained(
        "onnxruntime", "InstanceNormalization", r"\(nan\), expected np\.float64\(-?inf\)",
        "it shifts by a product with the mean: infinite shifts of both signs meet", has_special_values,
    ),
    Explained(
        "onnxruntime", "Affine Crop DynamicSlice ImageScaler ParametricSoftplus Scale ScaledTanh",
        "is not a registered function/op", "it has them up to opset 9, and quantizing raises the opset",
        lambda case: case.opset >= 10,
    ),
    Explained("onnxruntime", "CastMap", "it cannot be linked to C type int64_t", "it reads no texts of fed maps"),
    Explained(
        "onnxruntime", "MeanVarianceNormalization",
        r"Part[0-9].*\(op_type:Constant\)|\(op_type:Add\): B has inconsistent type|\((Add|Pow)\) bound to different",
        "it infers the types of a function within a function by the operators of the first opset",
    ),
    Explained(
        "onnxruntime", "Resize", r"^values .* u?int8, .*int8\(",
        "both cut the fraction off; its float32 sum of a whole number may lie one rounding below it",
    ),
    Explained("onnxruntime", "Shrink Gelu FastGelu", r"^values .*float64, ", "it computes doubles in float32"),
    Explained(
        "onnxruntime", "Softplus", r"^values .*float64, .*\(inf\), expected np\.float64\([0-9]",
        "of doubles it takes the logarithm of 1 + e**x, which overflows above 709",
    ),
    Explained(
        "onnxruntime", "InstanceNormalization", r"^values .*float32, ",
        "it scales large numbers before it takes their mean away, so that what is left of one element is a rounding",
    ),
    Explained(
        "onnxruntime", "RMSNormalization", "op_kernel_context.h.*Missing", "it fails for empty tensors of halves"
    ),
    Explained(
        "onnxruntime", "TreeEnsemble", "^values ", "it takes the number of a softmax for that of a logistic function",
        lambda case: _attribute(case, "post_transform", 0) == 1,
    ),
    Explained(
        "onnxruntime", "MoE QMoE", "^values ", "of equal experts it takes the last; TopK takes the first",
        _has_equal_experts,
    ),
    Explained(
        "onnxruntime", "QMoE", "^values ", "it makes shares of the chosen experts sum up to one, asked or not",
        lambda case: _attribute(case, "normalize_routing_weights", 0) == 0,
    ),
    Explained(
        "onnxruntime", "QMoE", "^values ", "it rounds what experts of 8 bits multiply to 8 bits: off by a hundredth",
        lambda case: _attribute(case, "expert_weight_bits", 4) == 8,
    ),
    Explained(
        "onnxruntime", "SparseAttention", "sparse_attention.cc", "it wants one buffer for past and present"
    ),
    Explained(
        "onnxruntime", "OptionalGetElement", r"Type \(optional\(tensor\(float16\)\)\) .* does not match expected type",
        "it reads optionals of halves as such of float32, and forgets to say so of the node that makes them",
    ),
    Explained("onnxruntime", "Inverse", r"^values .*float32", "it inverts in float32, not in float64", most=1e-3),
    Explained(
        "onnxruntime", "QEmbedLayerNormalization", "word_embedding should have 2 dimensions",
        "it wants the sizes of words that were reshaped known before it runs",
    ),
    Explained(
        "onnxruntime", "SkipLayerNormalization MatMulNBitsMlp MatMulNBitsQkv FusedConv",
        "already has tensor with name  but different TensorProto",
        "it keeps constants that it packed under the name of an optional one that is not given",
    ),
    Explained(
        "onnxruntime", "MatMulNBitsQkv MatMulNBitsMlp", "bias shape must be", "it wants the size of a bias declared",
        lambda case: bool(_reads_of(case, "MatMulNBitsQkv", "MatMulNBitsMlp") & _inputs(case)),
    ),
    Explained(
        "onnxruntime", "MatMulNBits", "^values ", "at level 4 it packs weights before a scale with a default is given",
        lambda case: "inputs with defaults" in case.flags and _attribute(case, "accuracy_level", 0) == 4,
    ),
    Explained(
        "onnxruntime", "GreedySearch BeamSearch Sampling", "shall be named as input_ids, got: _inlfunc_",
        "in place of a call of a function it renames what a subgraph takes, and then misses the names",
    ),
    Explained(
        OURS, "MatMulNBits", r"\(-?inf\), expected np\.float64\(-?nan\)",
        "a row of bytes has one infinite scale for a block: several infinities are one sum of bytes times that",
        lambda case: has_special_values(case) and _attribute(case, "accuracy_level", 0) >= 2,
    ),
    Explained(
        "onnxruntime", "MatMulNBits", r"expected np\.float64\(-?nan\)",
        "rounded to bytes, a row that holds no number gives zeros",
        lambda case: has_special_values(case) and _attribute(case, "accuracy_level", 0) >= 4,
    ),
    Explained(
        "onnxruntime", "Attention DecoderMaskedSelfAttention", "Incompatible dimensions for matrix multiplication",
        "the inference that it calls takes the size of values that is not known for 0",
    ),
    Explained(
        "onnxruntime", "MelWeightMatrix", r"output arg \(InsertedPrecisionFreeCast_.*does not match expected type",
        "it casts its weights to float32 and forgets the attribute that names the type",
    ),
    Explained(
        "onnxruntime", "If", r"optional\(tensor\(float16\)\)\) of output arg .* expected type \(optional\(",
        "it casts what an optional of a branch holds to float32, but not the optional",
    ),
    Explained(
        "onnxruntime", "ReduceMean", "op_kernel_context.h.*Missing Input: .*_ones",
        "its fused normalization of halves fails for empty rows",
    ),
    Explained(
        "onnxruntime", "ArgMin ArgMax", r"^values .*int64, ",
        "of parts that cancel in a transform, what rounding leaves decides which is the least",
        lambda case: bool(operators_of(case.model.graph) & {"DFT", "STFT"}),
    ),
    Explained(
        "onnxruntime", "MatMulNBits", r"\(nan\), expected np\.float64\(-?inf\)",
        "whether the products of an infinity add up to a number hangs on how a row is split into sums",
        has_special_values,
    ),
    Explained(
        "onnxruntime", "LogSoftmax", r"float64, .*expected np\.float64\(-?nan\)",
        "it takes the logarithm of 1e-20 at least, where a sum of doubles is no number", has_special_values,
    ),
    Explained(
        "onnxruntime", "If", r"Mismatched tensor element type: inferred=float16 declared=float",
        "it casts one branch to float32, and not the type that the other has",
    ),
    Explained(
        OURS, "ConvTranspose ConvTransposeWithDynamicPads",
        r"\((nan|-?inf)\), expected np\.float64\(-?([0-9.]+(e-?[0-9]+)?|inf)\)",
        "phases of its columns are computed side by side: what is infinite meets weights of zero one column further",
        has_special_values,
    ),
    Explained(
        "onnxruntime", "MaxpoolWithMask", "^values ",
        "it ends a row of a window at the first 0 of the mask, and begins masks of several images at other places",
    ),
    Explained(
        "onnxruntime", "Slice", "^(values|shape|error) ",
        "the largest integer as an end of a slice backwards stands for its beginning; the specification clamps it",
        lambda case: _holds(case.model.graph, 2**63 - 1, 2**31 - 1),
    ),
    Explained(
        "onnxruntime", "Sign", r"float16\(0\.0\), expected np\.float64\(nan\)", "of float16 it gives 0 for no number",
        has_special_values,
    ),
    Explained(
        "onnxruntime", "DynamicQuantizeLSTM", "^values ",
        "a range without end has no levels: it rounds to any; computed as it is, the input closes gates or shows",
        has_special_values,
    ),
    Explained(
        "onnxruntime", "Pow", r"^values .*int(32|64)\(-(2147483648|9223372036854775808)\), expected np\.int(32|64)\(",
        "of powers beyond their type it gives the least number, as processors make of doubles; others wrap around",
    ),
    Explained(
        "onnxruntime", "Scan", "Mismatch between expected shape and shape from first output",
        "it takes the size of a state from an output whose size is declared wrongly",
        lambda case: "a wrong size is declared" in case.flags,
    ),
    Explained(
        "onnxruntime", "Resize", "ScalesValidation .* mode only supports", "it resizes some axes only, and says so late"
    ),
    Explained(
        "onnxruntime", "QLinearGlobalAveragePool QLinearAveragePool", "parameter out of computation range",
        "it refuses scales of two signs, whose quotient is below zero",
    ),
    Explained("onnxruntime", "QLinearSoftmax", "_scale must be positive", "it refuses scales below zero"),
    Explained(
        "onnxruntime", "Resize", "^shape ", "it keeps proportions of axes that are counted from the front alone",
        lambda case: (
            _attribute(case, "keep_aspect_ratio_policy", "stretch") != "stretch"
            and min(_attribute(case, "axes", None) or (0,)) < 0
        ),
    ),
    Explained("onnxruntime", "FlexAttention", "is not a registered function/op", "it has no such operator"),
)  # fmt: skip


def explanation(case: Case, found: Difference) -> str | None:
    """Return why a difference is no fault, ``None`` where nobody knows."""
    return next((row.reason for row in KNOWN if row.fits(case, found)), None)
