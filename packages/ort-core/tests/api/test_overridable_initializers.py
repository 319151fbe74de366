"""Initializers that are inputs too: constants for runs that do not override them, values for those that do."""

import gc
import logging
import weakref

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core
from ort_core.errors import InvalidArgument, InvalidValue
from ort_core.session import InferenceSession
from ort_core.tolerances import compare

RNG = np.random.default_rng(3)
X = RNG.standard_normal((1, 3, 9, 7)).astype(np.float32)
WEIGHTS = {
    "w": RNG.standard_normal((4, 3, 3, 3)).astype(np.float32),
    "scale": RNG.uniform(0.5, 2, 4).astype(np.float32),
    "shift": RNG.standard_normal(4).astype(np.float32),
    "mean": RNG.standard_normal(4).astype(np.float32),
    "variance": RNG.uniform(0.5, 2, 4).astype(np.float32),
    "shape": np.array([1, -1], np.int64),
}


def image_model() -> bytes:
    """A convolution with its normalization, reshaped as an initializer says; all weights are inputs."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Reshape", ["r", "shape"], ["y"]),
    ]
    kinds = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}
    inputs = [helper.make_tensor_value_info(n, kinds[w.dtype], w.shape) for n, w in WEIGHTS.items()]
    graph = helper.make_graph(
        nodes,
        "image",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 9, 7]), *inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["A", "B"])],
        [numpy_helper.from_array(w, n) for n, w in WEIGHTS.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()


MODEL = image_model()
OVERRIDES = {
    "nothing": {},
    "a weight": {"w": WEIGHTS["w"][::-1].copy()},
    "the shape of the result": {"shape": np.array([4, 35], np.int64)},
    "all": {"w": WEIGHTS["w"] * 2, "variance": WEIGHTS["variance"] + 1, "shape": np.array([7, 20], np.int64)},
    "the default itself": {"w": WEIGHTS["w"]},
}


@pytest.fixture
def session() -> InferenceSession:
    return InferenceSession(MODEL)


@pytest.fixture(scope="module")
def oracle() -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])


def assert_near(found: np.ndarray, expected: np.ndarray) -> None:
    comparison = compare(found, expected, "approximate")
    assert comparison.passes, str(comparison)


def node_types(session: InferenceSession) -> set[str]:
    return {node.op_type for node in session.explain().nodes}


def test_defaults_are_folded_like_constants(session, oracle):
    assert "BatchNormalization" not in node_types(session), "the default weights were not folded into the convolution"
    assert_near(session.run(None, {"x": X})[0], oracle.run(None, {"x": X})[0])


@pytest.mark.parametrize("name", OVERRIDES)
def test_each_run_sees_its_own_overrides(session, oracle, name):
    plain, overridden = {"x": X}, {"x": X, **OVERRIDES[name]}
    for feeds in (plain, overridden, plain, overridden, overridden, plain, plain):
        (found,), (expected,) = session.run(None, feeds), oracle.run(None, feeds)
        assert found.shape == expected.shape
        assert_near(found, expected)


def test_every_way_to_run_takes_overrides(session, oracle):
    feeds = {"x": X, **OVERRIDES["all"]}
    (expected,) = oracle.run(None, feeds)
    (wrapped,) = session.run_with_ort_values(
        None, {n: ort_core.OrtValue.ortvalue_from_numpy(a) for n, a in feeds.items()}
    )
    assert_near(wrapped.numpy(), expected)
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("y")
    for _ in range(3):  # bindings are run directly when they come again
        session.run_with_iobinding(binding)
        assert_near(binding.get_outputs()[0].numpy(), expected)
    assert_near(session(**feeds).y, expected)


def test_what_callers_see_does_not_follow_from_defaults(session, oracle):
    for method in ("get_inputs", "get_overridable_initializers", "get_outputs"):
        found = [(a.name, a.type, a.shape) for a in getattr(session, method)()]
        expected = [(a.name, a.type, a.shape) for a in getattr(oracle, method)()]
        if method == "get_outputs":  # the shape follows from 'shape', which a run may override
            found, expected = [f[:2] for f in found], [e[:2] for e in expected]
            assert all(not isinstance(size, int) for size in session.get_outputs()[0].shape)
        assert found == expected


def test_overriding_is_checked_as_any_feed(session):
    with pytest.raises(InvalidArgument, match="invalid dimensions for input: scale"):
        session.run(None, {"x": X, "scale": np.ones(5, np.float32)})


def test_the_model_is_prepared_once_for_overrides_and_says_so(session, caplog):
    with caplog.at_level(logging.INFO, "ort_core.session_api.plans"):
        session.run(None, {"x": X})
        assert not caplog.records
        for name in ("a weight", "all", "a weight"):
            session.run(None, {"x": X, **OVERRIDES[name]})
    assert ["'w'" in record.getMessage() for record in caplog.records] == [True]


def test_a_closed_session_refuses_overrides(session):
    session.run(None, {"x": X, **OVERRIDES["all"]})
    session.close()
    with pytest.raises(InvalidValue, match="closed"):
        session.run(None, {"x": X, **OVERRIDES["all"]})


def test_a_session_with_overrides_is_freed_when_it_is_dropped():
    session = InferenceSession(MODEL)
    session.run(None, {"x": X, **OVERRIDES["all"]})
    gone = weakref.ref(session)
    gc.disable()
    try:
        del session
        holders = [] if gone() is None else [f"{type(each)}: {each!r:.300}" for each in gc.get_referrers(gone())]
        assert gone() is None, f"something that the session owns refers to it: {holders}"
    finally:
        gc.enable()


def test_a_saved_model_can_still_be_overridden(tmp_path, oracle):
    options = ort_core.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    InferenceSession(MODEL, options)
    saved = InferenceSession(tmp_path / "saved.onnx")
    assert {a.name for a in saved.get_overridable_initializers()} == WEIGHTS.keys()
    feeds = {"x": X, **OVERRIDES["all"]}
    assert_near(saved.run(None, feeds)[0], oracle.run(None, feeds)[0])


def test_defaults_that_do_not_fit_matter_only_to_runs_without_overrides():
    text = """
        <ir_version: 8, opset_import: ["": 13]>
        bad (float[6] x, int64[2] shape = {4, 2}) => (float[a, b] y) { y = Reshape(x, shape) }"""
    session = InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    x = np.arange(6, dtype=np.float32)
    (found,) = session.run(None, {"x": x, "shape": np.array([2, 3], np.int64)})
    np.testing.assert_array_equal(found, x.reshape(2, 3))
    with pytest.raises(ort_core.OrtError):
        session.run(None, {"x": x})


def test_none_for_an_input_with_a_default_means_the_default_as_in_onnxruntime():
    content = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[2] x, float[2] w = {1, 2}) => (float[2] y) { y = Add (x, w) }""").SerializeToString()
    x = np.array([10, 20], np.float32)
    for engine in (onnxruntime, ort_core):
        session = engine.InferenceSession(content, providers=["CPUExecutionProvider"])
        for w in (None, np.zeros(2, np.float32), None):
            (y,) = session.run(None, {"x": x, "w": w})
            np.testing.assert_array_equal(y, x + ([1, 2] if w is None else w))


