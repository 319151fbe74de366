"""The model that a session saves says the same as the one that it runs, to this project and to onnxruntime."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from ort_core import errors
from ort_core.onnx_io import save
from ort_core.options import GraphOptimizationLevel, SessionOptions
from ort_core.session import InferenceSession
from ort_core.tolerances import compare

GELU = """
    <ir_version: 8, opset_import: ["": 13]>
    g (float[N, 16] x) => (float[N, 16] y)
    <float root = {1.4142135}, float one = {1.0}, float half = {0.5}>
    {
        m = MatMul (x, w)
        scaled = Div (m, root)
        error = Erf (scaled)
        shifted = Add (error, one)
        product = Mul (m, shifted)
        y = Mul (product, half)
    }
"""
OLD_CALL = """
    <ir_version: 8, opset_import: ["": 17, "own": 1]>
    g (float[2, 3, 4] x, bool go) => (float[2, 3, 4] y)
    {
        old = own.Old (x)
        y = If (go) <
            then_branch = yes () => (float[2, 3, 4] a) { a = own.Old (old) },
            else_branch = no () => (float[2, 3, 4] b) { b = Softmax <axis = 1> (old) }
        >
    }
    <domain: "own", opset_import: ["": 12]> Old (a) => (b) { b = Softmax <axis = 1> (a) }
