"""Where this project and onnxruntime judge a broken node in different ways on purpose, each with its reason.

``LENIENT``: onnxruntime refuses with such a text, and a result comes here. ``STRICT``: refused here with such a text,
and onnxruntime gives a result. ``DIFFERENT``: both give one, for such a change of a valid case, and not the same.
``COMPILED``: compiled code ends otherwise than the numpy kernel, for such a change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

MS = "com.microsoft"
ML = "ai.onnx.ml"


@dataclass(frozen=True)
class Deliberate:
    """One difference.

    Attributes:
        operators: ``domain:name``, some.
        pattern: what the refusal's text, or (``DIFFERENT``) the change's, contains: a regular expression.
        reason: why it stays.
    """

    operators: tuple[str, ...]
    pattern: str
    reason: str

    def covers(self, operator: tuple[str, str], text: str) -> bool:
        """Return whether a difference is this one."""
        return ":".join(operator) in self.operators and re.search(self.pattern, text) is not None


def standard(names: str) -> tuple[str, ...]:
    """Return operators of ONNX's own domain."""
    return tuple(f":{name}" for name in names.split())


def contrib(names: str) -> tuple[str, ...]:
    """Return operators of com.microsoft."""
    return tuple(f"{MS}:{name}" for name in names.split())


def find_reason(rows: Iterable[Deliberate], operator: tuple[str, str], text: str) -> str | None:
    """Return why a difference stays, ``None`` where nobody says so."""
    return next((row.reason for row in rows if row.covers(operator, text)), None)


