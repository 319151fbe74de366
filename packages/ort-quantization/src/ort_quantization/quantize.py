"""onnxruntime's module of this name: its functions, and ``quantize``, which chooses among them by a configuration."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from onnx import ModelProto

from ort_core.lazy_names import lazy_names
from ort_quantization.arguments.quantization_configs import (
    DynamicQuantConfig,
    QuantConfig,
    StaticQuantConfig,
    get_qdq_config,
)
from ort_quantization.quantized_types import QuantFormat, QuantizationMode, QuantType
from ort_quantization.quantizers.quantize_dynamically import quantize_dynamic
from ort_quantization.quantizers.quantize_statically import check_static_quant_arguments, quantize_static
from ort_quantization.registry import IntegerOpsRegistry, QDQRegistry, QLinearOpsRegistry

__all__ = [
    "DynamicQuantConfig", "IntegerOpsRegistry", "QDQRegistry", "QLinearOpsRegistry", "QuantConfig", "QuantFormat",
    "QuantType", "QuantizationMode", "StaticQuantConfig",
    "check_static_quant_arguments", "get_qdq_config", "quantize", "quantize_dynamic", "quantize_static",
]  # fmt: skip


def quantize(model_input: str | Path | ModelProto, model_output: str | Path, quant_config: object) -> None:
    """Quantize a model as a configuration says.

    Args:
        model_input: a model, or its file.
        model_output: the file to write.
        quant_config: a ``StaticQuantConfig``, a ``DynamicQuantConfig``, or the configuration of a weight-only method.

    Raises:
        TypeError: the configuration is none of these.
    """
    if isinstance(quant_config, StaticQuantConfig):
        quantize_static(
            model_input, model_output, quant_config.calibration_data_reader, quant_config.quant_format,
            quant_config.op_types_to_quantize, quant_config.per_channel, quant_config.reduce_range,
            quant_config.activation_type, quant_config.weight_type, quant_config.nodes_to_quantize,
            quant_config.nodes_to_exclude, quant_config.use_external_data_format, quant_config.calibrate_method,
            quant_config.calibration_providers, quant_config.extra_options,
        )  # fmt: skip
    elif isinstance(quant_config, DynamicQuantConfig):
        quantize_dynamic(
            model_input, model_output, quant_config.op_types_to_quantize, quant_config.per_channel,
            quant_config.reduce_range, quant_config.weight_type, quant_config.nodes_to_quantize,
            quant_config.nodes_to_exclude, quant_config.use_external_data_format, quant_config.extra_options,
        )  # fmt: skip
    else:
        _quantize_weights(model_input, model_output, quant_config)


def _quantize_weights(model_input: str | Path | ModelProto, model_output: str | Path, quant_config: object) -> None:
    weight_only = importlib.import_module("ort_quantization.matmul_nbits_quantizer")  # with its methods: when needed
    if not isinstance(quant_config, weight_only.WeightOnlyQuantConfig):
        raise TypeError(
            "Invalid quantization config type, it must be either StaticQuantConfig, DynamicQuantConfig, or "
            f"WeightOnlyQuantConfig; found {type(quant_config).__name__}"
        )
    quantizer = weight_only.MatMulNBitsQuantizer(model_input, algo_config=quant_config)  # a file is read in pieces
    quantizer.process()
    quantizer.model.save_model_to_file(model_output, True)


class _CallableModule(ModuleType):
    """``from ort_quantization import quantize`` gives the function, or this module where it was imported before."""

    def __call__(self, model_input: str | Path | ModelProto, model_output: str | Path, quant_config: object) -> None:
        """Do what the function of this name does."""
        quantize(model_input, model_output, quant_config)


sys.modules[__name__].__class__ = _CallableModule


__getattr__, _ = lazy_names(  # what programs import from here, as onnxruntime's module imports it
    __name__,
    {
        "ort_quantization.calibrate": (
            "CalibrationDataReader", "CalibrationMethod", "TensorsData", "create_calibrator", "load_tensors_data",
            "save_tensors_data",
        ),
        "ort_quantization.onnx_quantizer": (
            "ONNXQuantizer",
        ),
        "ort_quantization.qdq_quantizer": (
            "QDQQuantizer",
        ),
        "ort_quantization.quant_utils": (
            "get_opset_version", "load_model_with_shape_infer", "model_has_pre_process_metadata",
            "save_and_reload_model_with_shape_infer", "update_opset_version",
        ),
        "ort_quantization.tensor_quant_overrides": (
            "TensorQuantOverridesHelper",
        ),
    },
)  # fmt: skip
