"""Quantized files between tools: ours run in OpenVINO, NNCF's run here; ``nox -s quantized_files`` has both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from beside_onnxruntime import relative_error, run_onnxruntime, run_ours
from float_models import Builder, conv, feeds_of, gemm, matmul
from static_models import STATIC

import ort_core
from ort_quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
from ort_quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

MODELS = {
    "conv": conv, "matmul": matmul, "gemm": lambda: gemm(False), "residual network": STATIC["residual network"],
    "transformer block": STATIC["transformer block"],
}  # fmt: skip

# One step of 255, in a few places of a small model: engines round and accumulate in their own order.
ONE_STEP = 0.03


class Reader:
    """Gives a few random samples of a model."""

    def __init__(self, model):
        self.left = iter([feeds_of(model, seed) for seed in range(3)])

    def get_next(self):
        return next(self.left, None)


def static(activations: str, weights: str, quant_format: QuantFormat, per_channel: bool):
    """A way of quantizing a file statically."""

    def quantize(source: Path, target: Path) -> None:
        quantize_static(
            source, target, Reader(onnx.load(source)), quant_format, per_channel=per_channel,
            activation_type=QuantType[activations], weight_type=QuantType[weights],
        )  # fmt: skip

    return quantize


def weights_of(bits: int, quant_format: QuantFormat):
    """A way of quantizing the weights of products only."""

    def quantize(source: Path, target: Path) -> None:
        model = onnx.load(source)
        quantizer = MatMulNBitsQuantizer(model, bits=bits, block_size=16, quant_format=quant_format)
        quantizer.process()
        quantizer.model.save_model_to_file(str(target))

    return quantize


SCHEMES: dict[str, Callable[[Path, Path], None]] = {
    "dynamic": lambda source, target: quantize_dynamic(source, target, weight_type=QuantType.QUInt8),
    "QDQ u8 s8": static("QUInt8", "QInt8", QuantFormat.QDQ, False),
    "QDQ u8 s8 per channel": static("QUInt8", "QInt8", QuantFormat.QDQ, True),
    "QDQ s8 s8 per channel": static("QInt8", "QInt8", QuantFormat.QDQ, True),
    "QDQ u16 s8": static("QUInt16", "QInt8", QuantFormat.QDQ, True),
    "QDQ u8 s4": static("QUInt8", "QInt4", QuantFormat.QDQ, True),
    "QOperator u8 s8": static("QUInt8", "QInt8", QuantFormat.QOperator, False),
    "QOperator u8 u8": static("QUInt8", "QUInt8", QuantFormat.QOperator, True),
    "4 bits QDQ": weights_of(4, QuantFormat.QDQ),
    "4 bits MatMulNBits": weights_of(4, QuantFormat.QOperator),
    "8 bits MatMulNBits": weights_of(8, QuantFormat.QOperator),
}


def run_openvino(path: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What OpenVINO's CPU device makes of a model, in float32 where it is free to choose."""
    openvino = pytest.importorskip("openvino", reason="needs openvino: nox -s quantized_files")
    core = openvino.Core()
    model = core.read_model(path)
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    results = compiled(feeds)
    return [np.asarray(results[place]) for place in range(len(compiled.outputs))]


CHANNELS = "OpenVINO's QLinearConv and QLinearMatMul take one scale for all channels"
CONTRIBUTED = "OpenVINO does not have com.microsoft's QGemm and QLinearGlobalAveragePool"
WIDE = "OpenVINO gives other numbers for 16 bits, for onnxruntime's files too"
GEMM = "OpenVINO gives other numbers for a chain of Gemms, for onnxruntime's file too"
BLOCKS = "OpenVINO's DequantizeLinear wants rows that blocks divide"
DIFFERENT = {
    **{(name, "QOperator u8 u8"): CHANNELS for name in MODELS},
    **{(name, "QOperator u8 s8"): CONTRIBUTED for name in ("gemm", "residual network")},
    **{(name, "QDQ u16 s8"): WIDE for name in ("conv", "matmul", "gemm", "residual network")},
    **{("gemm", f"QDQ {types}"): GEMM for types in ("u8 s8", "u8 s8 per channel", "s8 s8 per channel")},
    **{(name, "4 bits QDQ"): BLOCKS for name in ("matmul", "transformer block")},
}
"""Where OpenVINO 2026.4 refuses a file, or gives something else than onnxruntime and the reference kernels, and why."""


def run_reference(path: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What the numpy kernels make of a model, node by node."""
    return ort_core.InferenceSession(str(path), providers=["ReferenceExecutionProvider"]).run(None, feeds)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", MODELS)
def test_our_files_give_in_openvino_what_they_give_here(tmp_path, name, scheme):
    pytest.importorskip("openvino", reason="needs openvino: nox -s quantized_files")
    model, source, target = MODELS[name](), tmp_path / "float.onnx", tmp_path / "quantized.onnx"
    onnx.save(model, source)
    SCHEMES[scheme](source, target)
    feeds = feeds_of(model, 0)
    expected = run_reference(target, feeds)
    assert relative_error(run_onnxruntime(target, feeds), expected) < ONE_STEP
    try:
        error = relative_error(run_openvino(target, feeds), expected)
    except RuntimeError:  # a refusal
        assert (name, scheme) in DIFFERENT
        return
    if (name, scheme) in DIFFERENT:
        assert error > ONE_STEP, "OpenVINO does it now: take the row out"
    else:
        assert error < ONE_STEP


def run_plainly(path: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What onnxruntime makes of a model whose nodes it does not fuse."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feeds)


@pytest.mark.parametrize("preset", ["performance", "mixed"])
@pytest.mark.parametrize("name", MODELS)
def test_nncfs_quantized_files_run_here(tmp_path, name, preset):
    nncf = pytest.importorskip("nncf", reason="needs nncf: nox -s quantized_files")
    model, target = MODELS[name](), tmp_path / "quantized.onnx"
    samples = nncf.Dataset([feeds_of(model, seed) for seed in range(3)])
    quantized = nncf.quantize(model, samples, preset=nncf.QuantizationPreset(preset), subset_size=3)
    onnx.save(quantized, target)
    feeds = feeds_of(model, 0)
    assert any(node.op_type == "QuantizeLinear" for node in quantized.graph.node)
    expected = run_plainly(target, feeds)  # onnxruntime's QLinearConv refuses a zero point for each channel
    assert relative_error(run_ours(target, feeds), expected) < ONE_STEP


@pytest.mark.parametrize("mode", ["INT8_ASYM", "INT8_SYM", "INT4_SYM", "INT4_ASYM"])
def test_nncfs_compressed_weights_run_here(tmp_path, mode):
    nncf = pytest.importorskip("nncf", reason="needs nncf: nox -s quantized_files")
    b = Builder(21)
    b.node("MatMul", [b.node("MatMul", ["x", b.weight("w", 32, 64)], "h"), b.weight("v", 64, 16)], "y")
    model, target = b.model({"x": (4, 32)}, ["y"]), tmp_path / "compressed.onnx"
    model.ir_version = 10
    blocks = {"group_size": 16, "all_layers": True} if "INT4" in mode else {}
    onnx.save(nncf.compress_weights(model, mode=nncf.CompressWeightsMode[mode], **blocks), target)
    feeds = feeds_of(model, 0)
    assert any(tensor.data_type not in (1, 7) for tensor in onnx.load(target).graph.initializer)
    expected = run_plainly(target, feeds)  # fused, 4-bit weights meet activations of 8 bits there
    assert relative_error(run_ours(target, feeds), expected) < 1e-5