LENIENT = (
    Deliberate(standard("ConvInteger"), "Non per-tensor quantization",
               "the schema: w_zero_point may have one element for each output channel"),
    Deliberate(standard("StringNormalizer"), "Failed to construct locale",
               "onnxruntime needs the system's locale en_US; the operator does not"),
    Deliberate(standard("GRU LSTM RNN"), "Batchwise recurrent operations",
               "the schema: layout 1 is batch first"),
    Deliberate((*standard("GRU LSTM RNN"), *contrib("DynamicQuantizeLSTM")), r"GetAttr\(\"hidden_size\"",
               "the schema: hidden_size may be left out; the weights say it"),
    Deliberate(standard("Loop Range Scan"), "inferred and declared dimension",
               "what a body declares of its inputs is a claim, not a fact"),
    Deliberate(standard("Scan"), "Invalid dim0_offset", "a sequence without steps gives none"),
    Deliberate(standard("Attention CenterCropPad RMSNormalization"), "bound to different types",
               "the schema has two type parameters; onnxruntime's function of the operator has one"),
    Deliberate(standard("Attention"), "ComputeOutputShapeForAttention",
               "the schema: a mask broadcasts, and its last axis may be shorter"),
    Deliberate(standard("Conv"), "Invalid input shape", "an empty image has an empty result"),
    Deliberate(standard("Pad"), "'pads' input must be a 1D|ParseData type mismatch",
               "onnxruntime's kernel takes one row, and the schema axes of int32; its inference of constants does not"),
    Deliberate(standard("Reshape"), "Product cannot be 0 in combination", "an empty tensor has no elements to miss"),
    Deliberate(standard("STFT"), "frame_length input must be scalar", "one number is one in any shape"),
    Deliberate(standard("LRN"), r"NumDimensions\(\) == 4", "the schema: any number of axes behind the channels"),
    Deliberate(standard("LRN"), "size_ % 2",
               "the schema: floor and ceil of half the size, so that even sizes have a meaning"),
    Deliberate(standard("GroupNormalization"), "cannot be reshaped|Invalid position of 0|with value zero",
               "empty images have an empty result"),
    Deliberate(standard("CausalConvWithState"), "Invalid input shape", "an empty sequence has an empty result"),
    Deliberate(standard("MelWeightMatrix"), "CreateMelWeightMatrix", "an odd dft_length has (length + 1) // 2 bins"),
    Deliberate(standard("Cast CastLike"), "only used for cast to float 8",
               "the schema: saturate has no effect on other types"),
    Deliberate(standard("ReduceMax ReduceMin"), "not defined for empty set",
               "the schema: the least (greatest) value of the type"),
    Deliberate(standard("SplitToSequence"), "Tensor size", "the schema: keepdims does not count where split is given"),
    Deliberate((f"{ML}:SVMClassifier",), "No attribute with this name",
               "the schema: kernel_params may be left out, and LINEAR has none"),
    Deliberate((f"{ML}:Scaler",), "Either both scale and offset",
               "the schema knows rows and tables; of more axes the last one is taken as the features"),
    Deliberate(contrib("CausalConvWithState LinearAttention"), "state_window", "the schema's, by CUDA alone there"),
    Deliberate(contrib("MoE QMoE"), "currently requires CUDA|only supports interleaved",
               "the schema's, by CUDA alone there"),
    Deliberate(contrib("QLinearAdd QLinearMul QLinearAveragePool"), "Input data type does not match",
               "the schema: zero points may be left out"),
    Deliberate(contrib("GroupQueryAttention"), "head_size must be a multiple of 8", "the schema: heads of any width"),
    Deliberate(contrib("Attention"), "Rotary embedding is not supported", "the schema's, by CUDA alone there"),
    Deliberate(contrib("SparseAttention"), "DataRaw", "onnxruntime needs a buffer that past and present share"),
    Deliberate(contrib("MatMulNBitsMlp MatMulNBitsQkv GatherBlockQuantized"),
               r"shape must be \[|shapes? do not match", "onnxruntime's inference takes the name of a size for a size"),
    Deliberate(contrib("FastGelu"), "1 or more dimensions", "a scalar has no last axis, and needs none without a bias"),
    Deliberate((*standard("ConvTranspose"), *contrib("ConvTransposeWithDynamicPads")), "output dimension is <= 0",
               "an empty image has an empty result"),
    Deliberate(standard("SimplifiedLayerNormalization"), "must be at least 1", "rows of nothing give rows of nothing"),
    Deliberate(contrib("FusedConv"), "Invalid input shape", "an empty image has an empty result"),
    Deliberate(standard("MatMulInteger"), "zero point is not valid|must be a scalar or 1D tensor of size 1",
               "the schema: one for each row or column, of matrices of more dimensions, too"),
    Deliberate(standard("Attention"), "cannot be reshaped to the requested shape", "no key: nothing is attended to"),
    Deliberate(standard("BitCast"), "is not currently registered or supported", "onnxruntime has no complex numbers"),
    Deliberate(standard("Resize"), "Scale value should be greater than 0", "an output without pixels is empty"),
    Deliberate(contrib("QLinearReduceMean"), "must be a scalar", "one number is one in any shape"),
    Deliberate(contrib("EmbedLayerNormalization QEmbedLayerNormalization"), "dimension size is known",
               "onnxruntime's inference takes the name of a size for none"),
    Deliberate(contrib("ConvTransposeWithDynamicPads"), "pads tensor is required", "the schema: optional"),
    Deliberate(standard("ParametricSoftplus ScaledTanh"), "No attribute with name", "the schema: optional"),
    Deliberate(contrib("DecoderMaskedMultiHeadAttention"), "past_present_share_buffer_",
               "the schema: presents need no buffer that they share with pasts"),
)  # fmt: skip
STRICT = (
    Deliberate(standard("CenterCropPad"), "dimensions, got 0|do not fit input|negative size|is impossible",
               "the schema: one size, at least 0, for each of the axes"),
    Deliberate(standard("DFT"), "axis input must be a scalar|expected a positive number",
               "the schema: the axis is a scalar; no transform has length 0"),
    Deliberate(standard("GlobalLpPool LpPool"), "attribute p must be", "there is no norm below 1"),
    Deliberate((":ImageScaler",), "needs 4 dimensions", "the schema: images of four dimensions"),
    Deliberate(standard("Expand"), "'shape' is expected to have 1", "the schema: a vector"),
    Deliberate(standard("LayerNormalization"), "the size of bias must match",
               "the schema: one number for each element; an empty bias is not none"),
    Deliberate(standard("LinearAttention"), "value hidden size must be positive", "no result comes from empty values"),
    Deliberate(standard("MeanVarianceNormalization"), "not in valid range|name one twice",
               "the schema: axes of the input, and no axis twice"),
    Deliberate(standard("MelWeightMatrix"), "leave the", "a matrix for no frequency has no meaning"),
    Deliberate(standard("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss"),
               "attribute reduction|do not fit .* classes",
               "the schema: three words; a weight for each class"),
    Deliberate(standard("NonMaxSuppression"), "must hold a number",
               "the schema: scalars, of which an empty one says nothing"),
    Deliberate(standard("RandomNormal RandomUniform RandomUniformLike"), "expected a finite number",
               "NaN is no seed: onnxruntime converts it, and the result depends on the processor"),
    Deliberate(standard("ReduceL1 ReduceL2 ReduceLogSum ReduceMax ReduceMin ReduceSumSquare"),
               "not in valid range|axis must be in",
               "the schema: axes of the input, which a scalar does not have"),
    Deliberate(standard("Resize Upsample"), "must have one dimension|dimensions, got 2|is expected to have 1",
               "the schema: scales are a vector"),
    Deliberate(standard("ReverseSequence"), "different dimensions|not in valid range", "the schema: axes 0 and 1"),
    Deliberate(standard("RotaryEmbedding"), "caches of half that width",
               "a head that is wider than its caches: the schema turns all of it"),
    Deliberate(standard("STFT"), "onesided needs a real signal", "the schema: not of complex signals"),
    Deliberate(standard("ScatterElements ScatterND"), "unknown reduction", "the schema: five words"),
    Deliberate(standard("TfIdfVectorizer"), "ngram_indexes for", "onnxruntime reads beyond the pool"),
    Deliberate((f"{ML}:SVMClassifier", f"{ML}:SVMRegressor"), "coefficients for|vectors_per_class|kernel_params",
               "onnxruntime leaves some of them unread, or reads beyond their end"),
    Deliberate((f"{ML}:Scaler",), "offset has", "as above: the last axis has the features"),
    Deliberate(contrib("CropAndResize"), "rows and columns",
               "nothing to cut from: onnxruntime reads beyond the images"),
    Deliberate(contrib("DynamicTimeWarping"), "rows and columns", "there is no path through no costs"),
    Deliberate(contrib("EmbedLayerNormalization"), "together", "the schema: both, or none"),
    Deliberate(contrib("EmbedLayerNormalization"), "'position_ids' is expected to have 2", "the schema: a matrix"),
    Deliberate(contrib("GroupQueryAttention"), "norm_epsilon", "the schema: a positive number"),
    Deliberate(contrib("LinearAttentionGate"), "must have shape", "the schema: vectors"),
    Deliberate(contrib("MatMulNBits"), "does not match the expected",
               "an empty B: onnxruntime multiplies by what lies there"),
    Deliberate(contrib("QLinearGlobalAveragePool"), "only N can be zero", "there is no mean of nothing"),
    Deliberate(contrib("QMoE"), "quant_type", "the schema: five words"),
    Deliberate(contrib("RotaryEmbedding"), "exceeds input hidden_size", "rows of nothing have no heads"),
    Deliberate(contrib("SkipLayerNormalization SkipSimplifiedLayerNormalization"), "cannot be repeated",
               "the schema: one skip for each row"),
    Deliberate(contrib("Tokenizer"), "separator|tokenexp",
               "the schema: one of both, and no empty separator beside others"),
    Deliberate(contrib("Inverse"), "must be equal", "a matrix that is not square has none"),
    Deliberate(contrib("WordConvEmbedding"), "must have 2 dimensions", "the schema: a row for each character"),
    Deliberate(standard("ConvInteger"), "kernel size must be positive", "onnxruntime gives what lay in the memory"),
    Deliberate(standard("Split"), "num_outputs is", "the schema: as many outputs as the node has"),
    Deliberate(standard("Attention"), "scale must be greater", "its kernel refuses it, its function does not"),
    Deliberate(standard("ConvTranspose"), "must be 2 numbers of at least 0", "the schema: at least 0"),
    Deliberate(standard("Pad"), "has duplicates", "the schema: undefined"),
    Deliberate(standard("STFT"), "window has shape", "the schema: a vector"),
    Deliberate(contrib("WordConvEmbedding"), "Input W must have shape", "the schema: four dimensions"),
    Deliberate(contrib("GatedRMSNorm"), "'scale' is expected to have 1", "the schema: a vector"),
)  # fmt: skip
DIFFERENT = (
    Deliberate(standard("Cast CastLike"), "^saturate", "onnxruntime's result is what lay in the memory"),
    Deliberate(standard("DFT STFT"), "", "onnxruntime's is off by 1e-4 of the sum"),
    Deliberate(standard("Loop"), "^input 0: .* content", "no step ran: sizes that nobody knows are 0 here"),
    Deliberate(standard("LSTM"), "size 0 of axis 0", "no step ran: onnxruntime leaves its last state as it finds it"),
    Deliberate(standard("MaxUnpool"), "^input [12]", "indices of a random tensor: see the kernel for whose they are"),
    Deliberate(standard("MeanVarianceNormalization"), "^axes", "a variance of 0 is none below 0 by rounding"),
    Deliberate(standard("RandomNormal RandomUniform RandomUniformLike"), "^without seed", "random"),
    Deliberate(standard("ReduceMean"), "size 0", "the mean of nothing is NaN, as the reference implementation says"),
    Deliberate(standard("NegativeLogLikelihoodLoss"), "size 0", "the mean of nothing is NaN"),
    Deliberate(standard("MaxRoiPool"), r"^pooled_shape = \[1000", "bins below a pixel: edges differ by rounding"),
    Deliberate(standard("TopK"), "^sorted", "the schema: any order"),
    Deliberate(contrib("QLinearAveragePool"), "^ceil_mode = 1$",
               "onnxruntime counts places beyond the padding; its AveragePool does not"),
    Deliberate((f"{ML}:TreeEnsemble",), "^post_transform",
               "the schema: 1 is SOFTMAX; onnxruntime takes it for LOGISTIC"),
    Deliberate(contrib("MaxpoolWithMask"), "^input 1|^pads|^kernel_shape|strides|^storage_order",
               "onnxruntime ends a row of a window at the first 0 of the mask"),
    Deliberate(contrib("QAttention"), "^do_rotary", "the schema's; onnxruntime does not read it"),
    Deliberate(contrib("QLinearSoftmax"), "^opset", "an opset beyond 32 bits"),
    Deliberate(contrib("DynamicQuantizeLSTM"), "", "onnxruntime rounds states to 8 bits, compiled code here to 16"),
    Deliberate(contrib("MatMulBnb4"), "^transB", "the schema's; onnxruntime's CPU does not read it"),
    Deliberate(contrib("MoE"), "^use_sparse_mixer", "the schema's; onnxruntime's CPU does not read it"),
    Deliberate(contrib("QMoE"), "^use_sparse_mixer|^normalize_routing_weights",
               "the schema's; onnxruntime's CPU does not read them"),
)  # fmt: skip
COMPILED = (
    Deliberate(standard("ReverseSequence"), "^input 0: size 0", "no element is moved, and no length is read"),
    Deliberate(contrib("DynamicQuantizeLSTM"), "", "compiled code rounds states to 16 bits, the operator to 8"),
)  # fmt: skip
