"""Choices of a quantization as one object, for ``quantize``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from onnx import ModelProto, NodeProto

from ort_quantization.arguments.extra_options import CALIBRATION_OPTIONS
from ort_quantization.calibrate import CalibrationDataReader, CalibrationMethod
from ort_quantization.calibration.calibrater_base import Providers
from ort_quantization.models.model_files import FILE_LIMIT, is_external, needed_opset, opset_of, read_model
from ort_quantization.quantized_types import QuantFormat, QuantType
from ort_quantization.tensor_quant_overrides import Overrides, TensorQuantOverridesHelper

_NEVER = ("Cast", "DequantizeLinear", "QuantizeLinear")


class QuantConfig:
    """What all ways of quantizing are told; see ``quantize_dynamic`` for the meaning of each."""

    def __init__(
        self, activation_type: QuantType = QuantType.QUInt8, weight_type: QuantType = QuantType.QInt8,
        op_types_to_quantize: Iterable[str] | None = None, nodes_to_quantize: Iterable[str] | None = None,
        nodes_to_exclude: Iterable[str] | None = None, per_channel: bool = False, reduce_range: bool = False,
        use_external_data_format: bool = False,
    ) -> None:  # fmt: skip
        self.activation_type, self.weight_type = activation_type, weight_type
        self.op_types_to_quantize = list(op_types_to_quantize or [])
        self.nodes_to_quantize = list(nodes_to_quantize or [])
        self.nodes_to_exclude = list(nodes_to_exclude or [])
        self.per_channel, self.reduce_range = per_channel, reduce_range
        self.use_external_data_format = use_external_data_format


class StaticQuantConfig(QuantConfig):
    """The choices of ``quantize_static``."""

    def __init__(
        self, calibration_data_reader: CalibrationDataReader,
        calibrate_method: CalibrationMethod = CalibrationMethod.MinMax, quant_format: QuantFormat = QuantFormat.QDQ,
        activation_type: QuantType = QuantType.QInt8, weight_type: QuantType = QuantType.QInt8,
        op_types_to_quantize: Iterable[str] | None = None, nodes_to_quantize: Iterable[str] | None = None,
        nodes_to_exclude: Iterable[str] | None = None, per_channel: bool = False, reduce_range: bool = False,
        use_external_data_format: bool = False, calibration_providers: Providers | None = None,
        extra_options: dict[str, Any] | None = None,  # Any: as many types as keys
    ) -> None:  # fmt: skip
        super().__init__(
            activation_type, weight_type, op_types_to_quantize, nodes_to_quantize, nodes_to_exclude, per_channel,
            reduce_range, use_external_data_format,
        )  # fmt: skip
        self.calibration_data_reader = calibration_data_reader
        self.calibrate_method, self.quant_format = calibrate_method, quant_format
        self.calibration_providers = calibration_providers
        self.extra_options = extra_options or {}


class DynamicQuantConfig(QuantConfig):
    """The choices of ``quantize_dynamic``."""

    def __init__(
        self, weight_type: QuantType = QuantType.QInt8, op_types_to_quantize: Iterable[str] | None = None,
        nodes_to_quantize: Iterable[str] | None = None, nodes_to_exclude: Iterable[str] | None = None,
        per_channel: bool = False, reduce_range: bool = False, use_external_data_format: bool = False,
        extra_options: dict[str, Any] | None = None,  # Any: as many types as keys
    ) -> None:  # fmt: skip
        super().__init__(
            QuantType.QUInt8, weight_type, op_types_to_quantize, nodes_to_quantize, nodes_to_exclude, per_channel,
            reduce_range, use_external_data_format,
        )  # fmt: skip
        self.extra_options = extra_options or {}


def get_qdq_config(
    model_input: str | Path | ModelProto,
    calibration_data_reader: CalibrationDataReader,
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    calibrate_args: dict[str, Any] | None = None,  # Any: the options of all methods
    activation_type: QuantType = QuantType.QUInt8,
    weight_type: QuantType = QuantType.QInt8,
    activation_symmetric: bool = False,
    weight_symmetric: bool | None = None,
    per_channel: bool = False,
    reduce_range: bool = False,
    keep_removable_activations: bool = False,
    min_real_range: float | None = None,
    tensor_quant_overrides: Overrides | None = None,
    calibration_providers: Providers | None = None,
    op_types_to_quantize: Sequence[str] | None = None,
    nodes_to_exclude: Sequence[str] | Callable[[ModelProto, NodeProto], bool] | None = None,
    extra_options: dict[str, Any] | None = None,  # Any: as many types as keys
) -> StaticQuantConfig:
    """Return choices by which a whole model is quantized in the QDQ format.

    Args:
        model_input: the model, or its file.
        calibration_data_reader: gives the samples.
        calibrate_method: how ranges follow from them.
        calibrate_args: options of that method: ``symmetric``, ``moving_average``, ``averaging_constant``,
            ``max_intermediate_outputs``, ``percentile``.
        activation_type: of everything that is no weight.
        weight_type: of weights.
        activation_symmetric: activations have zero in the middle.
        weight_symmetric: weights have; signed ones by default.
        per_channel: weights get a scale for each channel.
        reduce_range: weights get one bit less.
        keep_removable_activations: Relu and Clip stay where ranges make them needless.
        min_real_range: how far the ends of a range lie apart at least.
        tensor_quant_overrides: choices for single tensors.
        calibration_providers: what runs the samples.
        op_types_to_quantize: operators; all but Cast, QuantizeLinear and DequantizeLinear by default.
        nodes_to_exclude: names of nodes that stay as they are, or what says so of a node.
        extra_options: more, which win over what follows from the above.
    """
    model, _ = read_model(model_input)
    excluded = set(nodes_to_exclude) if isinstance(nodes_to_exclude, Sequence) else set()
    present: dict[str, None] = {}
    for node in model.graph.node:
        if (op_types_to_quantize and node.op_type not in op_types_to_quantize) or node.name in excluded:
            continue
        if callable(nodes_to_exclude) and nodes_to_exclude(model, node):
            excluded.add(node.name)
        else:
            present[node.op_type] = None
    overrides = TensorQuantOverridesHelper(deepcopy(tensor_quant_overrides or {}))
    options: dict[str, Any] = {
        "MinimumRealRange": min_real_range, "QDQKeepRemovableActivations": keep_removable_activations,
        "ActivationSymmetric": activation_symmetric, "WeightSymmetric": weight_symmetric,
        "ForceQuantizeNoInputCheck": True, "TensorQuantOverrides": overrides.get_dict(),
    }  # fmt: skip
    given = calibrate_args or {}
    options.update({key: given[name] for key, name in CALIBRATION_OPTIONS.items() if name in given})
    if _needs_contributed(opset_of(model), {activation_type, weight_type} | overrides.get_quant_types()):
        options["UseQDQContribOps"] = True
    has_files = any(is_external(tensor) for tensor in model.graph.initializer)
    return StaticQuantConfig(
        calibration_data_reader, calibrate_method, QuantFormat.QDQ, activation_type, weight_type,
        op_types_to_quantize or [each for each in present if each not in _NEVER], None, sorted(excluded),
        per_channel, reduce_range, has_files or model.ByteSize() >= FILE_LIMIT, calibration_providers,
        {**options, **(extra_options or {})},
    )  # fmt: skip


def _needs_contributed(opset: int, types: set[QuantType]) -> bool:
    """Return whether 4 bit numbers need com.microsoft's operators: ONNX's take them from opset 21 on."""
    opset = needed_opset(opset, {each.tensor_type for each in types}, False)
    return opset < 21 and bool(types & {QuantType.QInt4, QuantType.QUInt4})
