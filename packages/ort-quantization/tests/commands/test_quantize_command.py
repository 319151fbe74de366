"""``ort quantize``: what it writes, reports and refuses."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from float_models import Builder, feeds_of, matmul
from onnx import parser
from static_models import residual_network
from typer.testing import CliRunner

from ort_core.cli.app import build_app
from ort_quantization.calibration.sample_files import read_samples
from ort_quantization.errors import InvalidCalibration

NO_WEIGHTS = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'


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


@pytest.mark.parametrize("ways", [[], ["--weight-only", "4"], ["--half", "float16"]], ids=str)
def test_tensors_lie_in_files_where_those_of_the_float_model_do(ort, tmp_path, ways):
    inside, outside, small = tmp_path / "a.onnx", tmp_path / "b.onnx", tmp_path / "small.onnx"
    wide = Builder()
    wide.node("MatMul", ["x", wide.weight("w", 128, 128)], "y")
    onnx.save(wide.model({"x": (2, 128)}, ["y"]), inside)
    onnx.save(onnx.load(inside), outside, save_as_external_data=True, location="weights", size_threshold=0)
    for given, choice, is_outside in (
        (inside, [], False), (outside, [], True), (inside, ["--external-data"], True),
        (outside, ["--no-external-data"], False),
    ):  # fmt: skip
        ort("quantize", given, "-o", small, *ways, *choice)
        assert small.with_name("small.onnx.data").exists() is is_outside
        small.with_name("small.onnx.data").unlink(missing_ok=True)


def test_floats_of_8_bits_can_be_asked_for(ort, samples, model, tmp_path):
    given = ("quantize", model, "-o", tmp_path / "small.onnx", "--data", samples)
    ort(*given, "--weights", "float8", "--activations", "float8", "--method", "distribution")
    kinds = {each.data_type for each in onnx.load(tmp_path / "small.onnx").graph.initializer}
    assert onnx.TensorProto.FLOAT8E4M3FN in kinds
    refused = ort(*given, "--weights", "float8", "--activations", "float8", code=2).output
    assert "float8 and --method distribution together" in " ".join(refused.split())


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
        (["--weight-only", "4", "--half", "float16"], "choose one: --half, --weight-only"),
        (["--weight-only", "4", "--per-channel"], "has no effect beside --weight-only"),
        (["--block-size", "16"], "belongs to --weight-only"),
        (["--activations", "int16"], "needs samples: give --data"),
        (["--report", "{model}.html"], "needs samples: give --data"),
        (["--op-type", "Convv"], "no operator 'Convv'. Did you mean 'Conv'?"),
        (["-o", "{folder}"], "is a folder; a file is written"),
        (["-o", "{model}/small.onnx"], "is no folder"),
        (["--data", "{samples}", "--report", "{model}/page.html"], "is no folder"),
        (["--data", "{samples}", "--to-target", "nan"], "a number of decibels"),
        (["--data", "{samples}", "--to-target", "30", "--budget", "0"], "more than 0 seconds"),
        (["--data", "{model}"], "files of .npz, .npy, .pb are read"),
        (["--extra-option", "SmoothQant=true"], "Did you mean 'SmoothQuant'"),
        (["--extra-option", "SmoothQuant"], "is not NAME=VALUE"),
        (["--data", "{samples}", "--extra-option", "SmoothQuantAlpha=x"], "a number between 0 and 1 is expected"),
        (["--data", "{samples}", "--extra-option", "BlockSize=-1"], "a number from 0 on is expected"),
    ],
)
def test_what_is_asked_wrongly_is_told(ort, model, samples, arguments, message):
    places = {"{model}": model, "{folder}": model.parent, "{samples}": samples}
    given = arguments
    for name, place in places.items():
        given = [each.replace(name, str(place)) for each in given]
    done = CliRunner().invoke(build_app(), ["quantize", str(model), *given])
    assert done.exit_code != 0
    shown = " ".join(each.strip("│ ") for each in done.output.splitlines())  # boxes break sentences
    assert message in shown or message.replace(" ", "") in shown.replace(" ", "")
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


def test_extra_options_reach_the_quantizer(ort, model, samples):
    options = ["--extra-option", "DedicatedQDQPair=true", "--extra-option", "QuantizeBias=false"]
    ort("quantize", model, "--data", samples, *options)
    tensors = {each.name for each in onnx.load(model.with_name("net.quantized.onnx")).graph.initializer}
    assert "b0" in tensors
    assert "b0_quantized" not in tensors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--weight-only", "4"], "no weight was quantized"),
        (["--half", "float16"], "no weight was converted"),
        (["--op-type", "Relu"], "nothing was quantized"),
    ],
)
def test_what_did_not_change_is_told(ort, tmp_path, caplog, arguments, message):
    onnx.save(parser.parse_model(NO_WEIGHTS), tmp_path / "plain.onnx")
    ort("quantize", tmp_path / "plain.onnx", *arguments)
    assert message in caplog.text


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.pb"])
def test_files_that_hold_no_arrays_are_named(tmp_path, name):
    onnx.save(matmul(), tmp_path / "m.onnx")
    (tmp_path / name).write_bytes(b"\xff\xff nothing")
    with pytest.raises(InvalidCalibration, match=name):
        list(read_samples([tmp_path / name], tmp_path / "m.onnx"))


def test_samples_are_read_one_at_a_time(tmp_path):
    onnx.save(matmul(), tmp_path / "m.onnx")
    for place in range(3):
        np.savez(tmp_path / f"{place}.npz", x=np.full((2, 16), place, np.float32))
    found = read_samples([tmp_path], tmp_path / "m.onnx")
    (tmp_path / "1.npz").unlink()
    assert [found[place]["x"][0, 0] for place in (0, 2)] == [0, 2]
    assert len(found[1:]) == 2
    with pytest.raises(InvalidCalibration, match=r"1\.npz"):
        found[1]


def test_arrays_of_other_names_are_refused(tmp_path):
    onnx.save(matmul(), tmp_path / "m.onnx")
    np.savez(tmp_path / "a.npz", z=np.ones(3))
    with pytest.raises(InvalidCalibration, match="the model's inputs are x"):
        read_samples([tmp_path / "a.npz"], tmp_path / "m.onnx")


def test_a_page_never_takes_the_place_of_the_model(ort, model, samples):
    before = model.read_bytes()
    shown = ort("quantize", model, "--data", samples, "--report", model, code=2).output
    assert "would overwrite the model" in " ".join(shown.replace("│", " ").split())
    assert model.read_bytes() == before
