"""Failures: whatever the SDK answers with None or False is an error that says what was asked, and what it said."""

import dataclasses

import fake_cuda
import fake_tensorrt
import numpy as np
import onnx
import pytest

from ort_core.plugin import Claim, EPFail, Rejection
from ort_core.plugin.devices import DeviceDirectory
from ort_core.testing.claims import new_run_state, request_for, typed_model, view_of
from ort_ep_tensorrt import _sdk
from ort_ep_tensorrt._sdk import Sdk
from ort_ep_tensorrt.compilation import compile_partition, load_partition
from ort_ep_tensorrt.settings import BuildSettings

HEADER = '<ir_version: 10, opset_import: ["" : 21]> '
X = np.ones((2, 32), np.float32)
RESHAPE = "g (float[n,4] x, int64[2] s) => (float[a,b] y) { z = Relu(x)  y = Reshape(z, s) }"
CALLS = {  # what fails: what it answers, and what was being done
    ("Builder", "create_network"): (None, "make a network"),
    ("Builder", "create_builder_config"): (None, "make a configuration"),
    ("Builder", "create_optimization_profile"): (None, "make an optimization profile"),
    ("Builder", "build_serialized_network"): (None, "build an engine"),
    ("OnnxParser", "load_model_proto"): (False, "read a model"),
    ("OnnxParser", "load_initializer"): (False, "take the weight 'w'"),
    ("OnnxParser", "parse_model_proto"): (False, "take a claim"),
    ("IBuilderConfig", "set_tactic_sources"): (False, "take the sources of kernels"),
    ("IBuilderConfig", "create_timing_cache"): (None, "read measurements of kernels"),
    ("IBuilderConfig", "set_timing_cache"): (False, "take measurements"),
    ("IBuilderConfig", "add_optimization_profile"): (-1, "take an optimization profile"),
    ("ITimingCache", "serialize"): (None, "write measurements of kernels"),
    ("Runtime", "deserialize_cuda_engine"): (None, "load an engine"),
    ("ICudaEngine", "create_execution_context"): (None, "make an execution context"),
    ("ICudaEngine", "serialize"): (None, "write an engine"),
    ("IExecutionContext", "set_input_shape"): (False, "take the shape [2, 32] of input 'x'"),
    ("IExecutionContext", "infer_shapes"): (["x"], "infer shapes"),
    ("IExecutionContext", "set_tensor_address"): (False, "take the address of 'x'"),
    ("IExecutionContext", "set_output_allocator"): (False, "let 'places' grow"),
    ("IExecutionContext", "execute_async_v3"): (False, "run an engine"),
}
STRIPPED = {
    ("ICudaEngine", "create_serialization_config"): (None, "make a configuration"),
    ("ICudaEngine", "serialize_with_config"): (None, "write an engine"),
    ("ISerializationConfig", "set_flag"): (False, "leave weights out"),
    ("OnnxParserRefitter", "load_model_proto"): (False, "read a model"),
    ("OnnxParserRefitter", "load_initializer"): (False, "take the weight 'w'"),
    ("OnnxParserRefitter", "refit_model_proto"): (False, "find the weights of an engine"),
    ("Refitter", "refit_cuda_engine"): (False, "give an engine its weights"),
}
OF_RTX = {
    ("ICudaEngine", "create_runtime_config"): (None, "make a runtime configuration"),
    ("IRuntimeConfig", "create_runtime_cache"): (None, "make a cache of kernels"),
    ("IRuntimeConfig", "set_runtime_cache"): (False, "take a cache of kernels"),
}
FAKES = {
    "IBuilderConfig": "Config", "ITimingCache": "TimingCache", "ICudaEngine": "Engine", "IExecutionContext": "Context",
    "ISerializationConfig": "SerializationConfig", "IRuntimeConfig": "RuntimeConfig", "IRuntimeCache": "RuntimeCache",
    "IOptimizationProfile": "Profile",
}  # fmt: skip


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path / "cache"))