"""
X = np.linspace(-2, 2, 48, dtype=np.float32).reshape(3, 16)


def gelu_model(folder: Path) -> Path:
    """Return the path of a model with one weight of 1,024 bytes and a Gelu in parts."""
    model = parser.parse_model(GELU)
    weight = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    path = folder / "gelu.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="gelu.weights", size_threshold=0)
    return path


def saving(
    path: Path, level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL, **config: str
) -> SessionOptions:
    options = SessionOptions()
    options.optimized_model_filepath = str(path)
    options.graph_optimization_level = level
    for key, value in config.items():
        options.add_session_config_entry(f"session.optimized_model_external_initializers_{key}", value)
    return options


def assert_within(found: np.ndarray, expected: np.ndarray) -> None:
    comparison = compare(found, expected, "approximate")
    assert comparison.passes, str(comparison)


def operators(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path, load_external_data=False).graph.node)


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (GraphOptimizationLevel.ORT_ENABLE_BASIC, {"MatMul": 1, "Div": 1, "Erf": 1, "Add": 1, "Mul": 2}),
        (GraphOptimizationLevel.ORT_ENABLE_EXTENDED, {"MatMul": 1, "Gelu": 1}),
    ],
)
def test_saved_model_has_the_fusions_of_its_level_and_runs_in_onnxruntime(
    tmp_path: Path, level: GraphOptimizationLevel, expected: dict[str, int]
) -> None:
    saved = tmp_path / "saved.onnx"
    session = InferenceSession(gelu_model(tmp_path), saving(saved, level))
    assert operators(saved) == expected
    truth = onnxruntime.InferenceSession(saved, providers=["CPUExecutionProvider"]).run(None, {"x": X})[0]
    assert_within(session.run(None, {"x": X})[0], truth)
    assert_within(InferenceSession(saved).run(None, {"x": X})[0], truth)


def test_weights_go_to_the_named_file_from_the_size_given(tmp_path: Path) -> None:
    source, saved = gelu_model(tmp_path), tmp_path / "saved.onnx"
    InferenceSession(source, saving(saved, file_name="saved.bin", min_size_in_bytes="100"))
    places = {
        tensor.name: tensor.data_location for tensor in onnx.load(saved, load_external_data=False).graph.initializer
    }
    assert places["w"] == onnx.TensorProto.EXTERNAL
    assert (tmp_path / "saved.bin").stat().st_size == 16 * 16 * 4
    truth = onnxruntime.InferenceSession(saved, providers=["CPUExecutionProvider"]).run(None, {"x": X})[0]
    assert_within(InferenceSession(source).run(None, {"x": X})[0], truth)


def test_weights_may_be_saved_to_the_file_that_they_are_mapped_from(tmp_path: Path) -> None:
    source, saved = gelu_model(tmp_path), tmp_path / "saved.onnx"
    options, weights = saving(saved, file_name="gelu.weights", min_size_in_bytes="100"), tmp_path / "gelu.weights"
    if sys.platform == "win32":  # where no mapped file is replaced
        before = weights.read_bytes()
        with pytest.raises(errors.Fail, match=r"gelu\.weights"):
            InferenceSession(source, options)
        assert weights.read_bytes() == before
        assert not saved.exists()
        return
    session = InferenceSession(source, options)
    assert_within(InferenceSession(saved).run(None, {"x": X})[0], session.run(None, {"x": X})[0])


def test_model_too_large_for_one_file_gets_its_weights_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(save, "MAX_PROTOBUF_NBYTES", save._STRUCTURE_NBYTES + 512)
    InferenceSession(gelu_model(tmp_path), saving(tmp_path / "saved.onnx"))
    assert (tmp_path / "saved.onnx.data").exists()


@pytest.mark.parametrize("go", [True, False])
def test_nodes_of_another_opset_are_saved_as_functions_that_import_it(tmp_path: Path, go: bool) -> None:
    saved, content = tmp_path / "saved.onnx", parser.parse_model(OLD_CALL).SerializeToString()
    feeds = {"x": np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 5, "go": np.array(go)}
    session = InferenceSession(content, saving(saved))
    assert {function.opset_import[0].version for function in onnx.load(saved).functions} == {12}
    again = InferenceSession(saved)
    inner = [node.opset for node in again._loaded.prepared.model.graph]
    assert 12 in inner
    once = softmax_from_axis_1(feeds["x"])
    truth = softmax_from_axis_1(once) if go else np.exp(once) / np.exp(once).sum(1, keepdims=True)
    for found in (session.run(None, feeds)[0], again.run(None, feeds)[0]):
        assert_within(found, truth)
    # onnxruntime inlines every function under the opset of the model, whatever the function imports: it is only asked
    # to read the file, and to say of it what it says of the original.
    of_original, of_saved = (
        onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
        for model in (content, saved)
    )
    assert_within(of_saved, of_original)


def softmax_from_axis_1(x: np.ndarray) -> np.ndarray:
    """Softmax before opset 13: over all axes from the given one on."""
    powers = np.exp(x.astype(np.float64))
    return (powers / powers.sum((1, 2), keepdims=True)).astype(np.float32)


SMALL = '<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] x) => (float[N, 4] y) { a = Relu(x) y = Neg(a) }'


@pytest.mark.parametrize(
    ("name", "format_asked", "is_ort"),
    [("a.ort", None, True), ("a.onnx", "ORT", True), ("a.ort", "ONNX", False), ("a.onnx", None, False)],
)
def test_the_saved_format_is_the_one_asked_for_else_that_of_the_name(
    tmp_path: Path, name: str, format_asked: str | None, is_ort: bool
) -> None:
    for engine in (onnxruntime, None):  # both decide alike
        options = SessionOptions() if engine is None else engine.SessionOptions()
        path = tmp_path / ("theirs_" if engine else "ours_") / name
        path.parent.mkdir()
        options.optimized_model_filepath = str(path)
        if format_asked:
            options.add_session_config_entry("session.save_model_format", format_asked)
        if engine is not None:
            options.log_severity_level = 4
        model = parser.parse_model(SMALL).SerializeToString()
        make = InferenceSession if engine is None else engine.InferenceSession
        make(model, options, providers=["CPUExecutionProvider"])
        assert (path.read_bytes()[4:8] == b"ORTM") is is_ort, path
    x = np.array([[1, -2, 3, -4]], np.float32)
    saved = path.read_bytes()
    (found,) = onnxruntime.InferenceSession(saved, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_array_equal(found, -np.maximum(x, 0))


@pytest.mark.parametrize("name", ["a.ort", "a.onnx"])
def test_a_failure_to_save_leaves_the_former_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"the former model")

    def fail(self: Path, content: bytes) -> None:
        with self.open("wb") as file:
            file.write(content[:10])
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(errors.Fail, match="no space left"):
        InferenceSession(parser.parse_model(SMALL).SerializeToString(), saving(path))
    assert path.read_bytes() == b"the former model"
    assert [each.name for each in tmp_path.iterdir()] == [name], "no part of a file stays"


def test_ort_format_without_its_writer_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ort_tools.ort_format_model", None)
    options = SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "a.ort")
    with pytest.raises(errors.NotImplemented, match="pip install ort-tools"):
        InferenceSession(parser.parse_model(SMALL).SerializeToString(), options)


GROUP_NORM = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[N, 4, H, W] image) => (float[N, 4, H, W] y)
    <float[4, 4, 1, 1] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6, 5, 4, 3, 2},
     float[2] ones = {1, 1}, float[2] zeros = {0, 0}, int64[3] rows = {0, 2, -1},
     float[4, 1, 1] scale = {1, 2, 3, 4}, float[4, 1, 1] bias = {5, 6, 7, 8}>
    {
        [conv] x = Conv (image, w)
        [shape] s = Shape (x)
        [group] r = Reshape (x, rows)
        [norm] n = InstanceNormalization <epsilon = 0.001> (r, ones, zeros)
        [restore] b = Reshape (n, s)
        [scale] m = Mul (b, scale)
        [bias] y = Add (m, bias)
    }
"""
UNNAMED_BODY = """
    <ir_version: 8, opset_import: ["": 17, "own": 1]>
    g (float[N, 4] x) => (float[N, 4] y)
    {
        [first] a = own.Twice (x)
        [second] b = own.Twice (a)
        c = own.Twice (b)
        y = own.Twice (c)
    }
    <domain: "own", opset_import: ["": 17]> Twice (a) => (d) { b = Sin (a) c = Sin (b) d = Mul (b, c) }
"""


