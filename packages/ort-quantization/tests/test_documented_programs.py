"""What onnxruntime's guides tell programs to call, under the drop-in: the same imports, calls and command lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from float_models import Builder, conv, matmul

STATIC = """
import numpy as np
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

class Images(CalibrationDataReader):
    def __init__(self, model_path):
        session = onnxruntime.InferenceSession(model_path, None, providers=["CPUExecutionProvider"])
        (_, channels, height, width) = session.get_inputs()[0].shape
        random = np.random.default_rng(0)
        images = [random.normal(size=(1, channels, height, width)).astype(np.float32) for _ in range(3)]
        self.datasize = len(images)
        self.enum_data = iter([{session.get_inputs()[0].name: image} for image in images])

    def get_next(self):
        return next(self.enum_data, None)

for quant_format in (QuantFormat.QDQ, QuantFormat.QOperator):
    quantize_static("conv.onnx", "quantized.onnx", Images("conv.onnx"), quant_format=quant_format, per_channel=False,
                    weight_type=QuantType.QInt8)
    onnxruntime.InferenceSession("quantized.onnx", providers=["CPUExecutionProvider"])
"""

DYNAMIC = """
import onnx
from onnxruntime.quantization import quantize_dynamic, QuantType
from onnxruntime.quantization.shape_inference import quant_pre_process

quant_pre_process("matmul.onnx", "prepared.onnx")
assert quantize_dynamic("prepared.onnx", "quantized.onnx", weight_type=QuantType.QUInt8) is None
"""

WEIGHTS = """
from pathlib import Path
from onnxruntime.quantization import matmul_nbits_quantizer, quant_utils, quantize

model = quant_utils.load_model_with_shape_infer(Path("language.onnx"))
chosen = matmul_nbits_quantizer.DefaultWeightOnlyQuantConfig(
    block_size=128, is_symmetric=True, accuracy_level=4, quant_format=quant_utils.QuantFormat.QOperator,
    op_types_to_quantize=("MatMul", "Gather"), quant_axes=(("MatMul", 0), ("Gather", 1)))
quantizer = matmul_nbits_quantizer.MatMulNBitsQuantizer(
    model, nodes_to_exclude=None, nodes_to_include=None, algo_config=chosen)
quantizer.process()
quantizer.model.save_model_to_file("quantized.onnx", True)
"""

QNN = """
import numpy as np
import onnx
from onnxruntime.quantization import QuantType, quantize
from onnxruntime.quantization import CalibrationDataReader
from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config, qnn_preprocess_model

class Data(CalibrationDataReader):
    def __init__(self, path):
        self.left = iter([{"x": np.ones((1, 3, 11, 11), np.float32)} for _ in range(2)])

    def get_next(self):
        return next(self.left, None)

    def rewind(self):
        self.left = None

changed = qnn_preprocess_model("conv.onnx", "conv.prepared.onnx")
path = "conv.prepared.onnx" if changed else "conv.onnx"
config = get_qnn_qdq_config(path, Data(path), activation_type=QuantType.QUInt16, weight_type=QuantType.QUInt8)
quantize(path, "quantized.onnx", config)
"""

DEBUGGING = """
import numpy as np
from onnxruntime.quantization import CalibrationDataReader, quantize_static
from onnxruntime.quantization.qdq_loss_debug import (
    collect_activations, compute_activation_error, compute_weight_error, create_activation_matching,
    create_weight_matching, modify_model_output_intermediate_tensors)

class Data(CalibrationDataReader):
    def __init__(self):
        self.left = iter([{"x": np.random.default_rng(s).normal(size=(1, 3, 11, 11)).astype("f")} for s in range(2)])

    def get_next(self):
        return next(self.left, None)

quantize_static("conv.onnx", "quantized.onnx", Data())
weights = create_weight_matching("conv.onnx", "quantized.onnx")
assert all(error > 0 for error in compute_weight_error(weights).values())
kept = []
for name in ("conv.onnx", "quantized.onnx"):
    modify_model_output_intermediate_tensors(name, "augmented." + name)
    kept.append(collect_activations("augmented." + name, Data()))
errors = compute_activation_error(create_activation_matching(kept[1], kept[0]))
assert errors
"""


RUNNER = """
import argparse, os, time
import numpy as np
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

class Images(CalibrationDataReader):
    def __init__(self, path):
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.name, self.shape = session.get_inputs()[0].name, session.get_inputs()[0].shape
        self.rewind()

    def get_next(self):
        return next(self.left, None)

    def rewind(self):
        random = np.random.default_rng(0)
        self.left = iter([{self.name: random.normal(size=self.shape).astype(np.float32)} for _ in range(3)])

def benchmark(path):
    session = onnxruntime.InferenceSession(path)
    name = session.get_inputs()[0].name
    start = time.perf_counter()
    session.run([], {name: np.zeros((1, 3, 11, 11), np.float32)})
    return (time.perf_counter() - start) * 1000

