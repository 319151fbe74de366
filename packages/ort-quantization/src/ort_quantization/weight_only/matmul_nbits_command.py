"""The command ``python -m ort_quantization.matmul_nbits_quantizer``, with onnxruntime's options.

argparse, not typer: several of the options take a list of words behind one name.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ort_core.errors import OrtError
from ort_quantization.calibration.calibration_data import CalibrationDataReader
from ort_quantization.errors import InvalidCalibration, InvalidQuantization
from ort_quantization.quantized_types import QuantFormat
from ort_quantization.weight_only.matmul_nbits_configs import (
    AWQWeightOnlyQuantConfig,
    DefaultWeightOnlyQuantConfig,
    GPTQWeightOnlyQuantConfig,
    HQQWeightOnlyQuantConfig,
    KQuantWeightOnlyQuantConfig,
    RTNWeightOnlyQuantConfig,
    WeightOnlyQuantConfig,
)

if TYPE_CHECKING:
    from ort_quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

METHODS = ("default", "hqq", "rtn", "k_quant", "gptq", "awq", "nvidia_awq")


class FolderOfSamples(CalibrationDataReader):
    """The inputs of runs from a folder of ``.npz`` files, one for each run, in the order of their names."""

    def __init__(self, folder: str) -> None:
        files = sorted(Path(folder).glob("*.npz"))
        if not files:
            raise InvalidCalibration(f"{folder} has no .npz files; each holds the inputs of one run by name")
        self._files: Iterator[Path] = iter(files)

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next file's arrays, ``None`` behind the last."""
        path = next(self._files, None)
        if path is None:
            return None
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)


def main(quantizer_type: type[MatMulNBitsQuantizer], arguments: Sequence[str] | None = None) -> None:
    """Quantize a file into another one."""
    asked = _parser().parse_args(arguments)
    if asked.verbose:
        logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        _run(quantizer_type, asked)
    except OrtError as error:
        sys.exit(f"error: {error}")


def _run(quantizer_type: type[MatMulNBitsQuantizer], asked: argparse.Namespace) -> None:
    output = Path(asked.output_model)
    if output.exists():
        raise InvalidQuantization(f"file {output} already exists")
    quantizer = quantizer_type(
        asked.input_model, bits=asked.bits, block_size=asked.block_size, is_symmetric=asked.symmetric,
        accuracy_level=asked.accuracy_level, nodes_to_exclude=asked.nodes_to_exclude,
        nodes_to_include=asked.nodes_to_include, algo_config=_config(asked),
    )  # fmt: skip
    quantizer.process()
    quantizer.model.save_model_to_file(output, True)


def _config(asked: argparse.Namespace) -> WeightOnlyQuantConfig:
    operators = tuple(asked.op_types_to_quantize or ("MatMul",))
    axes = tuple(asked.quant_axes) if asked.quant_axes else None
    quant_format = QuantFormat[asked.quant_format]
    if asked.quant_method == "default":
        return DefaultWeightOnlyQuantConfig(
            asked.block_size, asked.symmetric, asked.accuracy_level, quant_format, operators, axes, asked.bits
        )
    if asked.quant_method == "hqq":
        return HQQWeightOnlyQuantConfig(asked.block_size, asked.bits, 1, quant_format, operators, axes)
    if asked.quant_method == "rtn":
        return RTNWeightOnlyQuantConfig(quant_format=quant_format, op_types_to_quantize=operators)
    if asked.quant_method == "k_quant":
        return KQuantWeightOnlyQuantConfig(quant_format=quant_format, op_types_to_quantize=operators)
    if asked.calibration_data is None:
        raise InvalidCalibration(
            f"{asked.quant_method} needs data: --calibration_data FOLDER, with an .npz file of inputs for each run"
        )
    reader = FolderOfSamples(asked.calibration_data)
    if asked.quant_method == "gptq":
        return GPTQWeightOnlyQuantConfig(reader, quant_format=quant_format, op_types_to_quantize=operators)
    if asked.quant_method == "nvidia_awq":
        quant_format = QuantFormat.QDQ
    method = {"awq": "awq_lite", "awq_clip": "awq_clip", "awq_full": "awq_full"}[asked.calibration_method]
    return AWQWeightOnlyQuantConfig(reader, method, quant_format, operators)


def _boolean(text: str) -> bool:
    return text.lower() in ("true", "1")


def _axis(text: str) -> tuple[str, int]:
    operator, separator, axis = text.partition(":")
    if not separator or not axis.lstrip("-").isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}; expected OPERATOR:AXIS, such as Gather:1")
    return operator, int(axis)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Quantize constant weights of MatMul and Gather by blocks.")
    add = parser.add_argument
    add("--input_model", required=True, help="file of the model")
    add("--output_model", required=True, help="file to write; large tensors go into a file beside it")
    add("--block_size", default=32, type=int, help="rows that share a scale")
    add("--quant_method", default="default", choices=METHODS, help="how weights are quantized")
    add("--bits", default=4, type=int, help="2, 4 or 8")
    add("--symmetric", default=True, const=True, nargs="?", type=_boolean, choices=[True, False], help="no zero points")
    add("--accuracy_level", type=int, help="of MatMulNBits; 4 lets engines compute in int8")
    add("-v", "--verbose", action="store_true", help="say what is done")
    add("--nodes_to_exclude", nargs="+", default=[], help="nodes that stay as they are")
    add("--nodes_to_include", nargs="+", help="nodes that are quantized whatever their operator")
    add("--quant_format", default="QOperator", choices=["QOperator", "QDQ"], help="how nodes are written")
    add("--op_types_to_quantize", nargs="+", choices=["MatMul", "Gather"], help="MatMul by default")
    add("--quant_axes", type=_axis, nargs="+", help="axis of the blocks, such as MatMul:0 Gather:1")
    add("--calibration_data", help="folder of .npz files, the inputs of one run in each, for gptq and awq")
    add(
        "--calibration_method", default="awq", choices=["awq", "awq_clip", "awq_full"],
        help="of awq: scales of channels, ranges of blocks, or both",
    )  # fmt: skip
    for name in ("--tokenizer_dir", "--calib_dataset_name", "--cache_dir"):
        add(name, help="taken for onnxruntime's sake; data comes from --calibration_data")
    return parser
