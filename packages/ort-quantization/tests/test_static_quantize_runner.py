"""The command line of static quantization and the tables of ranges, beside onnxruntime's."""

from __future__ import annotations

import importlib
import json
import sys

import numpy as np
import onnx
import pytest
from beside_onnxruntime import assert_same_model
from float_models import conv, feeds_of
from onnx import numpy_helper
from onnxruntime.quantization import static_quantize_runner as theirs
from onnxruntime.quantization.CalTableFlatBuffers.TrtTable import TrtTable

import ort_quantization
from ort_quantization import CalibrationMethod, QuantType, TensorData, TensorsData, static_quantize_runner
from ort_quantization.errors import InvalidQuantization

ALL = [
    "--activation_type", "quint16", "--weight_type", "qint8", "--enable_subgraph", "--force_quantize_no_input_check",
    "--matmul_const_b_only", "--add_qdq_pair_to_weight", "--dedicated_qdq_pair",
    "--op_types_to_exclude_output_quantization", "Relu", "--calibration_method", "entropy",
    "--calib_tensor_range_symmetric", "--calib_moving_average", "--disable_quantize_bias", "--use_qdq_contrib_ops",
    "--minimum_real_range", "0.1", "--qdq_keep_removable_activations", "--qdq_disable_weight_adjust_for_int32_bias",
    "--per_channel", "--nodes_to_quantize", "a", "b", "--nodes_to_exclude", "c", "--op_per_channel_axis", "Conv", "1",
    "--op_per_channel_axis", "MatMul", "0",
]  # fmt: skip


@pytest.fixture
def model_path(tmp_path):
    """A model with two folders of test data beside it."""
    model = conv()
    for place in range(2):
        folder = tmp_path / f"test_data_set_{place}"
        folder.mkdir()
        tensor = numpy_helper.from_array(feeds_of(model, place)["x"], "x")
        (folder / "input_0.pb").write_bytes(tensor.SerializeToString())
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.mark.parametrize("choices", [[], ALL], ids=["defaults", "all"])
def test_a_command_line_means_what_it_means_to_onnxruntime(model_path, monkeypatch, choices):
    arguments = ["-i", str(model_path), "-o", "out.onnx", *choices]
    monkeypatch.setattr(sys, "argv", ["runner", *arguments])
    taken = []
    monkeypatch.setattr(theirs, "quantize", lambda *given, **named: taken.extend([*given, *named.values()]))
    assert vars(static_quantize_runner.parse_arguments(arguments)) == vars(theirs.parse_arguments())
    theirs.main()
    expected = next(each for each in taken if hasattr(each, "extra_options"))
    found = static_quantize_runner.configuration(static_quantize_runner.parse_arguments(arguments))
    for name in ("weight_type", "activation_type", "calibrate_method", "quant_format"):
        assert getattr(found, name).name == getattr(expected, name).name
    for name in ("per_channel", "reduce_range", "nodes_to_quantize", "nodes_to_exclude", "use_external_data_format"):
        assert getattr(found, name) == getattr(expected, name)
    axes = expected.extra_options["QDQOpTypePerChannelSupportToAxis"]
    axes.update({name: int(axis) for name, axis in axes.items()})  # the tool keeps texts, which are no axes
    assert found.extra_options == expected.extra_options


def test_a_model_is_quantized_as_onnxruntimes_command_quantizes_it(model_path, tmp_path, monkeypatch):
    """By choices for its input, so that no rounding of a calibration decides."""
    points = {"x": 120, "h": 120, "r": 0, "g": 120, "y": 120}  # r is a Relu's: its range begins where the Relu ends
    overrides = {name: [{"scale": 0.05, "zero_point": point}] for name, point in points.items()}
    (tmp_path / "overrides.json").write_text(json.dumps(overrides))
    for main, name in ((static_quantize_runner.main, "here"), (theirs.main, "there")):
        path, choices = str(tmp_path / name), str(tmp_path / "overrides.json")
        monkeypatch.setattr(sys, "argv", ["x", "-i", str(model_path), "-o", path, "--tensor_quant_overrides", choices])
        main()
    assert_same_model(tmp_path / "here", tmp_path / "there")