def request_of(model):
    view = view_of(typed_model(model))
    request = request_for(view, Claim(view.nodes))
    return dataclasses.replace(request, services={"devices": DeviceDirectory({"cuda": fake_cuda.FakeCudaApi})})


def product():
    """A model with a weight, open sizes, and an output whose shape depends on values."""
    graph = onnx.parser.parse_graph(
        "g (float[n,32] x) => (float[n,32] y, int64[2,m] places) { y = MatMul(x, w)  places = NonZero(y) }"
    )
    graph.initializer.append(onnx.numpy_helper.from_array(np.eye(32, dtype=np.float32), "w"))
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


def run(partition, feeds, values=None):
    outputs = [None] * len(partition._graph.outputs)
    plan = partition.plan([x.shape for x in feeds], values or {})
    partition.run(plan, feeds, outputs, new_run_state())
    return outputs


def live(sdk, settings):
    """Let a partition be compiled, run, stored, loaded, and closed; raise what any of it answers."""
    request = request_of(product())
    partition = compile_partition(request, sdk, settings)
    y, places = run(partition, [X])
    np.testing.assert_array_equal(y, X)
    np.testing.assert_array_equal(places, np.stack(np.nonzero(X)))
    blob = partition.serialize()
    answer = blob if isinstance(blob, Rejection) else load_partition(blob, request, sdk, settings)
    if isinstance(answer, Rejection):
        raise EPFail(answer.reason)
    answer.close()
    partition.close()


def fail(monkeypatch, kind, method, answer):
    """Let a method of the fake SDK say something and answer with a failure."""
    log = _sdk._logger_of(fake_tensorrt).log

    def failing(self, *arguments, **named):
        log(fake_tensorrt.ILogger.Severity.ERROR, f"Error Code 7: {method} says no")
        return answer

    monkeypatch.setattr(getattr(fake_tensorrt, FAKES.get(kind, kind)), method, failing)


def assert_said(sdk, settings, doing, method):
    with pytest.raises(EPFail) as caught:
        live(sdk, settings)
    assert f"failed to {doing}" in str(caught.value)
    assert f"Error Code 7: {method} says no" in str(caught.value)


SETTINGS = BuildSettings(tactic_sources=(("JIT_CONVOLUTIONS", True),), caches_engines=False)


@pytest.mark.parametrize(("kind", "method"), CALLS, ids=str)
def test_a_call_that_fails_is_an_error_with_what_was_said(fake, monkeypatch, kind, method):
    answer, doing = CALLS[kind, method]
    fail(monkeypatch, kind, method, answer)
    assert_said(fake, SETTINGS, doing, method)


@pytest.mark.parametrize(("kind", "method"), STRIPPED, ids=str)
def test_a_failure_to_give_weights_is_an_error_with_what_was_said(fake, monkeypatch, kind, method):
    answer, doing = STRIPPED[kind, method]
    fail(monkeypatch, kind, method, answer)
    assert_said(fake, dataclasses.replace(SETTINGS, strips_weights=True), doing, method)


@pytest.mark.parametrize(("kind", "method"), OF_RTX, ids=str)
def test_a_failure_of_tensorrt_rtx_is_an_error_with_what_was_said(monkeypatch, tmp_path, kind, method):
    answer, doing = OF_RTX[kind, method]
    fail(monkeypatch, kind, method, answer)
    settings = dataclasses.replace(SETTINGS, kernel_folder=str(tmp_path), captures_graphs=True)
    assert_said(Sdk(fake_tensorrt, "tensorrt_rtx"), settings, doing, method)


def test_kernels_that_are_not_written_are_said_and_the_session_closes(monkeypatch, tmp_path, caplog):
    fail(monkeypatch, "IRuntimeCache", "serialize", None)
    live(Sdk(fake_tensorrt, "tensorrt_rtx"), dataclasses.replace(SETTINGS, kernel_folder=str(tmp_path)))
    assert "are not kept: TensorRT failed to write compiled kernels: Error Code 7: serialize says no" in caplog.text


