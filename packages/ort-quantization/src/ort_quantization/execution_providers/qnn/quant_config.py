"""``get_qnn_qdq_config``: the choices by which QNN runs a model in the QDQ format."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from ort_quantization.arguments.quantization_configs import StaticQuantConfig
from ort_quantization.calibration.calibrater_base import Providers
from ort_quantization.calibration.calibration_data import CalibrationDataReader
from ort_quantization.calibration.tensor_ranges import CalibrationMethod
from ort_quantization.execution_providers.qnn.mixed_precision_overrides_utils import (
    MixedPrecisionTensorQuantOverridesFixer,
)
from ort_quantization.models.model_files import is_external, opset_of, read_model
from ort_quantization.quantized_types import NUMPY_TYPES, QuantFormat, QuantType
from ort_quantization.tensor_quant_overrides import Overrides, TensorQuantOverridesHelper

log = logging.getLogger(__name__)

Q16_TYPES = {QuantType.QInt16, QuantType.QUInt16}
Q8_TYPES = {QuantType.QInt8, QuantType.QUInt8}
Q4_TYPES = {QuantType.QInt4, QuantType.QUInt4}
OP_TYPES_TO_EXCLUDE = {"Cast"}
MODEL_SIZE_THRESHOLD = 2**31  # bytes: larger models need a file for their tensors
_MIN_REAL_RANGE = 0.0001  # QNN refuses narrower ranges
_FIXED = {  # scale and zero point of results whose range the operator gives, in 16 bits
    ("Sigmoid", QuantType.QUInt16): (1 / 65536, 0), ("Sigmoid", QuantType.QInt16): (1 / 32768, 0),
    ("Tanh", QuantType.QUInt16): (1 / 32768, 32768), ("Tanh", QuantType.QInt16): (1 / 32768, 0),
}  # fmt: skip


def warn_unable_to_override(node: NodeProto, what_str: str, tensor_name: str, io_kind: str) -> None:
    """Say that a choice which QNN needs is left to the caller, who chose something for the same tensor."""
    log.warning(
        "%s of node %r (%s), %s: choices for %r were given, so %s is not set for it",
        io_kind, node.name, node.op_type, tensor_name, tensor_name, what_str,
    )  # fmt: skip


def get_qnn_qdq_config(
    model_input: str | Path | ModelProto,
    calibration_data_reader: CalibrationDataReader,
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    activation_type: QuantType = QuantType.QUInt8,
    weight_type: QuantType = QuantType.QUInt8,
    per_channel: bool = False,
    init_overrides: Overrides | None = None,
    add_qtype_converts: bool = True,
    activation_symmetric: bool = False,
    weight_symmetric: bool | None = None,
    keep_removable_activations: bool = False,
    stride: int | None = None,
    calibration_providers: Providers | None = None,
    op_types_to_quantize: Sequence[str] | None = None,
    nodes_to_exclude: Sequence[str] | None = None,
) -> StaticQuantConfig:
    """Return choices for ``quantize`` by which QNN runs a model.

    Args:
        model_input: the model, or its file.
        calibration_data_reader: gives the samples.
        calibrate_method: how ranges follow from them.
        activation_type: of everything that is no weight.
        weight_type: of weights.
        per_channel: weights of Conv and ConvTranspose get a scale for each channel.
        init_overrides: choices for single tensors, which are not changed; the result's hold more.
        add_qtype_converts: values around those whose type is chosen are converted where QNN needs one type.
        activation_symmetric: activations have zero in the middle.
        weight_symmetric: weights have; by default those of 8 and 16 signed bits.
        keep_removable_activations: Relu and Clip stay where ranges make them needless.
        stride: how many samples are read at once.
        calibration_providers: what runs the samples.
        op_types_to_quantize: operators; all but Cast by default.
        nodes_to_exclude: names of nodes that stay as they are.

    Raises:
        InvalidQuantization: choices cannot be followed.
    """
    if weight_symmetric is None:
        weight_symmetric = weight_type in {QuantType.QInt8, QuantType.QInt16}
    model, _ = read_model(model_input)
    overrides = TensorQuantOverridesHelper(deepcopy(init_overrides or {}))
    if not overrides.empty() and add_qtype_converts:
        fixer = MixedPrecisionTensorQuantOverridesFixer.create_from_model(overrides, model, activation_type)
        fixer.apply(activation_type, activation_symmetric)
    initializers = {each.name: each for each in model.graph.initializer}
    compatible = QnnCompatibilityOverrides(
        activation_type, weight_type, activation_symmetric, weight_symmetric, per_channel, overrides, initializers
    )
    excluded = set(nodes_to_exclude or ())
    for node in model.graph.node:
        is_chosen = not op_types_to_quantize or node.op_type in op_types_to_quantize
        if is_chosen and node.name not in excluded:
            compatible.process_node(node)
    present = dict.fromkeys(node.op_type for node in model.graph.node)
    options: dict[str, Any] = {  # Any: as many types as keys
        "MinimumRealRange": _MIN_REAL_RANGE, "DedicatedQDQPair": False,
        "QDQKeepRemovableActivations": keep_removable_activations, "TensorQuantOverrides": overrides.get_dict(),
        "ActivationSymmetric": activation_symmetric, "WeightSymmetric": weight_symmetric, "CalibStridedMinMax": stride,
    }  # fmt: skip
    newer = Q16_TYPES | Q4_TYPES
    if opset_of(model) < 21 and newer & {activation_type, weight_type, *overrides.get_quant_types()}:
        options["UseQDQContribOps"] = True
    chosen = op_types_to_quantize or [each for each in present if each not in OP_TYPES_TO_EXCLUDE]
    has_files = any(is_external(tensor) for tensor in model.graph.initializer)
    return StaticQuantConfig(
        calibration_data_reader, calibrate_method, QuantFormat.QDQ, activation_type, weight_type, list(chosen),
        nodes_to_exclude=list(nodes_to_exclude or ()), per_channel=per_channel,
        calibration_providers=calibration_providers,
        use_external_data_format=has_files or model.ByteSize() >= MODEL_SIZE_THRESHOLD,
        extra_options=options,
    )  # fmt: skip


class QnnCompatibilityOverrides:
    """Adds to the choices for tensors what QNN's operators need.

    Args:
        default_activation_qtype: the type of activations.
        default_weight_qtype: the type of weights.
        activation_symmetric: activations have zero in the middle.
        weight_symmetric: weights have.
        per_channel: weights get a scale for each channel.
        overrides: changed in place.
        initializers: of the model, by name.
    """

    def __init__(
        self, default_activation_qtype: QuantType, default_weight_qtype: QuantType, activation_symmetric: bool,
        weight_symmetric: bool, per_channel: bool, overrides: TensorQuantOverridesHelper,
        initializers: Mapping[str, TensorProto],
    ) -> None:  # fmt: skip
        self.default_activation_qtype, self.default_weight_qtype = default_activation_qtype, default_weight_qtype
        self.activation_symmetric, self.weight_symmetric = activation_symmetric, weight_symmetric
        self.per_channel, self.overrides, self.initializers = per_channel, overrides, initializers

    def process_node(self, node: NodeProto) -> None:
        """Add what one node needs."""
        if node.op_type == "MatMul":
            self._process_product(node)
        elif node.op_type == "LayerNormalization":
            self._process_normalization(node)
        elif node.op_type in ("Sigmoid", "Tanh"):
            self._process_bounded(node)

    def _type_of(self, name: str) -> QuantType:
        chosen = self.overrides.get(name) or [{}]
        found = chosen[0].get("quant_type", self.default_activation_qtype)
        return found if isinstance(found, QuantType) else self.default_activation_qtype

    def _read_type(self, node: NodeProto, name: str) -> QuantType:
        """Return the type of an activation as a node reads it."""
        converted = (self.overrides.get(name) or [{}])[0].get("convert")
        if converted is None or node.name not in converted.get("recv_nodes", {node.name}):
            return self._type_of(name)
        found = converted["quant_type"]
        return found if isinstance(found, QuantType) else self.default_activation_qtype

    def _process_product(self, node: NodeProto) -> None:
        """Give constant sides one scale; beside 16 bits, the type of weights."""
        sides = [name for name in node.input if name not in self.initializers]
        is_wide = any(self._read_type(node, name) in Q16_TYPES for name in sides)
        if self.per_channel or (is_wide and self.default_weight_qtype in Q8_TYPES):
            for name in node.input:
                self._as_weight(node, name)

    def _process_normalization(self, node: NodeProto) -> None:
        """Let the gain beside 16 bits have the type of weights."""
        is_wide = self._read_type(node, node.input[0]) in Q16_TYPES
        if is_wide and not self.per_channel and self.default_weight_qtype in Q8_TYPES:
            self._as_weight(node, node.input[1])

    def _as_weight(self, node: NodeProto, name: str) -> None:
        if name not in self.initializers:
            return
        if self.overrides.get(name):
            warn_unable_to_override(node, "quant_type and symmetric", name, "input")
            return
        self.overrides[name] = [{"quant_type": self.default_weight_qtype, "symmetric": self.weight_symmetric}]

    def _process_bounded(self, node: NodeProto) -> None:
        """Give a result whose range is known its scale, where it has 16 bits."""
        name = node.output[0]
        kind = self._type_of(name)
        if (node.op_type, kind) not in _FIXED:
            return
        if self.overrides.get(name) and "scale" in self.overrides[name][0]:
            warn_unable_to_override(node, "scale and zero_point", name, "output")
            return
        scale, zero_point = _FIXED[node.op_type, kind]
        kept = self.overrides[name][0] if self.overrides.get(name) else {}
        kept = {key: value for key, value in kept.items() if key in ("quant_type", "convert")}
        point = np.array(zero_point, NUMPY_TYPES[kind.tensor_type])
        self.overrides[name] = [{**kept, "quant_type": kind, "scale": np.array(scale, np.float32), "zero_point": point}]