def test_a_failure_ends_the_command_with_its_sentence(tmp_path):
    with pytest.raises(SystemExit, match="no such file"):
        static_quantize_runner.main(["-i", str(tmp_path / "none.onnx"), "-o", str(tmp_path / "out.onnx")])


def test_choices_for_tensors_are_read_with_their_types(tmp_path):
    path = tmp_path / "choices.json"
    content = {"quant_type": "QUInt16", "convert": {"quant_type": "QUInt8", "recv_nodes": ["a"]}, "zero_point": 1}
    path.write_text(json.dumps({"x": [content]}))
    (found,) = static_quantize_runner.get_tensor_quant_overrides(path)["x"]
    assert found["quant_type"] is QuantType.QUInt16
    assert found["convert"] == {"quant_type": QuantType.QUInt8, "recv_nodes": {"a"}}
    path.write_text("[1, 2]")
    with pytest.raises(InvalidQuantization, match="holds no choices for tensors"):
        static_quantize_runner.get_tensor_quant_overrides(path)


RANGES = {"b": (np.array(-3, "f"), np.array(1, "f")), "a": (np.array([-1.5], "f"), np.array([2.25], "f"))}


def pairs_of(folder):
    """The pairs of a table, as onnxruntime's classes read them."""
    table = TrtTable.GetRootAsTrtTable((folder / "calibration.flatbuffers").read_bytes(), 0)
    pairs = [table.Dict(place) for place in range(table.DictLength())]
    return {pair.Key(): pair.Value() for pair in pairs}


@pytest.mark.parametrize("has_classes", [True, False])
def test_tables_hold_how_far_each_value_reaches(tmp_path, has_classes):
    """onnxruntime's reads them; its writer takes the upper end where the lower one is further from zero."""
    data = {name: TensorData(lowest=ends[0], highest=ends[1]) for name, ends in RANGES.items()}
    ort_quantization.write_calibration_table(
        TensorsData(CalibrationMethod.MinMax, data) if has_classes else RANGES, tmp_path / "table"
    )
    assert pairs_of(tmp_path / "table") == {b"a": b"2.25", b"b": b"3.0"}
    assert (tmp_path / "table" / "calibration.cache").read_text() == "a 2.25\nb 3.0\n"
    content = json.loads((tmp_path / "table" / "calibration.json").read_text())
    assert set(content["data"] if has_classes else content) == {"a", "b"}


def test_a_table_is_the_file_that_onnxruntime_writes_where_upper_ends_are_further(tmp_path):
    their_module = importlib.import_module("onnxruntime.quantization")
    calibrate = importlib.import_module("onnxruntime.quantization.calibrate")
    data = {"a": (np.array([-1.5], "f"), np.array([2.25], "f")), "c": (np.array([0], "f"), np.array([7], "f"))}
    for package, classes, name in ((ort_quantization, ort_quantization, "h"), (their_module, calibrate, "t")):
        facts = {key: classes.TensorData(lowest=ends[0], highest=ends[1]) for key, ends in data.items()}
        (tmp_path / name).mkdir()
        package.write_calibration_table(
            classes.TensorsData(classes.CalibrationMethod.MinMax, facts), str(tmp_path / name)
        )
    assert pairs_of(tmp_path / "h") == pairs_of(tmp_path / "t")
    for file in ("calibration.json", "calibration.cache"):
        assert (tmp_path / "h" / file).read_bytes() == (tmp_path / "t" / file).read_bytes()


def test_a_value_without_a_range_is_refused(tmp_path):
    with pytest.raises(InvalidQuantization, match="'a' has no range"):
        ort_quantization.write_calibration_table({"a": TensorData(avg=np.float32(0), std=np.float32(1))}, tmp_path)


def test_a_table_stays_whole_when_one_of_its_files_cannot_be_written(tmp_path, monkeypatch):
    ort_quantization.write_calibration_table(RANGES, tmp_path)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    write = type(tmp_path).write_bytes

    def full(place, content):
        if place.name.startswith("calibration.cache"):
            raise OSError(28, "No space left on device", str(place))
        return write(place, content)

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        ort_quantization.write_calibration_table({"z": (np.float32(-1), np.float32(1))}, tmp_path)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before
