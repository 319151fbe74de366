"""Models in the form of files are written whole or not at all, their data once."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from ort_core.model_graphs import write_proto

TEXT = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[N, 16] x) => (float[N, 16] y) { c = Constant () a = MatMul (x, w) b = Add (a, c) y = Add (b, v) }
"""
X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(2, 16)


def model_of() -> onnx.ModelProto:
    model, random = parser.parse_model(TEXT), np.random.default_rng(0)
    for name, shape in (("w", (16, 16)), ("v", (16,))):
        model.graph.initializer.append(numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name))
    tensor = numpy_helper.from_array(random.standard_normal((1, 16)).astype(np.float32))
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("value", tensor))
    return model


def result_of(model) -> np.ndarray:
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"]).run(None, {"x": X})[0]


@pytest.mark.parametrize(
    ("choices", "files"),
    [
        ({}, {"m.onnx"}),
        ({"has_external_data": True}, {"m.onnx", "m.onnx.data"}),
        ({"has_external_data": True, "location": "w.bin", "size_threshold": 1}, {"m.onnx", "w.bin"}),
        ({"has_external_data": True, "location": "in/w.bin"}, {"m.onnx", "in/w.bin"}),
        ({"has_external_data": True, "is_one_file": False, "size_threshold": 1}, {"m.onnx", "w", "v"}),
        ({"has_external_data": True, "convert_attribute": True, "size_threshold": 1}, {"m.onnx", "m.onnx.data"}),
    ],
)
def test_a_model_is_written_over_itself_without_growing(tmp_path, monkeypatch, choices, files):
    monkeypatch.chdir(tmp_path)  # where files of these names lie, which onnx would refuse
    path, sizes = tmp_path / "m.onnx", []
    model = model_of()
    before = model.SerializeToString()
    for _ in range(3):
        write_proto(model, path, **choices)
        written = [each for each in tmp_path.rglob("*") if each.is_file()]
        found = {each.relative_to(tmp_path).as_posix(): each.stat().st_size for each in written}
        assert found.keys() == files
        sizes.append(found)
        model = onnx.load(path)
        np.testing.assert_array_equal(result_of(path), result_of(model_of()))
    assert sizes[0] == sizes[1] == sizes[2]
    assert model_of().SerializeToString() == before


@pytest.mark.parametrize("has_external_data", [False, True])
def test_a_failure_leaves_the_former_model(tmp_path, monkeypatch, has_external_data):
    path = tmp_path / "m.onnx"
    write_proto(model_of(), path, has_external_data=has_external_data)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}

    def fail(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(onnx, "save_model", fail)
    with pytest.raises(OSError, match="no space"):
        write_proto(model_of(), path, has_external_data=has_external_data)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_tensors_are_never_written_in_place_of_the_model(tmp_path):
    model = model_of()
    model.graph.initializer[0].name = model.graph.node[1].input[1] = "m.onnx"
    write_proto(model, tmp_path / "m.onnx", has_external_data=True, is_one_file=False, size_threshold=1)
    np.testing.assert_array_equal(result_of(tmp_path / "m.onnx"), result_of(model_of()))


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*missing"):
        write_proto(model_of(), tmp_path / "missing/m.onnx")


def test_a_model_that_no_single_file_holds_gets_its_data_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr("ort_core.onnx_io.write_proto.MAX_PROTOBUF_NBYTES", (1 << 26) + 512)
    write_proto(model_of(), tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx.data").stat().st_size == 16 * 16 * 4
    np.testing.assert_array_equal(result_of(tmp_path / "m.onnx"), result_of(model_of()))


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
@pytest.mark.parametrize("has_external_data", [False, True])
def test_a_link_to_the_model_stays_one(tmp_path, has_external_data):
    target, link = tmp_path / "real" / "m.onnx", tmp_path / "link.onnx"
    target.parent.mkdir()
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_proto(model_of(), link, has_external_data=has_external_data)
    assert link.is_symlink()
    np.testing.assert_array_equal(result_of(onnx.load(link)), result_of(model_of()))
    assert target.read_bytes() == link.read_bytes() != b"old"


@pytest.mark.skipif(os.name == "nt" or not os.path.exists("/dev/null"), reason="this system has no such device")
def test_a_device_is_written_and_not_replaced(tmp_path):
    device = tmp_path / "device"
    device.symlink_to("/dev/null")
    write_proto(model_of(), device)
    assert device.is_char_device()
    with pytest.raises(OSError, match="a file of its own"):
        write_proto(model_of(), device, has_external_data=True)


@pytest.mark.parametrize("name", ["a" * 250 + ".onnx", "\N{GREEK SMALL LETTER ALPHA}" * 125 + ".onnx"])
def test_the_longest_names_can_be_written(tmp_path, name):
    write_proto(model_of(), tmp_path / name)
    assert [each.name for each in tmp_path.iterdir()] == [name]