def other_default(number: float) -> bytes:
    """Return ``y = x * w`` with a default of ``w``."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "own"], ["y"])], "scaled",
        [info("x", TensorProto.FLOAT, [2]), info("w", TensorProto.FLOAT, [1])], [info("y", TensorProto.FLOAT, [2])],
        [numpy_helper.from_array(np.array([number], np.float32), name) for name in ("w", "own")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 15)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def test_a_session_does_not_become_one_of_a_file_that_was_written_later(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(other_default(3))
    session = InferenceSession(path)
    x, w = np.ones(2, np.float32), np.array([10], np.float32)
    later = tmp_path / "later.onnx"
    later.write_bytes(other_default(400))
    later.replace(path)
    with pytest.raises(ort_core.errors.Fail, match="was written again since this session loaded it"):
        session.run(None, {"x": x, "w": w})
    assert session.run(None, {"x": x})[0].tolist() == [6, 6], "other runs go on"
    assert InferenceSession(path).run(None, {"x": x, "w": w})[0].tolist() == [410, 410]


def test_a_file_that_is_gone_is_told_as_that(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(other_default(3))
    session = InferenceSession(path)
    path.unlink()
    with pytest.raises(ort_core.errors.NoSuchFile, match="is gone since this session loaded it"):
        session.run(None, {"x": np.ones(2, np.float32), "w": np.ones(1, np.float32)})


def test_a_file_is_found_again_from_another_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.onnx").write_bytes(other_default(3))
    session = InferenceSession("model.onnx")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    (tmp_path / "other" / "model.onnx").write_bytes(other_default(400))
    found = session.run(None, {"x": np.ones(2, np.float32), "w": np.array([10], np.float32)})
    assert found[0].tolist() == [13, 13]
