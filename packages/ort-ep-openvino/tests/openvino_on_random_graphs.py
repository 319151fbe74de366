"""How random graphs are run by OpenVINO: ``nox -s graphs -- FIRST COUNT OUT 1 low THIS``."""

from random_graphs.explained import Explained, has_special_values
from random_graphs.on_provider import GraphsProvider

NAME = "OpenVINOExecutionProvider"
KNOWN = (
    Explained(
        NAME,
        "Celu Clip Exp FusedConv FusedGemm FusedMatMulActivation GlobalMaxPool HardSigmoid Hardmax LogSoftmax MaxPool "
        "ReduceLogSumExp Relu Softmax ThresholdedRelu",
        r"^values .*expected np\.float64\(nan\)",
        "it loses a NaN there, and keeping it costs a further kernel each",
        has_special_values,
    ),
    Explained(
        NAME,
        "OneHot",
        r"^values ",
        "before opset 11 ONNX has no index from the end; onnxruntime and the CPU count such from there",
        lambda case: case.opset < 11,
    ),
    Explained(
        NAME, "TopK", r"^values .*nan", "ONNX does not say which place a NaN has among numbers", has_special_values
    ),
)
PROVIDER = GraphsProvider(NAME, options=({}, {}, {"num_of_threads": "1"}), known=KNOWN)
