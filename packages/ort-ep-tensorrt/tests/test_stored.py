"""Stored engines: what a compiled model carries, engines without weights, and other weights for an engine."""

import dataclasses

import fake_cuda
import fake_tensorrt
import numpy as np
import onnx
import pytest

from ort_core.plugin import Claim, InvalidArgument, Rejection
from ort_core.plugin.devices import DeviceDirectory
from ort_core.testing.claims import new_run_state, request_for, typed_model, view_of
from ort_ep_tensorrt.blob import opened
from ort_ep_tensorrt.compilation import compile_partition, load_partition, try_build
from ort_ep_tensorrt.ranges import ShapeRange
from ort_ep_tensorrt.settings import BuildSettings

HEADER = '<ir_version: 10, opset_import: ["" : 21]> '
OPEN = "g (float[n,4] x) => (float[n,4] y) { a = Relu(x)  y = Neg(a) }"
X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(fake_tensorrt, "builds", [])


def request_of(model):
    """Return the request for a whole model, on a fake device."""
    view = view_of(typed_model(model))
    request = request_for(view, Claim(view.nodes))
    return dataclasses.replace(request, services={"devices": DeviceDirectory({"cuda": fake_cuda.FakeCudaApi})})


def product(scale):
    """Return a model with a weight that is read in place."""
    weight = np.eye(32, dtype=np.float32) * scale
    graph = onnx.parser.parse_graph("g (float[2,32] x) => (float[2,32] y) { y = MatMul(x, w) }")
    graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


def run(partition, x=X):
    outputs = [None]
    partition.run(partition.plan([x.shape], {}), [x], outputs, new_run_state())
    return outputs[0]


def test_an_engine_is_stored_and_loaded_without_a_build(fake):
    request, settings = request_of(product(2)), BuildSettings(caches_engines=False)
    blob = compile_partition(request, fake, settings).serialize()
    assert isinstance(blob, bytes)
    assert len(fake_tensorrt.builds) == 1
    restored = load_partition(blob, request, fake, settings)
    np.testing.assert_array_equal(run(restored), X * 2)
    assert len(fake_tensorrt.builds) == 1


@pytest.mark.parametrize(
    ("model", "settings", "words"),
    [
        (product(3), BuildSettings(), "other weights"),
        (product(2), BuildSettings(optimization_level=5), "options"),
    ],
    ids=["weights", "options"],
)
def test_an_engine_of_something_else_is_refused(fake, model, settings, words):
    blob = compile_partition(request_of(product(2)), fake, BuildSettings()).serialize()
    answer = load_partition(blob, request_of(model), fake, settings)
    assert isinstance(answer, Rejection)
    assert words in answer.reason


def test_an_engine_of_another_gpu_is_refused_unless_it_was_built_for_all(fake, monkeypatch):
    for settings, is_taken in ((BuildSettings(), False), (BuildSettings(is_hardware_compatible=True), True)):
        blob = compile_partition(request_of(product(2)), fake, settings).serialize()
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(fake_cuda.FakeCudaApi, "hardware", "another GPU")
            answer = load_partition(blob, request_of(product(2)), fake, settings)
        assert isinstance(answer, Rejection) is not is_taken


def test_damaged_bytes_are_refused(fake):
    request = request_of(product(2))
    blob = compile_partition(request, fake, BuildSettings()).serialize()
    for broken, words in ((blob[:-1], "damaged"), (b"nothing", "not of this provider"), (b"", "not of this provider")):
        answer = load_partition(broken, request, fake, BuildSettings())
        assert isinstance(answer, Rejection)
        assert words in answer.reason


def test_without_an_engine_there_is_nothing_to_store_and_the_reason_says_what_to_do(fake):
    request = request_of(onnx.parser.parse_model(HEADER + OPEN))
    answer = compile_partition(request, fake, BuildSettings()).serialize()
    assert isinstance(answer, Rejection)
    assert "give trt_profile_min_shapes" in answer.reason


