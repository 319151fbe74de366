"""Adapters: files that onnxruntime reads and writes the same, and runs that use them."""

import contextlib

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from hypothesis import given, strategies

import ort_core
from ort_core.errors import InvalidProtobuf, InvalidType, NoSuchFile
from ort_core.session_api.adapter_file import read_adapter, write_adapter

PARAMETERS = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.arange(3, dtype=np.int64),
    "empty": np.zeros((0, 2), np.float16),
}


def test_onnxruntime_reads_what_is_written(tmp_path):
    path = tmp_path / "ours.onnx_adapter"
    adapter = ort_core.AdapterFormat()
    adapter.set_adapter_version(5)
    adapter.set_model_version(7)
    adapter.set_parameters({name: ort_core.OrtValue.ortvalue_from_numpy(a) for name, a in PARAMETERS.items()})
    adapter.export_adapter(path)
    found = onnxruntime.AdapterFormat.read_adapter(str(path))
    assert (found.get_format_version(), found.get_adapter_version(), found.get_model_version()) == (1, 5, 7)
    for name, value in found.get_parameters().items():
        np.testing.assert_array_equal(value.numpy(), PARAMETERS[name])


def test_what_onnxruntime_writes_is_read(tmp_path):
    path = tmp_path / "theirs.onnx_adapter"
    adapter = onnxruntime.AdapterFormat()
    adapter.set_adapter_version(5)
    adapter.set_parameters({n: onnxruntime.OrtValue.ortvalue_from_numpy(a) for n, a in PARAMETERS.items()})
    adapter.export_adapter(str(path))
    found = ort_core.AdapterFormat.read_adapter(path)
    assert found.get_adapter_version() == 5
    assert set(found.get_parameters()) == set(PARAMETERS)
    for name, value in found.get_parameters().items():
        np.testing.assert_array_equal(value.numpy(), PARAMETERS[name])


def test_a_scalar_survives_a_round_trip():  # onnxruntime refuses it
    found = read_adapter(write_adapter(1, 1, {"s": np.array(2.5)}))[3]["s"]
    assert found.shape == ()
    assert found == 2.5


def test_types_of_less_than_a_byte_survive_a_round_trip():
    narrow = np.array([1, -2, 3], ml_dtypes.int4)
    assert read_adapter(write_adapter(1, 1, {"n": narrow}))[3]["n"].tolist() == narrow.tolist()


def test_an_active_adapter_feeds_its_parameters_also_where_the_caller_feeds_others(session_of, tmp_path):
    path = tmp_path / "factor.onnx_adapter"
    adapter = ort_core.AdapterFormat()
    adapter.set_parameters({"factor": ort_core.OrtValue.ortvalue_from_numpy(np.array([10], np.float32))})
    adapter.export_adapter(path)
    loaded = ort_core.LoraAdapter()
    loaded.Load(str(path))
    options = ort_core.RunOptions()
    options.add_active_adapter(loaded)
    session, x = session_of("scale"), np.ones(2, np.float32)
    assert session.run(None, {"x": x}, options)[0].tolist() == [30, 30]
    assert session.run(None, {"x": x, "factor": [1.0]}, options)[0].tolist() == [30, 30]
    assert session.run(None, {"x": x, "factor": [1.0]})[0].tolist() == [3, 3]
    with pytest.raises(InvalidType, match="expected a LoraAdapter"):
        options.add_active_adapter(3)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(NoSuchFile, match="does not exist"):
        ort_core.LoraAdapter().Load(str(tmp_path / "nope"))


def test_a_file_that_is_no_adapter_is_refused_as_in_onnxruntime(tmp_path):
    path = tmp_path / "text.onnx_adapter"
    path.write_bytes(b"no adapter")
    for adapter in (ort_core.LoraAdapter(), onnxruntime.LoraAdapter()):
        with pytest.raises(RuntimeError, match="valid lora parameter"):
            adapter.Load(str(path))


@given(strategies.data())
def test_a_damaged_file_is_read_or_refused_and_nothing_worse(data):
    content = bytearray(write_adapter(1, 1, PARAMETERS))
    for _ in range(data.draw(strategies.integers(1, 8))):
        content[data.draw(strategies.integers(0, len(content) - 1))] = data.draw(strategies.integers(0, 255))
    cut = data.draw(strategies.integers(0, len(content)))
    for damaged in (bytes(content), bytes(content[:cut])):
        with contextlib.suppress(InvalidProtobuf):
            read_adapter(damaged)
