"""Models in and out of files: tensors in files of their own, sources that stay as they are, and what is no model."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from beside_onnxruntime import run_onnxruntime
from float_models import embedding, feeds_of, gemm, matmul
from onnx import external_data_helper, numpy_helper
from onnxruntime.quantization.onnx_model import ONNXModel as TheirModel

from ort_core.errors import NoSuchFile
from ort_quantization import quantize_dynamic
from ort_quantization.errors import InvalidQuantization
from ort_quantization.models import model_files
from ort_quantization.onnx_model import ONNXModel


def save_outside(model, path):
    onnx.save(model, path, save_as_external_data=True, size_threshold=0, location="weights.bin")
    return path


def test_weights_that_lie_in_files_are_quantized_like_others(tmp_path):
    inside, outside, first, second = (tmp_path / name for name in ("a.onnx", "b.onnx", "c.onnx", "d.onnx"))
    onnx.save(gemm(), inside)
    before = save_outside(gemm(), outside).read_bytes()
    quantize_dynamic(inside, first)
    quantize_dynamic(outside, second)
    assert first.read_bytes() == second.read_bytes()
    assert outside.read_bytes() == before


def test_large_tensors_get_a_file_beside_the_model(tmp_path, monkeypatch):
    monkeypatch.setattr(model_files, "EXTERNAL_FROM", 64)
    source, small, large = tmp_path / "a.onnx", tmp_path / "small.onnx", tmp_path / "large.onnx"
    save_outside(embedding(), source)
    quantize_dynamic(source, small, op_types_to_quantize=["MatMul"])  # the table stays as it is
    quantize_dynamic(source, large, op_types_to_quantize=["MatMul"], use_external_data_format=True)
    outside = onnx.load(large, load_external_data=False)
    places = [
        external_data_helper.ExternalDataInfo(each)
        for each in outside.graph.initializer
        if model_files.is_external(each)
    ]
    assert {place.location for place in places} == {"large.onnx.data"}
    assert len(places) >= 2
    assert all(place.offset % 64 == 0 for place in places)
    feeds = feeds_of(embedding())
    for here, there in zip(run_onnxruntime(large, feeds), run_onnxruntime(small, feeds), strict=True):
        np.testing.assert_array_equal(here, there)


def test_a_model_that_no_single_file_holds_is_written_in_two(tmp_path, monkeypatch):
    monkeypatch.setattr(model_files, "FILE_LIMIT", 500)
    monkeypatch.setattr(model_files, "EXTERNAL_FROM", 64)
    source, target = tmp_path / "a.onnx", tmp_path / "b.onnx"
    onnx.save(matmul(), source)
    quantize_dynamic(source, target)
    assert (tmp_path / "b.onnx.data").exists()
    assert len(run_onnxruntime(target, feeds_of(matmul()))) == 1


def test_a_model_may_replace_its_own_source(tmp_path):
    path, other = save_outside(gemm(), tmp_path / "a.onnx"), tmp_path / "b.onnx"
    quantize_dynamic(path, other)
    quantize_dynamic(path, path)
    assert path.read_bytes() == other.read_bytes()


def test_a_model_in_memory_is_not_changed(tmp_path):
    model = gemm()
    before = model.SerializeToString()
    quantize_dynamic(model, tmp_path / "a.onnx")
    assert model.SerializeToString() == before


def test_a_failure_leaves_no_file(tmp_path):
    with pytest.raises(InvalidQuantization):
        quantize_dynamic(gemm(), tmp_path / "a.onnx", extra_options={"TensorQuantOverrides": {"nothing": [{}]}})
    assert not list(tmp_path.iterdir())


def failing(write, start: str):
    """Return what writes no file whose name begins so."""

    def call(place, *arguments, **named):
        if place.name.startswith(start):
            raise OSError(28, "No space left on device", str(place))
        return write(place, *arguments, **named)

    return call


@pytest.mark.parametrize("fails_at", ["m.onnx", "m.onnx.data"])
def test_a_model_and_its_tensors_stay_what_they_were_when_one_of_them_cannot_be_written(
    tmp_path, monkeypatch, fails_at
):
    monkeypatch.setattr(model_files, "EXTERNAL_FROM", 64)
    target = tmp_path / "m.onnx"
    model_files.write_model(matmul(), "", target, True)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    for method in ("open", "write_bytes"):
        monkeypatch.setattr(f"pathlib.Path.{method}", failing(getattr(type(target), method), f"{fails_at}.partial"))
    changed = matmul()
    (weight, *_) = changed.graph.initializer
    weight.CopyFrom(numpy_helper.from_array(1 + numpy_helper.to_array(weight), weight.name))
    with pytest.raises(OSError, match="No space left"):
        model_files.write_model(changed, "", target, True)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


@pytest.mark.parametrize("content", [b"", b"no model at all", b"\x0a\xff\xff\xff\xff"])
def test_a_file_that_is_no_model_is_refused(tmp_path, content):
    (tmp_path / "a.onnx").write_bytes(content)
    with pytest.raises(InvalidQuantization):
        quantize_dynamic(tmp_path / "a.onnx", tmp_path / "b.onnx")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(NoSuchFile, match=r"missing\.onnx"):
        quantize_dynamic(tmp_path / "missing.onnx", tmp_path / "b.onnx")


def test_external_data_outside_the_folder_is_refused(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "weights.bin").write_bytes(b"\0" * 4096)
    model = matmul()
    tensor = model.graph.initializer[0]
    external_data_helper.set_external_data(tensor, "../weights.bin")
    tensor.ClearField("raw_data")
    (tmp_path / "inner/a.onnx").write_bytes(model.SerializeToString())
    with pytest.raises((InvalidQuantization, onnx.checker.ValidationError, ValueError)):
        quantize_dynamic(tmp_path / "inner/a.onnx", tmp_path / "b.onnx")


def test_tensors_are_found_added_and_removed_by_name():
    model = ONNXModel(gemm())
    count = len(model.initializer())
    model.add_initializer(numpy_helper.from_array(np.zeros(2, np.float32), "new"))
    model.add_initializer(numpy_helper.from_array(np.ones(3, np.float32), "new"))
    assert list(model.get_initializer("new").dims) == [2]
    model.graph().initializer.append(numpy_helper.from_array(np.ones(4, np.float32), "beside"))
    assert list(model.get_initializer("beside").dims) == [4]
    model.remove_initializers([model.get_initializer("new"), model.get_initializer("w")])
    assert model.get_initializer("new") is model.get_initializer("w") is None
    assert len(model.initializer()) == count
    assert list(model.get_initializer("beside").dims) == [4]


def branched() -> onnx.ModelProto:
    """Two convolutions of one value, the second one shorter: its tools order them by waves or by depth."""
    graph = onnx.parser.parse_graph("""
        branched (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y)
        <float[2, 2, 1, 1] w = {1, 2, 3, 4}, float[2] b = {5, 6}> {
            left = Conv(start, w, b)
            bent = Relu(left)
            right = Conv(start, w, b)
            limit = Constant<value_float = 1.0>()
            start = Min(x, limit)
            y = Add(bent, right)
        }""")
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("make", [gemm, branched])
def test_nodes_are_put_behind_those_that_they_read_as_in_onnxruntime(make):
    for turn in (1, -1):
        models = [tool(make()) for tool in (ONNXModel, TheirModel)]
        for model in models:
            copied = [onnx.NodeProto.FromString(node.SerializeToString()) for node in list(model.nodes())[::turn]]
            del model.graph().node[:]
            model.graph().node.extend(copied)
            model.topological_sort()
        ours, theirs = ([list(node.output) for node in model.nodes()] for model in models)
        assert ours == theirs


def test_nodes_that_read_their_own_results_are_told():
    model = branched()
    model.graph.node[0].input[0] = "y"
    with pytest.raises(InvalidQuantization):
        ONNXModel(model).topological_sort()


def test_no_file_is_written_for_large_tensors_where_there_are_none(tmp_path):
    ONNXModel(branched()).save_model_to_file(tmp_path / "small.onnx", use_external_data_format=True)
    assert [each.name for each in tmp_path.iterdir()] == ["small.onnx"]