def test_given_profiles_are_built_and_stored_before_any_run(fake):
    request = request_of(onnx.parser.parse_model(HEADER + OPEN))
    settings = BuildSettings(ranges={"x": ShapeRange((1, 4), (2, 4), (8, 4))})
    blob = compile_partition(request, fake, settings).serialize()
    restored = load_partition(blob, request, fake, settings)
    for count in (1, 8):
        x = np.ones((count, 4), np.float32)
        np.testing.assert_array_equal(run(restored, x), -x)
    assert len(fake_tensorrt.builds) == 1


@pytest.mark.parametrize("shape", [(4,), (2, 5)], ids=["rank", "fixed size"])
def test_a_profile_that_contradicts_the_model_is_an_error(fake, shape):
    request = request_of(onnx.parser.parse_model(HEADER + OPEN))
    settings = BuildSettings(ranges={"x": ShapeRange(shape, shape, shape)})
    with pytest.raises(InvalidArgument, match="give every size once, fixed ones as they are"):
        compile_partition(request, fake, settings)


def test_engines_without_weights_are_small_and_get_the_models_weights(fake):
    whole = compile_partition(request_of(product(2)), fake, BuildSettings(caches_engines=False)).serialize()
    settings = BuildSettings(caches_engines=False, strips_weights=True)
    blob = compile_partition(request_of(product(2)), fake, settings).serialize()
    assert {fake_tensorrt.BuilderFlag.STRIP_PLAN, fake_tensorrt.BuilderFlag.REFIT} <= fake_tensorrt.builds[-1]["flags"]
    assert len(opened(blob).content) < len(opened(whole).content) - 4000
    restored = load_partition(blob, request_of(product(5)), fake, settings)
    np.testing.assert_array_equal(run(restored), X * 5), "the weights are those of the model that is opened"


def test_version_compatible_engines_are_found_by_later_versions(fake, monkeypatch):
    settings = BuildSettings(is_version_compatible=True, excludes_runtime=True)
    compile_partition(request_of(product(2)), fake, settings)
    flags = fake_tensorrt.builds[-1]["flags"]
    assert {fake_tensorrt.BuilderFlag.VERSION_COMPATIBLE, fake_tensorrt.BuilderFlag.EXCLUDE_LEAN_RUNTIME} == flags
    monkeypatch.setattr(fake_tensorrt, "__version__", "11.9.0.0")
    compile_partition(request_of(product(2)), fake, settings)
    assert len(fake_tensorrt.builds) == 1, "the engine was found"
    monkeypatch.setattr(fake_tensorrt, "__version__", "12.0.0.0")
    compile_partition(request_of(product(2)), fake, settings)
    assert len(fake_tensorrt.builds) == 2


@pytest.mark.parametrize("is_compatible", [False, True])
def test_only_version_compatible_engines_may_bring_a_runtime_of_their_own(fake, monkeypatch, is_compatible):
    monkeypatch.setattr(fake_tensorrt, "loaded", [])
    compile_partition(request_of(product(2)), fake, BuildSettings(is_version_compatible=is_compatible))
    assert fake_tensorrt.loaded == [is_compatible]


@pytest.mark.parametrize(
    "text",
    [
        OPEN,
        "g (float[6,4] x, int64[2] s) => (float[3,8] y) { y = Reshape(x, s) }",
        "g (float[3,4] x, int64[1] k) => (float[3,1] y) { y = ReduceSum(x, k) }",
        "g (float[3,5] x, int64[3] t) => (float loss) { loss = NegativeLogLikelihoodLoss(x, t) }",
    ],
    ids=["open sizes", "values that decide", "axes", "parts"],
)
def test_what_is_claimed_is_built_without_a_gpu(rtx, text):
    assert try_build(request_of(onnx.parser.parse_model(HEADER + text)), rtx, BuildSettings()) is None


def test_a_build_with_values_that_do_not_fit_says_nothing_and_why(rtx):
    text = (
        "g (float[6,4] x, int64[2] s) => (float[a,b] y) <float[5] w = {1,2,3,4,5}> { r = Reshape(x, s)  y = Add(r, w) }"
    )
    answer = try_build(request_of(onnx.parser.parse_model(HEADER + text)), rtx, BuildSettings())
    assert isinstance(answer, Rejection)
    assert "the values of ['s'] come with each run" in answer.reason
