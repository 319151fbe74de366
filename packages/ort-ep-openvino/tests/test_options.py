"""Options: onnxruntime's names, typed; what has no effect is refused; and the properties that OpenVINO gets."""

from __future__ import annotations

import json

import onnx
import pytest

from ort_core.plugin import InvalidArgument, describe_options
from ort_ep_openvino import _sdk
from ort_ep_openvino.options import OpenVinoOptions
from ort_ep_openvino.provider import OpenVinoExecutionProvider


def options(**given: str) -> OpenVinoOptions:
    return OpenVinoExecutionProvider(given).options


def test_float32_is_computed_in_float32_unless_the_user_allows_less():
    found = options().configuration(0)
    assert found["EXECUTION_MODE_HINT"] == "ACCURACY"
    assert found["INFERENCE_PRECISION_HINT"] == "f32"
    assert options(precision="FP16").configuration(0)["INFERENCE_PRECISION_HINT"] == "f16"


def test_threads_of_the_session_count_unless_the_option_says_otherwise():
    assert "INFERENCE_NUM_THREADS" not in options().configuration(0)
    assert options().configuration(3)["INFERENCE_NUM_THREADS"] == 3
    assert options(num_of_threads="5").configuration(3)["INFERENCE_NUM_THREADS"] == 5


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({"num_streams": "2"}, "NUM_STREAMS", "2"),
        ({"model_priority": "HIGH"}, "MODEL_PRIORITY", "HIGH"),
        ({"cache_dir": "there"}, "CACHE_DIR", "there"),
        ({"device_type": "GPU", "enable_opencl_throttling": "1"}, "GPU_QUEUE_THROTTLE", "LOW"),
        ({"device_type": "NPU", "enable_qdq_optimizer": "true"}, "NPU_QDQ_OPTIMIZATION", "YES"),
        ({"load_config": '{"CPU": {"PERFORMANCE_HINT": "THROUGHPUT"}}'}, "PERFORMANCE_HINT", "THROUGHPUT"),
    ],
)
def test_an_option_becomes_openvinos_property(given, name, value):
    assert options(**given).configuration(0)[name] == value


def test_native_properties_of_other_devices_are_left_out():
    found = options(load_config='{"GPU": {"PERFORMANCE_HINT": "THROUGHPUT"}}').configuration(0)
    assert "PERFORMANCE_HINT" not in found


def test_native_properties_come_from_a_file_too(tmp_path):
    path = tmp_path / "properties.json"
    path.write_text(json.dumps({"CPU": {"NUM_STREAMS": "3"}}))
    assert options(load_config=str(path)).configuration(0)["NUM_STREAMS"] == "3"


@pytest.mark.parametrize("text", ["{", "[1]", '{"CPU": 1}', "no such file"])
def test_native_properties_that_do_not_parse_are_an_error_that_names_the_option(text):
    with pytest.raises(InvalidArgument, match="load_config"):
        options(load_config=text).configuration(0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"device_type": "TPU"}, "device_type"),
        ({"device_type": "CPU_BF16"}, "behind the '_'"),
        ({"device_type": "CPU_"}, "behind the '_'"),
        ({"device_type": "AUTO_FP16"}, "device_type"),
        ({"device_type": "CPU_FP32", "precision": "FP32"}, "given twice"),
        ({"device_type": "NPU_FP32"}, "no NPU"),
        ({"device_luid": "1"}, "device_luid"),
        ({"context": "1"}, "OpenCL"),
        ({"layout": "x[NHWC]"}, "layout"),
        ({"enable_causallm": "1"}, "enable_causallm"),
        ({"enable_qdq_optimizer": "1"}, "NPU"),
        ({"enable_opencl_throttling": "1"}, "GPU"),
        ({"num_of_threads": "-1"}, "num_of_threads"),
        ({"num_streams": "many"}, "num_streams"),
        ({"precision": "BF8"}, "precision"),
        ({"reshape_input": "x[a,b]"}, "reshape_input"),
        ({"devices": "CPU"}, "device"),
    ],
)
def test_an_option_that_has_no_effect_here_or_does_not_parse_is_refused(given, message):
    with pytest.raises(InvalidArgument, match=message):
        options(**given)


