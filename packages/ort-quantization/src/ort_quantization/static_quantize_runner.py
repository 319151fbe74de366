"""``python -m onnxruntime.quantization.static_quantize_runner``: quantizes a model by the samples that lie beside it.

argparse, not typer: several of the options take a list of words behind one name.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ort_core.cli.interrupts import run_program
from ort_core.errors import OrtError
from ort_core.lazy_names import lazy_names
from ort_quantization.arguments.quantization_configs import StaticQuantConfig
from ort_quantization.calibration.calibration_data import CalibrationDataReader, Sample
from ort_quantization.calibration.sample_files import read_samples
from ort_quantization.calibration.tensor_ranges import CalibrationMethod
from ort_quantization.errors import InvalidQuantization
from ort_quantization.quantized_types import QuantFormat, QuantType
from ort_quantization.quantizers.quantize_statically import quantize_static

_TYPES = {each.name.lower(): each for each in QuantType}
_METHODS = {each.name.lower(): each for each in CalibrationMethod}
_FORMATS = {each.name.lower(): each for each in QuantFormat}
_SWITCHES = {
    "enable_subgraph": ("EnableSubgraph", "quantize the bodies of If, Loop and Scan, too"),
    "force_quantize_no_input_check": (
        "ForceQuantizeNoInputCheck", "quantize operators that only move numbers whatever they read",
    ),
    "matmul_const_b_only": ("MatMulConstBOnly", "quantize only products with constant weights"),
    "add_qdq_pair_to_weight": (
        "AddQDQPairToWeight", "keep weights as floats, with a QuantizeLinear and a DequantizeLinear behind them",
    ),
    "dedicated_qdq_pair": ("DedicatedQDQPair", "write a pair of nodes for each reader of a value"),
    "calib_tensor_range_symmetric": ("CalibTensorRangeSymmetric", "put zero in the middle of calibrated ranges"),
    "calib_moving_average": ("CalibMovingAverage", "average extremes over samples (minmax)"),
    "use_qdq_contrib_ops": ("UseQDQContribOps", "write QuantizeLinear and DequantizeLinear of com.microsoft"),
    "qdq_keep_removable_activations": (
        "QDQKeepRemovableActivations", "keep Relu and Clip where ranges make them needless",
    ),
    "qdq_disable_weight_adjust_for_int32_bias": (
        "QDQDisableWeightAdjustForInt32Bias", "leave the scales of weights whose bias does not fit 32 bits",
    ),
}  # fmt: skip
"""Options without a value: the extra option that each sets, and what it does."""


class OnnxModelCalibrationDataReader(CalibrationDataReader):
    """The samples in folders ``test_data_set_*`` beside a model, laid out as ONNX's test data.

    Args:
        model_path: of the model.
    """

    def __init__(self, model_path: str | Path) -> None:
        self.model_dir = str(Path(model_path).parent)
        folders = sorted(each for each in Path(self.model_dir).glob("test_data_set_*") if each.is_dir())
        self.calibration_data = iter(read_samples(folders, Path(model_path)))

    def get_next(self) -> Sample | None:
        """Return the next sample, ``None`` behind the last."""
        return next(self.calibration_data, None)


def get_tensor_quant_overrides(file: str | Path | None) -> dict[str, list[dict[str, Any]]]:  # Any: of many types
    """Return the choices for single tensors that a file of JSON holds; an empty dictionary without a file.

    The file maps names to lists of choices: ``{"w": [{"quant_type": "QInt8", "scale": 0.1, "zero_point": 0}]}``.

    Raises:
        InvalidQuantization: the file is none of that kind.
    """
    if not file:
        return {}
    try:
        content = json.loads(Path(file).read_text(encoding="utf-8"))
        return {name: [_choice(each) for each in listed] for name, listed in content.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InvalidQuantization(f"{file} holds no choices for tensors (names with lists of them): {error}") from error


def _choice(given: dict[str, Any]) -> dict[str, Any]:  # Any: of many types
    found = dict(given)
    if isinstance(found.get("quant_type"), str):
        found["quant_type"] = QuantType.from_string(found["quant_type"])
    if "scale" in found:
        found["scale"] = np.array(found["scale"], np.float32)
    if "zero_point" in found:
        found["zero_point"] = np.array(found["zero_point"])
    if isinstance(found.get("convert"), dict):
        found["convert"] = _choice(found["convert"])
        if "recv_nodes" in found["convert"]:
            found["convert"]["recv_nodes"] = set(found["convert"]["recv_nodes"])
    return found


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line; they are onnxruntime's."""
    parser = argparse.ArgumentParser(description="Quantize a model by the samples in test_data_set_* beside it.")
    parser.add_argument("-i", "--input_model_path", required=True, help="the model's file")
    parser.add_argument("-o", "--output_quantized_model_path", required=True, help="the file to write")
    parser.add_argument("--activation_type", choices=_TYPES, default="quint8", help="the type of activations")
    parser.add_argument("--weight_type", choices=_TYPES, default="qint8", help="the type of weights")
    parser.add_argument("--calibration_method", choices=_METHODS, default="minmax", help="how ranges are found")
    parser.add_argument("--quant_format", choices=_FORMATS, default="qdq", help="how the model is written")
    for name, (_, text) in _SWITCHES.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    parser.add_argument("--disable_quantize_bias", action="store_true", help="keep biases as floats")
    parser.add_argument("--per_channel", action="store_true", help="give weights a scale for each channel")
    parser.add_argument("--minimum_real_range", type=float, default=0.0001, help="the least width of a range")
    parser.add_argument(
        "--op_types_to_exclude_output_quantization", nargs="+", default=[],
        help="operators whose results are not quantized",
    )  # fmt: skip
    parser.add_argument("--nodes_to_quantize", nargs="+", help="names of the only nodes to quantize")
    parser.add_argument("--nodes_to_exclude", nargs="+", help="names of nodes that stay as they are")
    parser.add_argument(
        "--op_per_channel_axis", nargs=2, action="append", default=[], metavar=("OP_TYPE", "PER_CHANNEL_AXIS"),
        help="the axis of channels for an operator",
    )  # fmt: skip
    parser.add_argument("--tensor_quant_overrides", help="a file of JSON with choices for single tensors")
    return parser.parse_args(arguments)


