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
    ],
    ids=["static", "dynamic", "weights", "qnn", "debugging"],
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
