"""The command of MatMulNBitsQuantizer takes onnxruntime's options, and writes what its tool writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from ort_quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from ort_quantization.weight_only.matmul_nbits_command import main


@pytest.fixture
def source(tmp_path: Path) -> Path:
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[n, 64] x) => (float[n, 8] y) { y = MatMul(x, w) }'
    )
    weight = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    model.graph.node[0].name = "product"
    path = tmp_path / "model.onnx"
    onnx.save_model(model, path)
    return path


def command(source: Path, *options: str) -> onnx.ModelProto:
    target = source.with_name("small.onnx")
    main(MatMulNBitsQuantizer, ["--input_model", str(source), "--output_model", str(target), *options])
    return onnx.load(target)


@pytest.mark.parametrize(
    ("options", "operator", "inputs"),
    [
        ([], "MatMulNBits", 3),
        (["--symmetric", "False", "--bits", "8", "--block_size", "64"], "MatMulNBits", 4),
        (["--quant_method", "hqq"], "MatMulNBits", 4),
        (["--quant_method", "rtn", "--accuracy_level", "4"], "MatMulNBits", 3),
        (["--quant_method", "k_quant"], "MatMulNBits", 4),
        (["--quant_format", "QDQ"], "DequantizeLinear", 2),
        (["--nodes_to_exclude", "a", "product"], "MatMul", 2),
        (["--op_types_to_quantize", "Gather", "--quant_axes", "Gather:0"], "MatMul", 2),
    ],
)
def test_options_choose_what_is_written(source: Path, options: list[str], operator: str, inputs: int) -> None:
    node = command(source, *options).graph.node[0]
    assert (node.op_type, len(node.input)) == (operator, inputs)


@pytest.mark.parametrize("method", ["gptq", "awq", "nvidia_awq"])
def test_methods_with_data_read_a_folder(source: Path, method: str) -> None:
    folder = source.with_name("data")
    folder.mkdir()
    for run in range(3):
        x = np.random.default_rng(run).normal(size=(16, 64)).astype(np.float32)
        np.savez(folder / f"{run}.npz", x=x)
    node = command(source, "--quant_method", method, "--calibration_data", str(folder)).graph.node[-1]
    assert node.op_type == ("MatMul" if method == "nvidia_awq" else "MatMulNBits")


def test_faults_end_in_a_sentence(source: Path) -> None:
    command(source)
    for options, text in (
        ([], "already exists"),
        (["--output_model", str(source.with_name("b.onnx")), "--quant_method", "gptq"], "--calibration_data"),
        (["--output_model", str(source.with_name("b.onnx")), "--block_size", "3"], "powers of two"),
        (["--output_model", str(source.with_name("b.onnx")), "--input_model", "none.onnx"], r"none\.onnx"),
    ):
        with pytest.raises(SystemExit, match=text):
            command(source, *options)


def test_the_module_runs_under_onnxruntimes_name(source: Path) -> None:
    target = source.with_name("small.onnx")
    arguments = ["--input_model", str(source), "--output_model", str(target)]
    module = "onnxruntime.quantization.matmul_nbits_quantizer"
    subprocess.run([sys.executable, "-m", "ort_core.dropin", "-m", module, *arguments], check=True)
    assert onnx.load(target).graph.node[0].op_type == "MatMulNBits"