@pytest.mark.parametrize("level", [GraphOptimizationLevel.ORT_ENABLE_EXTENDED, GraphOptimizationLevel.ORT_ENABLE_ALL])
def test_a_fusion_newer_than_the_model_is_saved_in_parts_that_onnxruntime_runs(
    tmp_path: Path, level: GraphOptimizationLevel
) -> None:
    saved, content = tmp_path / "saved.onnx", parser.parse_model(GROUP_NORM).SerializeToString()
    session = InferenceSession(content, saving(saved, level))
    written = onnx.load(saved)
    assert {"GroupNormalization" in node.name for node in written.graph.node if node.op_type == "Mul"} == {True}
    assert not written.functions
    onnx.checker.check_model(written, full_check=True)
    again = InferenceSession(saved, saving(tmp_path / "again.onnx", level))
    assert operators(tmp_path / "again.onnx") == operators(saved)
    image = np.random.default_rng(0).standard_normal((2, 4, 3, 5)).astype(np.float32)
    truth = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, {"image": image})[0]
    theirs = onnxruntime.InferenceSession(saved, providers=["CPUExecutionProvider"]).run(None, {"image": image})[0]
    for found in (theirs, session.run(None, {"image": image})[0], again.run(None, {"image": image})[0]):
        assert_within(found, truth)


def test_nodes_of_inlined_functions_are_saved_under_names_of_their_own(tmp_path: Path) -> None:
    saved, content = tmp_path / "saved.onnx", parser.parse_model(UNNAMED_BODY).SerializeToString()
    InferenceSession(content, saving(saved, GraphOptimizationLevel.ORT_ENABLE_BASIC))
    names = [node.name for node in onnx.load(saved).graph.node]
    assert len(set(names)) == len(names) == 12
    x = np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)
    of_original, of_saved = (
        onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        for model in (content, saved)
    )
    assert_within(of_saved, of_original)


QUANTIZED = {
    "softmax": "com.microsoft.QLinearSoftmax <axis = 2, opset = 13> (x, s, z, t, w)",
    "softmax of an inner axis": "com.microsoft.QLinearSoftmax <axis = 1, opset = 13> (x, s, z, t, w)",
    "mean": "com.microsoft.QLinearReduceMean <axes = [-1], keepdims = 1> (x, s, z, t, w)",
    "mean of all": "com.microsoft.QLinearReduceMean <axes = [0, 1, 2], keepdims = 0> (x, s, z, t, w)",
    "choice": "com.microsoft.QLinearWhere (c, x, s, z, a, t, w, t, w)",
}


@pytest.mark.parametrize("opset", [9, 10, 12, 18, 21])
def test_quantized_operators_are_saved_in_the_opset_of_their_model(tmp_path: Path, opset: int) -> None:
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 4)).astype(np.uint8)
    for name, call in QUANTIZED.items():
        content = parser.parse_model(f"""
            <ir_version: 8, opset_import: ["": {opset}, "com.microsoft": 1]>
            g (uint8[2, 3, 4] x) => (uint8 y)
            <float s = {{0.1}}, uint8 z = {{3}}, float t = {{0.02}}, uint8 w = {{1}}, bool[4] c = {{1, 0, 0, 1}},
             uint8[2, 3, 4] a = {{{", ".join(map(str, range(24)))}}}>
            {{ y = {call} }}
        """)
        content.graph.output[0].type.tensor_type.ClearField("shape")
        saved = tmp_path / "saved.onnx"
        InferenceSession(content.SerializeToString(), saving(saved, GraphOptimizationLevel.ORT_ENABLE_EXTENDED))
        assert not onnx.load(saved).functions, name
        truth = InferenceSession(content.SerializeToString(), providers=["ReferenceExecutionProvider"])
        is_kept = operators(saved).keys() & {"QLinearReduceMean"}  # it has no kernel there
        for engine in (InferenceSession,) if is_kept else (InferenceSession, onnxruntime.InferenceSession):
            found = engine(saved, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
            np.testing.assert_array_equal(found, truth.run(None, {"x": x})[0], f"{name}, {engine}")


@pytest.mark.parametrize(
    "body",
    [
        "(float[N] x) => (float[M] y) { y = Concat <axis = 0> (x, x) }",
        "(float[N, 3] x) => (int64[2, K] y) { y = NonZero (x) }",
        "(float[N] x) => (float[K] y, int64[K] i) { y, i = Unique (x) }",
    ],
)
def test_the_outputs_of_a_saved_model_have_the_names_of_sizes_that_the_model_declares(
    tmp_path: Path, body: str
) -> None:
    content = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {body}').SerializeToString()
    saved = tmp_path / "saved.onnx"
    session = InferenceSession(content, saving(saved, GraphOptimizationLevel.ORT_ENABLE_BASIC))
    shapes = [each.shape for each in onnxruntime.InferenceSession(content).get_outputs()]
    assert [each.shape for each in session.get_outputs()] == shapes
    assert [each.shape for each in onnxruntime.InferenceSession(saved).get_outputs()] == shapes
