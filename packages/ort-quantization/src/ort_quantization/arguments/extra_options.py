"""The keys of ``extra_options``: onnxruntime's, and what each is for."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable

log = logging.getLogger(__name__)

EXTRA_OPTIONS = {
    "extra.Sigmoid.nnapi": "Sigmoid's result has the scale 1/256 and the zero point 0",
    "ActivationSymmetric": "activations have zero in the middle",
    "ActivationRestrictedAsymmetric": "zero points of uint8 activations lie at the lower end or in the middle",
    "WeightSymmetric": "weights have zero in the middle; signed types do by default",
    "MinimumRealRange": "how far the ends of a range lie apart at least",
    "EnableSubgraph": "the graphs inside If, Loop and Scan are quantized, too",
    "ForceQuantizeNoInputCheck": "operators that only move numbers are quantized whatever they read",
    "MatMulConstBOnly": "only products with constant weights are quantized (the default of dynamic)",
    "DefaultTensorType": "the element type of products where weights do not tell it, either",
    "TensorQuantOverrides": "choices for single tensors",
    "AddQDQPairToWeight": "weights stay floats, with a QuantizeLinear and a DequantizeLinear behind them",
    "OpTypesToExcludeOutputQuantization": "operators whose results are not quantized",
    "DedicatedQDQPair": "each reader of a value has a QuantizeLinear and a DequantizeLinear of its own",
    "QDQOpTypePerChannelSupportToAxis": "the axis of channels for operators by type",
    "QuantizeBias": "biases become int32 (the default)",
    "UseQDQContribOps": "QuantizeLinear and DequantizeLinear are com.microsoft's",
    "QDQKeepRemovableActivations": "Relu and Clip stay where ranges make them needless",
    "QDQDisableWeightAdjustForInt32Bias": "weights' scales do not grow for biases that do not fit int32",
    "BlockSize": "how many numbers of a weight share a scale",
    "CalibTensorRangeSymmetric": "calibrated ranges have zero in the middle",
    "CalibStridedMinMax": "how many samples are read at once, by the reader's set_range",
    "CalibMovingAverage": "extremes are averages over samples",
    "CalibMovingAverageConstant": "how far a moving average moves",
    "CalibMaxIntermediateOutputs": "onnxruntime's limit of kept samples; none are kept here",
    "CalibPercentile": "how many percent of the numbers a range keeps",
    "CalibSamplesAtOnce": "how many samples are run together where the model leaves their number open",
    "CalibProgress": "called with the count of samples so far",
    "CalibStatePath": "a file that a calibration which was broken off goes on from",
    "KeepFragileValues": "nodes stay in float around values that few bits would ruin: divisors of norms, masked scores",
    "CrossLayerEqualization": "channels of layers that follow each other get ranges alike before",
    "BiasCorrection": "biases make up for what rounded weights do to the mean of each channel",
    "SmoothQuant": "outliers of what MatMul and Gemm read are moved into their weights",
    "SmoothQuantAlpha": "how much of them: 0 to 1, 0.5 by default",
    "SmoothQuantFolding": "the divisions become part of the normalization before (the default)",
}
"""What each key does. Those that a way of quantizing does not know are ignored by it, as onnxruntime does."""

CALIBRATION_OPTIONS = {
    "CalibTensorRangeSymmetric": "symmetric",
    "CalibMovingAverage": "moving_average",
    "CalibMovingAverageConstant": "averaging_constant",
    "CalibMaxIntermediateOutputs": "max_intermediate_outputs",
    "CalibPercentile": "percentile",
    "CalibSamplesAtOnce": "samples_at_once",
    "CalibProgress": "progress",
    "CalibStatePath": "state_path",
}
"""Keys that calibrators take, by the names that they have there."""


def warn_of_unknown(names: Iterable[str]) -> None:
    """Say which keys nothing knows, with the nearest that something does."""
    for name in names:
        if name not in EXTRA_OPTIONS:
            near = difflib.get_close_matches(name, EXTRA_OPTIONS, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            log.warning("extra_options has %r, which nothing reads%s", name, hint)