@pytest.mark.parametrize(
    ("given", "device"),
    [
        ({}, "CPU"),
        ({"device_type": "GPU", "device_id": "1"}, "GPU.1"),
        ({"device_type": "CPU", "device_id": "NPU"}, "NPU"),
        ({"device_type": "HETERO:GPU,CPU"}, "HETERO:GPU,CPU"),
        ({"device_type": "AUTO: GPU, CPU"}, "AUTO:GPU,CPU"),
        ({"device_type": "CPU_FP32"}, "CPU"),
        ({"device_type": "GPU_FP16"}, "GPU"),
        ({"device_type": "GPU.1_FP32"}, "GPU.1"),
        ({"device_type": "GPU_FP16", "device_id": "1"}, "GPU.1"),
    ],
)
def test_the_device_is_named_as_openvino_names_it(given, device):
    assert options(**given).device == device


@pytest.mark.parametrize(
    ("device_type", "precision", "hint"),
    [("CPU_FP32", "FP32", "f32"), ("CPU_FP16", "FP16", "f16"), ("GPU.0_FP16", "FP16", "f16")],
)
def test_an_older_device_type_names_the_precision_too_and_says_what_to_write(device_type, precision, hint, caplog):
    given = options(device_type=device_type)
    assert given.allowed_precision == precision
    assert given.configuration(0)["INFERENCE_PRECISION_HINT"] == hint
    (said,) = {record.getMessage() for record in caplog.records}
    assert device_type.partition("_")[0] in said
    assert f"precision {precision}" in said


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, False),
        ({"disable_dynamic_shapes": "True"}, True),
        ({"device_type": "NPU"}, True),
        ({"device_id": "NPU"}, True),
    ],
)
def test_sizes_are_fixed_where_asked_and_on_the_npu(given, expected):
    assert options(**given).has_fixed_sizes is expected


def test_bounds_of_inputs_are_read_as_openvino_writes_them():
    assert options(reshape_input="x[1..8, 3,224,-1],y[4]").shapes() == {"x": "[1..8,3,224,-1]", "y": "[4]"}


def test_every_option_changes_the_cache_key(sdk):
    keys = {OpenVinoExecutionProvider(given).cache_key() for given in ({}, {"num_streams": "2"}, {"precision": "FP16"})}
    assert len(keys) == 3


THREADS = ("INFERENCE_NUM_THREADS", "NUM_STREAMS")


@pytest.mark.parametrize(
    "given",
    [
        {"num_of_threads": "2", "num_streams": "1"},
        {"precision": "FP16"},
        {"load_config": '{"CPU": {"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_NUM_THREADS": 1}}'},
    ],
)
def test_the_processor_knows_each_property_and_keeps_its_value(sdk, given):
    configuration = options(**given).configuration(0)
    compiled = _sdk.compile_model(_sdk.read_model(relu(), {}), "CPU", configuration)
    settable = set(_sdk.core().get_property("CPU", "SUPPORTED_PROPERTIES"))
    for name, value in configuration.items():
        assert name in settable, f"OpenVINO's processor has no property {name}"
        if name in THREADS and int(compiled.get_property("NUM_STREAMS")) == 0:
            continue  # the calling thread computes
        if name != "INFERENCE_PRECISION_HINT":  # what the processor lacks becomes the nearest that it has
            assert value_text(compiled.get_property(name)) == str(value).upper(), name


def test_float32_is_what_the_processor_is_told(sdk):
    compiled = _sdk.compile_model(_sdk.read_model(relu(), {}), "CPU", options().configuration(0))
    assert compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name() == "f32"


def relu() -> bytes:
    """Return a serialized model of one node."""
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[4] x) => (float[4] y) { y = Relu(x) }'
    return onnx.parser.parse_model(text).SerializeToString()


def value_text(value: object) -> str:
    """Return a property as it is written in an option."""
    name = value.get_type_name() if hasattr(value, "get_type_name") else getattr(value, "name", value)
    return str(name).upper()


def test_every_option_has_a_sentence():
    assert [option.name for option in describe_options(OpenVinoOptions) if not option.sentence] == []
