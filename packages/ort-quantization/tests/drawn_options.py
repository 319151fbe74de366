"""Random choices for quantizing: ways, types, nodes and every key of ``extra_options`` that onnxruntime knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from drawn_networks import weights_of

Random = np.random.Generator
Choices = dict[str, Any]

WAYS = ("dynamic", "dynamic", "qdq", "qdq", "qdq", "qoperator", "qoperator", "qdq_config", "nbits", "nbits", "bnb4")
FLAGS = (
    "ActivationSymmetric", "WeightSymmetric", "ActivationRestrictedAsymmetric", "ForceQuantizeNoInputCheck",
    "MatMulConstBOnly", "AddQDQPairToWeight", "DedicatedQDQPair", "QuantizeBias", "UseQDQContribOps",
    "QDQKeepRemovableActivations", "QDQDisableWeightAdjustForInt32Bias", "CalibTensorRangeSymmetric",
    "CalibMovingAverage", "extra.Sigmoid.nnapi",
)  # fmt: skip
PAIRS = (("QUInt8", "QInt8"), ("QInt8", "QInt8"), ("QUInt8", "QUInt8"))
WIDE_PAIRS = (("QUInt16", "QInt8"), ("QInt16", "QInt8"), ("QUInt16", "QUInt8"), ("QInt16", "QInt16"))
FLOAT8 = "QFLOAT8E4M3FN"
ODD_PAIRS = (("QInt8", "QUInt8"), ("QUInt8", "QInt4"), ("QInt8", "QUInt4"), ("QUInt16", "QUInt4"), (FLOAT8, FLOAT8))


def one_of(random: Random, *choices: Any) -> Any:
    """One of some choices."""
    return choices[int(random.integers(len(choices)))]


def drawn_choices(random: Random, model: onnx.ModelProto) -> Choices:
    """A way of quantizing a model, with everything that may be said of it; types by name, so that it can be printed."""
    way = one_of(random, *WAYS)
    if way in ("nbits", "bnb4"):
        return {"way": way, **_by_blocks(random, way, model)}
    activations, weights = one_of(random, *PAIRS, *PAIRS, *WIDE_PAIRS, *ODD_PAIRS)
    method = "Distribution" if weights.startswith("QF") else one_of(random, *["MinMax"] * 6, "Percentile", "Entropy")
    found: Choices = {
        "way": way, "activations": activations, "weights": weights, "method": method,
        "per_channel": bool(random.random() < 0.4), "reduce_range": bool(random.random() < 0.2),
        "extra": _extra(random, way, model),
    }  # fmt: skip
    if way == "dynamic":
        found["weights"] = one_of(random, "QInt8", "QUInt8", "QInt8", weights)
    found |= _nodes(random, model)
    return found


def _nodes(random: Random, model: onnx.ModelProto) -> Choices:
    """Which operators and nodes are to be quantized."""
    found: Choices = {}
    names = [node.name for node in model.graph.node if node.name]
    kinds = sorted({node.op_type for node in model.graph.node})
    if random.random() < 0.25:
        found["op_types_to_quantize"] = [each for each in kinds if random.random() < 0.6] or kinds
    if random.random() < 0.2 and names:
        found["nodes_to_exclude"] = [one_of(random, *names)]
    if random.random() < 0.1 and names:
        found["nodes_to_quantize"] = [each for each in names if random.random() < 0.6] or names
    return found


def _extra(random: Random, way: str, model: onnx.ModelProto) -> Choices:
    """Keys of ``extra_options``, each with something that may stand there."""
    found: Choices = {name: bool(random.random() < 0.7) for name in FLAGS if random.random() < 0.12}
    kinds = sorted({node.op_type for node in model.graph.node})
    others = {
        "MinimumRealRange": one_of(random, 0.0001, 1.0, None), "CalibMovingAverageConstant": 0.3,
        "CalibPercentile": 99.0, "CalibMaxIntermediateOutputs": 2, "CalibStridedMinMax": 1, "DefaultTensorType": 1,
        "OpTypesToExcludeOutputQuantization": [one_of(random, *kinds)],
        "QDQOpTypePerChannelSupportToAxis": {one_of(random, "MatMul", "Gemm", "Conv"): one_of(random, 0, 1)},
        "BlockSize": one_of(random, 4, 16), "EnableSubgraph": way == "dynamic" or random.random() < 0.3,
    }  # fmt: skip
    shares = {"BlockSize": 0.04, "CalibMaxIntermediateOutputs": 0.02, "CalibStridedMinMax": 0.03}
    found |= {name: value for name, value in others.items() if random.random() < shares.get(name, 0.08)}
    if random.random() < (0.3 if way != "dynamic" else 0.1):
        found["TensorQuantOverrides"] = _overrides(random, model)
    return found


def _overrides(random: Random, model: onnx.ModelProto) -> dict[str, list[Choices]]:
    """Choices for single tensors: a weight, a value between nodes."""
    found = {}
    weights = weights_of(model)
    values = [name for node in model.graph.node if node.op_type != "Constant" for name in node.output]
    if weights and random.random() < 0.6:
        name = one_of(random, *weights)
        found[name] = [_override(random)]
        if weights[name].ndim > 1 and random.random() < 0.4:
            allowed = ("quant_type", "symmetric", "reduce_range")
            kept = {key: value for key, value in found[name][0].items() if key in allowed}
            found[name] = [{"axis": one_of(random, 0, 1), **kept}]
    if values and random.random() < 0.7:
        chosen = one_of(random, *values)
        found[chosen] = [_override(random, is_weight=False)]
        if random.random() < 0.3:
            made = found[chosen][0].setdefault("quant_type", "QUInt8")
            found[chosen][0]["convert"] = {"quant_type": "QUInt8" if made == "QUInt16" else "QUInt16"}
    return found


def _override(random: Random, is_weight: bool = True) -> Choices:
    """What may be said of one tensor."""
    form = one_of(random, "type", "given", "ends", "flags")
    kind = one_of(random, *(("QInt8", "QUInt8", "QInt16") if is_weight else ("QUInt8", "QUInt16", "QInt16")))
    if form == "type":
        return {"quant_type": kind}
    if form == "given":
        return {"quant_type": kind, "scale": 0.02, "zero_point": 0}
    if form == "ends":
        return {"rmin": -1.5, "rmax": one_of(random, 2.0, 1.5)}
    return {"symmetric": bool(random.integers(2)), **({"reduce_range": True} if is_weight else {})}


def _by_blocks(random: Random, way: str, model: onnx.ModelProto) -> Choices:
    """How weights alone are quantized."""
    names = [node.name for node in model.graph.node if node.name]
    found: Choices = {"block_size": one_of(random, 16, 32, 64, 128)}
    if random.random() < 0.2 and names:
        found["nodes_to_exclude"] = [one_of(random, *names)]
    if way == "bnb4":
        return found | {"quant_type": one_of(random, 0, 1)}
    method = one_of(random, "default", "default", "default", "RTN", "HQQ", "KQuant")
    found |= {"method": method, "bits": one_of(random, 4, 4, 8, 2), "is_symmetric": bool(random.integers(2))}
    found["quant_format"] = one_of(random, "QOperator", "QOperator", "QDQ") if method == "default" else "QOperator"
    if found["quant_format"] == "QDQ" and random.random() < 0.2:
        found["channel_wised_quantize"] = True
    if method == "default" and random.random() < 0.1 and names:
        found["nodes_to_include"] = [one_of(random, *names)]
    found["accuracy_level"] = one_of(random, None, None, 1, 4)
    if random.random() < 0.5:
        found["op_types_to_quantize"] = one_of(random, ["MatMul"], ["MatMul", "Gather"], ["Gather"])
    if method == "default" and random.random() < 0.4:
        found["quant_axes"] = {"MatMul": one_of(random, 0, 1), "Gather": one_of(random, 0, 1)}
    return found


NUMBERS = {"QUInt8": np.uint8, "QInt8": np.int8, "QUInt16": np.uint16, "QInt16": np.int16}


def with_types(package: Any, choices: Any) -> Any:
    """The same choices with a package's own types in place of names, and arrays as onnxruntime's tool wants them."""
    if isinstance(choices, list):
        return [with_types(package, each) for each in choices]
    if not isinstance(choices, dict):
        return choices
    found = {key: with_types(package, value) for key, value in choices.items()}
    kind = choices.get("quant_type")
    if isinstance(kind, str):
        found["quant_type"] = package.QuantType[kind]
    for end in {"rmin", "rmax"} & choices.keys():
        found[end] = np.array(choices[end], np.float32)
    if "scale" in choices:
        found["scale"] = np.array(choices["scale"], np.float32)
        found["zero_point"] = np.array(choices["zero_point"], NUMBERS[kind])
    return found
