"""Files in ORT format, as onnxruntime writes them: they load and compute the same; broken ones are refused."""

from __future__ import annotations

import flatbuffers
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import ort_core
from ort_core.errors import InvalidProtobuf, OrtError
from ort_core.onnx_io.flatbuffer import Buffer
from ort_core.onnx_io.ort_format import read_ort_format

HEAD = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> '
LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED")
GRAPHS = {
    "weights": """g (float[N, 2] x) => (float[N, 3] y) <float[2, 3] w = {1, 2, 3, 4, 5, 6}> {
        h = MatMul(x, w) y = Relu(h) }""",
    "attributes": """g (float[N, 4] x) => (float[M, K] y, int64[L] s) {
        h = Softmax<axis = -1>(x) t = Transpose<perm = [1, 0]>(h) y = LeakyRelu<alpha = 0.25>(t) s = Shape(y) }""",
    "texts": """g (float[N, 2] x) => (string[2] y, float[N, 2] z) {
        y = Constant<value_strings = ["ä", "b"]>() z = Exp(x) }""",
    "bodies": """g (float[N, 2] x) => (float[M, 2] y) {
        zero = Constant<value_float = 0.0>() total = ReduceSum<keepdims = 0>(x) yes = Greater(total, zero)
        y = If(yes) <then_branch = a () => (float[N, 2] p) { p = Neg(x) },
                     else_branch = b () => (float[N, 2] q) { q = Abs(x) }> }""",
    "sequences": """g (float[N, 2] x) => (seq(float[N, 2]) s, float[N, 2] y) {
        s = SequenceConstruct(x, x) at = Constant<value_int = 1>() y = SequenceAt(s, at) }""",
    "fused": """g (float[N, 4] x) => (float[N, 4] y) <float[4] b = {1, 2, 3, 4}> {
        h = Add(x, b) y = com.microsoft.Gelu(h) }""",
    "default": "g (float[N] x, float[1] f = {2}) => (float[N] y) { y = Mul(x, f) }",
}


def written(content, path, level="ORT_DISABLE_ALL"):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return path


def parsed(name):
    return parser.parse_model(HEAD + GRAPHS[name]).SerializeToString()


def test_sparse_weights_with_the_narrow_indices_of_the_format_are_read(tmp_path):
    model = onnx.load_from_string(parsed("weights"))
    del model.graph.initializer[:]
    values = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [2], [1.5, -2.0])
    places = onnx.helper.make_tensor("", onnx.TensorProto.INT64, [2], [1, 5])
    model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, places, [2, 3]))
    path = written(model.SerializeToString(), tmp_path / "model.ort")
    feeds = {"x": np.array([[1, -1], [2, 3]], np.float32)}
    (found,) = ort_core.InferenceSession(path).run(None, feeds)
    np.testing.assert_array_equal(found, np.maximum(feeds["x"] @ [[0, 1.5, 0], [0, 0, -2]], 0))


@pytest.mark.parametrize("suffix", ["ort", "onnx"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", list(GRAPHS))
def test_what_onnxruntime_saves_loads_and_computes_the_same(name, level, suffix, tmp_path):
    content = parsed(name)
    path = written(content, tmp_path / f"model.{suffix}", level)
    oracle = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    shape = {"attributes": (3, 4), "fused": (3, 4), "default": (3,)}.get(name, (3, 2))
    feeds = {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    session = ort_core.InferenceSession(path)
    for found, wanted in zip(session.run(None, feeds), oracle.run(None, feeds), strict=True):
        if isinstance(wanted, list) or wanted.dtype == object:
            assert np.array_equal(found, wanted)
        else:
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    again = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [(v.name, v.type, v.shape) for v in session.get_inputs()] == [
        (v.name, v.type, v.shape) for v in again.get_inputs()
    ]


def test_metadata_and_versions_are_read(tmp_path):
    model = onnx.load_from_string(parsed("weights"))
    model.producer_name, model.model_version, model.doc_string, model.domain = "me", 7, "tells", "here"
    model.metadata_props.add(key="color", value="blue")
    path = written(model.SerializeToString(), tmp_path / "model.ort")
    ours, theirs = (engine.InferenceSession(str(path)).get_modelmeta() for engine in (ort_core, onnxruntime))
    for name in ("producer_name", "version", "description", "domain", "custom_metadata_map"):
        assert getattr(ours, name) == getattr(theirs, name)


@pytest.mark.parametrize("name", ["weights", "bodies"])
def test_broken_files_are_refused(name, tmp_path):
    content = written(parsed(name), tmp_path / "model.ort").read_bytes()
    random = np.random.default_rng(3)
    broken = [content[:length] for length in range(8, len(content), 37)]
    for _ in range(600):
        changed = np.frombuffer(content, np.uint8).copy()
        changed[random.integers(8, len(changed), 3)] = random.integers(0, 256, 3)
        broken.append(changed.tobytes())
    refused = 0
    for each in broken:
        try:
            read_ort_format(each)
        except OrtError:
            refused += 1
    assert refused > len(broken) // 4, "hardly any damage was seen"


def test_a_file_that_names_its_tables_again_and_again_is_refused():
    depth = 200  # every vector names one vector twice: 2 ** 200 tables in a file of some kilobytes
    builder = flatbuffers.Builder()
    builder.StartObject(1)
    inner = builder.EndObject()
    for _ in range(depth):
        builder.StartVector(4, 2, 4)
        builder.PrependUOffsetTRelative(inner)
        builder.PrependUOffsetTRelative(inner)
        vector = builder.EndVector()
        builder.StartObject(1)
        builder.PrependUOffsetTRelativeSlot(0, vector, 0)
        inner = builder.EndObject()
    builder.Finish(inner)

    def walk(table):
        for each in table.tables(0):
            walk(each)

    with pytest.raises(InvalidProtobuf, match="more tables than it has room for"):
        walk(Buffer(bytes(builder.Output())).root())