@pytest.mark.parametrize(
    ("method", "words"),
    [("set_shape", "take the range of sizes of 'x'"), ("set_shape_input", "take the range of values of 's'")],
)
def test_an_exception_of_the_bindings_is_an_error_with_what_was_said(fake, monkeypatch, method, words):
    def failing(self, *arguments):
        _sdk._logger_of(fake_tensorrt).log(fake_tensorrt.ILogger.Severity.ERROR, "Error Code 3: out of order")
        raise ValueError("bad bounds")

    monkeypatch.setattr(fake_tensorrt.Profile, method, failing)
    partition = compile_partition(request_of(onnx.parser.parse_model(HEADER + RESHAPE)), fake, SETTINGS)
    with pytest.raises(EPFail, match=f"failed to {words}: bad bounds; Error Code 3: out of order"):
        run(partition, [np.ones((6, 4), np.float32), np.array([3, 8])], {1: np.array([3, 8])})


@pytest.mark.parametrize(
    ("kind", "doing"),
    [
        ("Builder", "make a builder"), ("OnnxParser", "make a parser"), ("Runtime", "make a runtime"),
        ("Refitter", "make a refitter"), ("OnnxParserRefitter", "make a reader of weights"),
    ],
)  # fmt: skip
def test_a_constructor_that_fails_is_an_error_with_what_was_said(fake, monkeypatch, kind, doing):
    def failing(self, *arguments):
        arguments[-1].log(fake_tensorrt.ILogger.Severity.ERROR, "CUDA initialization failure with error: 35")
        raise TypeError("pybind11::init(): factory function returned nullptr")

    monkeypatch.setattr(getattr(fake_tensorrt, kind), "__init__", failing)
    with pytest.raises(EPFail, match=rf"failed to {doing}: .*nullptr; CUDA initialization failure"):
        live(fake, dataclasses.replace(SETTINGS, strips_weights=True))


def test_every_call_is_one_of_the_real_sdk(rtx):
    """The table above names what is really there: the fake SDK has no method of its own invention."""
    for kind, method in [*CALLS, *STRIPPED, *OF_RTX, ("IRuntimeCache", "serialize"), ("IRuntimeCache", "deserialize")]:
        assert hasattr(getattr(rtx.module, kind), method), (kind, method)


def test_kernels_that_tensorrt_rtx_compiled_are_found_by_the_next_session(monkeypatch, tmp_path):
    monkeypatch.setattr(fake_tensorrt, "compiled", [])
    sdk, settings = Sdk(fake_tensorrt, "tensorrt_rtx"), dataclasses.replace(SETTINGS, kernel_folder=str(tmp_path))
    for _ in range(2):
        partition = compile_partition(request_of(product()), sdk, settings)
        run(partition, [X])
        partition.close()
    assert len(fake_tensorrt.compiled) == 1, "the second one read what the first one wrote"


def test_kernels_of_another_gpu_are_compiled_anew(monkeypatch, tmp_path, caplog):
    caplog.set_level("INFO", "ort_ep_tensorrt.engine")
    monkeypatch.setattr(fake_tensorrt, "compiled", [])
    sdk, settings = Sdk(fake_tensorrt, "tensorrt_rtx"), dataclasses.replace(SETTINGS, kernel_folder=str(tmp_path))
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(fake_tensorrt.RuntimeCache, "serialize", lambda self: b"for another GPU")
        live(sdk, settings)
    live(sdk, settings)
    assert "compiled kernels of another GPU or version are not used" in caplog.text
    assert len(fake_tensorrt.compiled) > 1


def test_graphs_of_tensorrt_rtx_are_its_own(monkeypatch, tmp_path):
    monkeypatch.setattr(fake_tensorrt, "compiled", [])
    settings = dataclasses.replace(SETTINGS, kernel_folder=str(tmp_path), captures_graphs=True)
    live(Sdk(fake_tensorrt, "tensorrt_rtx"), settings)
    strategies = {config.cuda_graph_strategy for config in fake_tensorrt.compiled}
    assert strategies == {fake_tensorrt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE}