parser = argparse.ArgumentParser()
parser.add_argument("--input_model", default="conv.onnx")
parser.add_argument("--output_model", default="quantized.onnx")
parser.add_argument("--quant_format", default=QuantFormat.QDQ, type=QuantFormat.from_string, choices=list(QuantFormat))
parser.add_argument("--per_channel", default=False, type=bool)
parser.add_argument("--activation_type", default=QuantType.QUInt8, type=QuantType.from_string)
given = parser.parse_args(["--quant_format", "QOperator", "--per_channel", "True"])
quantize_static(given.input_model, given.output_model, Images(given.input_model), quant_format=given.quant_format,
                per_channel=given.per_channel, activation_type=given.activation_type, weight_type=QuantType.QInt8)
assert os.path.getsize(given.output_model) and benchmark(given.input_model) > 0 < benchmark(given.output_model)
"""

TENSORRT = """
import os
import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader, CalibrationMethod, QDQQuantizer, QuantType, create_calibrator, write_calibration_table)

class Data(CalibrationDataReader):
    def __init__(self, first, last):
        self.left = iter([{"x": np.random.default_rng(place).normal(size=(4, 16)).astype(np.float32)}
                          for place in range(first, last)])

    def get_next(self):
        return next(self.left, None)

kinds = ["MatMul", "Add"]
calibrator = create_calibrator("matmul.onnx", kinds, augmented_model_path="augmented.onnx",
                               calibrate_method=CalibrationMethod.Percentile)
calibrator.set_execution_providers(["CPUExecutionProvider"])
for first in range(0, 6, 2):
    calibrator.collect_data(Data(first, first + 2))
ranges = calibrator.compute_data()
write_calibration_table(ranges)
assert os.path.exists("calibration.cache") and os.path.exists("calibration.json")
options = {"ActivationSymmetric": True, "AddQDQPairToWeight": True, "OpTypesToExcludeOutputQuantization": kinds,
           "DedicatedQDQPair": True, "QDQOpTypePerChannelSupportToAxis": {"MatMul": 1}}
quantizer = QDQQuantizer(onnx.load("matmul.onnx"), True, False, QuantType.QInt8, QuantType.QInt8, ranges, [], [],
                         kinds, options)
quantizer.quantize_model()
quantizer.model.save_model_to_file("quantized.onnx", False)
"""

SMOOTH = """
import numpy as np
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

class Prompts(CalibrationDataReader):
    def __init__(self):
        self.left = iter([{"ids": np.random.default_rng(place).integers(0, 16, (2, 5))} for place in range(4)])

    def get_next(self):
        return next(self.left, None)

    def __iter__(self):
        return iter(self.get_next, None)

quantize_static(
    "language.onnx", "quantized.onnx", calibration_data_reader=Prompts(), quant_format=QuantFormat.QOperator,
    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul"],
    use_external_data_format=True, per_channel=True,
    extra_options={"SmoothQuant": True, "SmoothQuantAlpha": 0.6, "SmoothQuantFolding": True,
                   "OpTypesToExcludeOutputQuantization": ["MatMul"]})
"""


def language():
    b = Builder(21)
    words = b.node("Gather", [b.weight("table", 16, 128), "ids"], "e")
    b.node("MatMul", [words, b.weight("w", 128, 16)], "y")
    model = b.model({"ids": (2, 5)}, ["y"], {"ids": onnx.TensorProto.INT64})
    model.ir_version = 10
    return model


@pytest.fixture
def folder(tmp_path):
    """A folder with the float models that the programs read."""
    for name, model in (("conv", conv()), ("matmul", matmul()), ("language", language())):
        onnx.save(model, tmp_path / f"{name}.onnx")
    return tmp_path


def run(folder: Path, *arguments: str) -> None:
    """Run a program or module by the drop-in in a folder."""
    command = [sys.executable, "-m", "ort_core.dropin", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def op_types(path: Path) -> set[str]:
    return {node.op_type for node in onnx.load(path).graph.node}


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (STATIC, "QLinearConv"),
        (DYNAMIC, "MatMulInteger"),
        (WEIGHTS, "MatMulNBits"),
        (QNN, "QuantizeLinear"),
        (DEBUGGING, "DequantizeLinear"),
        (RUNNER, "QLinearConv"),
        (TENSORRT, "DequantizeLinear"),
        (SMOOTH, "QLinearMatMul"),
    ],
    ids=["static", "dynamic", "weights", "qnn", "debugging", "runner", "TensorRT", "SmoothQuant"],
)
def test_programs_of_the_guides_run_unchanged(folder, program, expected):
    (folder / "program.py").write_text(program, encoding="utf-8")
    run(folder, "program.py")
    assert expected in op_types(folder / "quantized.onnx")


@pytest.mark.parametrize(
    "arguments",
    [
        ("preprocess", "--input", "matmul.onnx", "--output", "out.onnx"),
        (
            "matmul_nbits_quantizer",
            "--input_model",
            "language.onnx",
            "--output_model",
            "out.onnx",
            "--block_size",
            "32",
        ),
    ],
    ids=["preprocess", "weights"],
)
def test_command_lines_of_the_guides_run_unchanged(folder, arguments):
    name, *rest = arguments
    run(folder, "-m", f"onnxruntime.quantization.{name}", *rest)
    assert (folder / "out.onnx").is_file()