def configuration(asked: argparse.Namespace) -> StaticQuantConfig:
    """Return what a command line asks for."""
    options = {key: getattr(asked, name) for name, (key, _) in _SWITCHES.items()}
    options["OpTypesToExcludeOutputQuantization"] = asked.op_types_to_exclude_output_quantization
    options["QDQOpTypePerChannelSupportToAxis"] = {name: int(axis) for name, axis in asked.op_per_channel_axis}
    options["QuantizeBias"] = not asked.disable_quantize_bias
    options["MinimumRealRange"] = asked.minimum_real_range
    options["TensorQuantOverrides"] = get_tensor_quant_overrides(asked.tensor_quant_overrides)
    return StaticQuantConfig(
        OnnxModelCalibrationDataReader(asked.input_model_path), _METHODS[asked.calibration_method],
        _FORMATS[asked.quant_format], _TYPES[asked.activation_type], _TYPES[asked.weight_type],
        nodes_to_quantize=asked.nodes_to_quantize, nodes_to_exclude=asked.nodes_to_exclude,
        per_channel=asked.per_channel, extra_options=options,
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Quantize the model that the command line names."""
    asked = parse_arguments(arguments)
    try:
        chosen = configuration(asked)
        quantize_static(
            asked.input_model_path, asked.output_quantized_model_path, chosen.calibration_data_reader,
            chosen.quant_format, None, chosen.per_channel, False, chosen.activation_type, chosen.weight_type,
            chosen.nodes_to_quantize, chosen.nodes_to_exclude, calibrate_method=chosen.calibrate_method,
            extra_options=chosen.extra_options,
        )  # fmt: skip
    except OrtError as error:
        sys.exit(f"error: {error}")


__getattr__, _ = lazy_names(  # what programs import from here, as onnxruntime's module imports it
    __name__,
    {
        "ort_quantization.quantize": ("quantize",),
    },
)  # fmt: skip


if __name__ == "__main__":
    run_program(main)
