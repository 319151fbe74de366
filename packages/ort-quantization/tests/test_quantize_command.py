"""``ort quantize``: what it writes, reports and refuses."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from float_models import feeds_of, matmul
from static_models import residual_network
from typer.testing import CliRunner

from ort_core.cli.app import build_app
from ort_quantization.errors import InvalidCalibration
from ort_quantization.sample_files import read_samples


@pytest.fixture
def ort():
    def run(*arguments, code=0):
        done = CliRunner().invoke(build_app(), [str(each) for each in arguments])
        assert done.exit_code == code, done.output
        return done

    return run


@pytest.fixture
def model(tmp_path):
    onnx.save(residual_network(), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


@pytest.fixture
def samples(tmp_path):
    (tmp_path / "samples").mkdir()
    for seed in range(3):
        np.savez(tmp_path / f"samples/{seed}.npz", **feeds_of(residual_network(), seed))
    return tmp_path / "samples"


def operators(path):
    return [node.op_type for node in onnx.load(path).graph.node]


def test_without_samples_activations_are_quantized_while_the_model_runs(ort, model):
    shown = ort("quantize", model).output
    assert "net.quantized.onnx" in shown
    assert "of the float model's" in shown
    assert "ConvInteger" in operators(model.with_name("net.quantized.onnx"))


@pytest.mark.parametrize(("name", "expected"), [("qdq", "QuantizeLinear"), ("qoperator", "QLinearConv")])
def test_with_samples_activations_are_quantized_in_the_file(ort, model, samples, tmp_path, name, expected):
    ort("quantize", model, "-o", tmp_path / "small.onnx", "--data", samples, "--format", name, "--per-channel")
    assert expected in operators(tmp_path / "small.onnx")


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_a_model_in_half_floats_takes_the_same_samples(ort, model, samples, half):
    shown = ort("quantize", model, "--half", half, "--data", samples, "--json").output
    made = onnx.load(model.with_name("net.quantized.onnx"))
    kinds = {each.data_type for each in made.graph.initializer if len(each.raw_data) > 64}
    expected = {onnx.TensorProto.DataType.Value(half.upper())}
    assert kinds - {onnx.TensorProto.FLOAT} == expected  # Conv of this opset has no bfloat16
    assert min(json.loads(shown)["signal_to_noise_db"].values()) > 20


def test_the_report_tells_size_operators_and_noise(ort, model, samples, tmp_path):
    report = json.loads(ort("quantize", model, "--data", samples, "--json", "--no-prepare").stdout)
    assert report["bytes_before"] == model.stat().st_size
    assert report["bytes_after"] == (tmp_path / "net.quantized.onnx").stat().st_size
    assert {"type": "Relu", "float": 1, "quantized": 0} in report["operators"]
    assert 20 < report["signal_to_noise_db"]["y"] < 100
    assert set(report["signal_to_noise_db"]) == {"y"}


def test_choices_reach_the_file(ort, model, samples, tmp_path):
    target = tmp_path / "small.onnx"
    chosen = ["--exclude", "Gemm_9", "--weights", "uint8", "--activations", "uint16", "--method", "percentile"]
    ort("quantize", model, "-o", target, "--data", samples, "--no-prepare", *chosen)
    tensors = {each.name: each.data_type for each in onnx.load(target).graph.initializer}
    assert tensors["w0_quantized"] == onnx.TensorProto.UINT8
    assert tensors["c0_zero_point" if "c0_zero_point" in tensors else "r0_zero_point"] == onnx.TensorProto.UINT16
    assert "w3" in tensors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--exclude", "Gemm_8"], "no node 'Gemm_8'"),
        (["--data", "no such folder"], "does not exist"),
        (["-o", "{model}"], "is the float model itself"),
        (["--weights", "int3"], "int3"),
    ],
)
def test_what_is_asked_wrongly_is_told(ort, model, arguments, message):
    given = [each.replace("{model}", str(model)) for each in arguments]
    done = CliRunner().invoke(build_app(), ["quantize", str(model), "--no-prepare", *given])
    assert done.exit_code != 0
    assert message in " ".join(done.output.split())
    assert not model.with_name("net.quantized.onnx").exists()


def test_samples_come_from_arrays_archives_and_test_data(tmp_path):
    onnx.save(matmul(), tmp_path / "m.onnx")
    numbers = np.ones((2, 16), np.float32)
    np.save(tmp_path / "a.npy", numbers)
    np.savez(tmp_path / "b.npz", x=numbers)
    (tmp_path / "data/test_data_set_0").mkdir(parents=True)
    (tmp_path / "data/test_data_set_0/input_0.pb").write_bytes(
        onnx.numpy_helper.from_array(numbers).SerializeToString()
    )
    found = read_samples([tmp_path / "a.npy", tmp_path / "b.npz", tmp_path / "data"], tmp_path / "m.onnx")
    assert [list(sample) for sample in found] == [["x"]] * 3
    for sample in found:
        np.testing.assert_array_equal(sample["x"], numbers)


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.pb"])
def test_files_that_hold_no_arrays_are_named(tmp_path, name):
    onnx.save(matmul(), tmp_path / "m.onnx")
    (tmp_path / name).write_bytes(b"\xff\xff nothing")
    with pytest.raises(InvalidCalibration, match=name):
        read_samples([tmp_path / name], tmp_path / "m.onnx")


def test_arrays_of_other_names_are_refused(tmp_path):
    onnx.save(matmul(), tmp_path / "m.onnx")
    np.savez(tmp_path / "a.npz", z=np.ones(3))
    with pytest.raises(InvalidCalibration, match="the model's inputs are x"):
        read_samples([tmp_path / "a.npz"], tmp_path / "m.onnx")
