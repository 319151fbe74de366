"""Every call of Triton's own client, over HTTP and gRPC, beside a plain session."""

from __future__ import annotations

import queue
import threading

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from serve_fixtures import DOUBLER, ECHO_TYPES, echo_text, running_server, write_model
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

import ort_core
import ort_serve.inference
import ort_serve.rest.infer
import ort_serve.rest.without_task
import ort_serve.rpc.service
from ort_serve.protocol.datatypes import DATATYPES

DIRECT = {"FP16", "BF16"}  # types that have no typed contents and no JSON form in Triton's client


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_model(DOUBLER, root / "doubler" / "1" / "model.onnx")
    for name, element in ECHO_TYPES.items():
        write_model(echo_text(element), root / f"echo_{name}" / "3" / "model.onnx")
    with running_server(root, allows_loading=True) as running:
        yield running


@pytest.fixture(params=["http", "grpc"])
def triton(request, server):
    """Triton's module and a client of it."""
    module = triton_http if request.param == "http" else triton_grpc
    client = module.InferenceServerClient(getattr(server, request.param))
    yield module, client
    client.close()


def sample(name: str) -> np.ndarray:
    generator = np.random.default_rng(7)
    if name == "BYTES":
        return np.array([["", "a"], ["żółw", "\n"], ["long " * 50, "0"]], object)
    if name == "BOOL":
        return np.array([[True, False], [False, True], [True, True]])
    dtype = DATATYPES[name].dtype
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        found = generator.integers(0, 100, (3, 2)).astype(dtype)
        found[0] = limits.min, limits.max
        return found
    return generator.standard_normal((3, 2)).astype(dtype)


def value_of(array: np.ndarray) -> object:
    """Return a tensor as lists of plain values, bytes as text."""
    if array.dtype.kind == "O":
        return [[item.decode() if isinstance(item, bytes) else item for item in row] for row in array.tolist()]
    return array.astype(np.float64).tolist() if array.dtype.kind == "V" else array.tolist()


def filled(module, name: str, array: np.ndarray, **options):
    tensor = module.InferInput("x", list(array.shape), name)
    tensor.set_data_from_numpy(array, **options)
    return tensor


@pytest.mark.parametrize("name", list(ECHO_TYPES))
def test_every_type_comes_back_as_it_went(triton, name):
    module, client = triton
    array = sample(name)
    answer = client.infer(f"echo_{name}", [filled(module, name, array)], request_id="7")
    assert value_of(answer.as_numpy("y")) == value_of(array)
    response = answer.get_response()
    version = response["model_version"] if isinstance(response, dict) else response.model_version
    assert version == "3"


@pytest.mark.parametrize("name", sorted(set(ECHO_TYPES) - DIRECT))
@pytest.mark.parametrize("asks_binary", [False, True])
def test_json_tensors_mix_with_binary_ones(server, name, asks_binary):
    client = triton_http.InferenceServerClient(server.http)
    array = sample(name)
    tensor = filled(triton_http, name, array, binary_data=not asks_binary)
    wanted = triton_http.InferRequestedOutput("y", binary_data=asks_binary)
    answer = client.infer(f"echo_{name}", [tensor], outputs=[wanted])
    assert value_of(answer.as_numpy("y")) == value_of(array)


def test_results_are_those_of_a_session(triton, tmp_path):
    module, client = triton
    array = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)
    session = ort_core.InferenceSession(str(write_model(DOUBLER, tmp_path / "doubler.onnx")))
    tensor = module.InferInput("x", [5, 4], "FP32")
    tensor.set_data_from_numpy(array)
    wanted = [module.InferRequestedOutput("total"), module.InferRequestedOutput("y")]
    answer = client.infer("doubler", [tensor], outputs=wanted, priority=0, timeout=20_000_000)
    for name, expected in zip(("y", "total"), session.run(None, {"x": array})):
        np.testing.assert_array_equal(answer.as_numpy(name), expected)


def test_health_and_metadata(triton):
    _, client = triton
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("doubler")
    assert client.is_model_ready("doubler", "1")
    assert not client.is_model_ready("doubler", "9")
    metadata = plain(client.get_server_metadata())
    assert metadata["name"] == "ort-serve"
    assert "binary_tensor_data" in metadata["extensions"]
    model = plain(client.get_model_metadata("doubler"))
    assert model["inputs"] == [{"name": "x", "datatype": "FP32", "shape": ["-1", "4"]}] or model["inputs"] == [
        {"name": "x", "datatype": "FP32", "shape": [-1, 4]}
    ]
    assert [output["name"] for output in model["outputs"]] == ["y", "total"]
    config = plain(client.get_model_config("doubler"))
    config = config.get("config", config)
    assert config["name"] == "doubler"
    assert config["input"][0]["data_type"] == "TYPE_FP32"


def plain(found: object) -> dict:
    """Return what both clients give as plain values."""
    if isinstance(found, dict):
        return found
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(found, preserving_proto_field_name=True)


def test_statistics_count_requests(triton):
    module, client = triton
    before = plain(client.get_inference_statistics("doubler"))["model_stats"][0]
    tensor = module.InferInput("x", [2, 4], "FP32")
    tensor.set_data_from_numpy(np.ones((2, 4), np.float32))
    client.infer("doubler", [tensor])
    after = plain(client.get_inference_statistics("doubler", "1"))["model_stats"][0]
    assert int(after["inference_count"]) == int(before.get("inference_count", 0)) + 2
    assert int(after["execution_count"]) == int(before.get("execution_count", 0)) + 1
    success = after["inference_stats"]["success"]
    assert int(success["count"]) >= 1
    assert int(success["ns"]) > 0
    assert len(plain(client.get_inference_statistics())["model_stats"]) == len(ECHO_TYPES) + 1


def test_models_are_unloaded_and_loaded(triton):
    module, client = triton
    index = plain_index(client)
    assert index["echo_INT8"] == "READY"
    client.unload_model("echo_INT8")
    assert plain_index(client)["echo_INT8"] == "UNAVAILABLE"
    assert not client.is_model_ready("echo_INT8")
    with pytest.raises(InferenceServerException, match="no version that is ready"):
        client.infer("echo_INT8", [filled(module, "INT8", sample("INT8"))])
    client.load_model("echo_INT8")
    assert client.is_model_ready("echo_INT8")
    with pytest.raises(InferenceServerException, match="there is no model 'nothing'"):
        client.load_model("nothing")


def plain_index(client) -> dict[str, str]:
    found = client.get_model_repository_index()
    rows = found if isinstance(found, list) else plain(found)["models"]
    return {row["name"]: row["state"] for row in rows}


def test_log_and_trace_settings(triton):
    _, client = triton
    assert settings_of(client.update_log_settings({"log_verbose_level": 1}))["log_verbose_level"] == 1
    assert settings_of(client.update_log_settings({"log_verbose_level": 0, "log_info": True}))["log_info"] is True
    assert settings_of(client.get_log_settings())["log_error"] is True
    changed = settings_of(client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"], "trace_rate": "1"}))
    assert changed["trace_level"] == ["TIMESTAMPS"]
    assert settings_of(client.get_trace_settings())["trace_rate"] in ("1", ["1"])
    client.update_trace_settings(settings={"trace_level": ["OFF"]})
    with pytest.raises(InferenceServerException, match="has no meaning here"):
        client.update_trace_settings(settings={"trace_file": "/tmp/trace.json"})


def settings_of(found: object) -> dict:
    values = plain(found)
    if "settings" not in values:
        return values
    return {name: next(iter(entry.values())) if entry else None for name, entry in values["settings"].items()}


def test_system_shared_memory_carries_inputs_and_outputs(triton):
    memory = pytest.importorskip("tritonclient.utils.shared_memory", reason="no shared memory on this system")
    module, client = triton
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    given = memory.create_shared_memory_region("given", f"/ort-serve-{module.__name__[-4:]}-in", array.nbytes)
    taken = memory.create_shared_memory_region("taken", f"/ort-serve-{module.__name__[-4:]}-out", array.nbytes)
    try:
        memory.set_shared_memory_region(given, [array])
        client.register_system_shared_memory("given", f"/ort-serve-{module.__name__[-4:]}-in", array.nbytes)
        client.register_system_shared_memory("taken", f"/ort-serve-{module.__name__[-4:]}-out", array.nbytes)
        status = client.get_system_shared_memory_status()
        names = {row["name"] for row in status} if isinstance(status, list) else set(status.regions)
        assert names == {"given", "taken"}
        tensor = module.InferInput("x", [3, 4], "FP32")
        tensor.set_shared_memory("given", array.nbytes)
        wanted = module.InferRequestedOutput("y")
        wanted.set_shared_memory("taken", array.nbytes)
        client.infer("doubler", [tensor], outputs=[wanted])
        np.testing.assert_array_equal(memory.get_contents_as_numpy(taken, np.float32, [3, 4]), 2 * array)
        small = module.InferRequestedOutput("y")
        small.set_shared_memory("taken", 8)
        with pytest.raises(InferenceServerException, match="takes 48 bytes"):
            client.infer("doubler", [tensor], outputs=[small])
        client.unregister_system_shared_memory("given")
        with pytest.raises(InferenceServerException, match="not registered"):
            client.infer("doubler", [tensor])
    finally:
        client.unregister_system_shared_memory()
        memory.destroy_shared_memory_region(given)
        memory.destroy_shared_memory_region(taken)


def test_cuda_shared_memory_is_refused_with_a_sentence(triton):
    _, client = triton
    status = client.get_cuda_shared_memory_status()
    assert (status if isinstance(status, list) else list(status.regions)) == []
    client.unregister_cuda_shared_memory()
    with pytest.raises(InferenceServerException, match="system shared memory"):
        client.register_cuda_shared_memory("region", b"", 0, 8)


def test_classes_are_the_largest_elements(triton):
    module, client = triton
    tensor = module.InferInput("x", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.array([[1, 4, 3, 2]], np.float32))
    wanted = module.InferRequestedOutput("y", class_count=2)
    found = client.infer("doubler", [tensor], outputs=[wanted]).as_numpy("y")
    assert [item.decode() for item in found.ravel()] == ["8.000000:1", "6.000000:2"]


@pytest.mark.parametrize(("request_encoding", "response_encoding"), [("gzip", "deflate"), ("deflate", "gzip")])
def test_bodies_are_compressed_both_ways(server, request_encoding, response_encoding):
    client = triton_http.InferenceServerClient(server.http)
    array = np.ones((100, 4), np.float32)
    tensor = triton_http.InferInput("x", [100, 4], "FP32")
    tensor.set_data_from_numpy(array)
    answer = client.infer(
        "doubler", [tensor],
        request_compression_algorithm=request_encoding, response_compression_algorithm=response_encoding,
    )  # fmt: skip
    np.testing.assert_array_equal(answer.as_numpy("y"), 2 * array)


def test_asynchronous_and_streaming_calls(server):
    import queue

    answers: queue.Queue = queue.Queue()
    client = triton_grpc.InferenceServerClient(server.grpc)
    tensor = triton_grpc.InferInput("x", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 4), np.float32))
    client.async_infer("doubler", [tensor], lambda result, error: answers.put((result, error)))
    result, error = answers.get(timeout=30)
    assert error is None
    assert result.as_numpy("y").tolist() == [[2, 2, 2, 2]]
    client.start_stream(lambda result, error: answers.put((result, error)))
    for model in ("doubler", "nothing", "doubler"):
        client.async_stream_infer(model, [tensor])
    found = [answers.get(timeout=30) for _ in range(3)]
    client.stop_stream()
    assert [error is None for _, error in found] == [True, False, True]
    assert "there is no model 'nothing'" in str(found[1][1])
    client.close()


def test_typed_contents_are_read(server):
    import grpc
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    with grpc.insecure_channel(server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for name in ("INT8", "UINT64", "FP32", "FP64", "BOOL", "INT64"):
            field = "int_contents" if name == "INT8" else f"{name.lower()}_contents"
            array = sample(name)
            request = service_pb2.ModelInferRequest(model_name=f"echo_{name}")
            tensor = request.inputs.add(name="x", datatype=name, shape=array.shape)
            getattr(tensor.contents, field).extend(array.ravel().tolist())
            answer = stub.ModelInfer(request)
            assert answer.raw_output_contents[0] == array.tobytes()
        request = service_pb2.ModelInferRequest(model_name="echo_BYTES")
        request.inputs.add(name="x", datatype="BYTES", shape=[1, 2]).contents.bytes_contents.extend([b"a", b"bc"])
        expected = serialize_byte_tensor(np.array([[b"a", b"bc"]], object)).item()
        assert stub.ModelInfer(request).raw_output_contents[0] == expected
        request.inputs[0].contents.bytes_contents[0] = b"\xff"
        with pytest.raises(grpc.RpcError, match="not UTF-8"):
            stub.ModelInfer(request)


def test_schema_has_the_numbers_of_triton_s(server):
    from tritonclient.grpc import model_config_pb2, service_pb2

    from ort_serve.rpc.messages import MESSAGE_CLASSES
    from ort_serve.rpc.schema import METHODS, STREAM

    service = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    assert {method.name for method in service.methods} == {*METHODS, STREAM}
    for method in service.methods:
        for theirs in (method.input_type, method.output_type):
            compare_fields(MESSAGE_CLASSES.get(theirs.name).DESCRIPTOR, theirs)
    config = MESSAGE_CLASSES.get("ModelConfig").DESCRIPTOR
    compare_fields(config, model_config_pb2.ModelConfig.DESCRIPTOR)


def compare_fields(ours, theirs) -> None:
    for field in ours.fields:
        other = theirs.fields_by_name[field.name]
        assert (field.number, field.type, field.is_repeated) == (other.number, other.type, other.is_repeated), (
            field.full_name
        )
        if field.message_type is not None and not field.message_type.full_name.endswith("ModelConfig"):
            compare_fields(field.message_type, other.message_type)


def test_bfloat16_keeps_its_bits(server):
    client = triton_http.InferenceServerClient(server.http)
    array = np.array([[1.5, -2.25]], ml_dtypes.bfloat16)
    tensor = triton_http.InferInput("x", [1, 2], "BF16")
    tensor.set_data_from_numpy(array)
    found = client.infer("echo_BF16", [tensor]).as_numpy("y")
    assert found.tolist() == [[1.5, -2.25]]


@pytest.mark.parametrize(("texts", "is_long"), [(2, False), (40_000, True)])
def test_long_requests_are_read_and_written_beside_the_event_loop(tmp_path, monkeypatch, texts, is_long):
    threads: list[str] = []

    def noting(function):
        def call(*arguments):
            threads.append(threading.current_thread().name)
            return function(*arguments)

        return call

    for module, reads in (
        (ort_serve.rest.infer, "decode_infer"), (ort_serve.rest.without_task, "decode_infer"),
        (ort_serve.rpc.service, "read_request"),
    ):  # fmt: skip
        for name in (reads, "encode_infer"):
            monkeypatch.setattr(module, name, noting(getattr(module, name)))
    path = write_model(echo_text(ECHO_TYPES["BYTES"]), tmp_path / "echo.onnx")
    x = np.full((1, texts), "täglich", object)
    with running_server(path) as running:
        for module, address in ((triton_http, running.http), (triton_grpc, running.grpc)):
            with module.InferenceServerClient(address) as client:
                tensor = module.InferInput("x", [1, texts], "BYTES")
                tensor.set_data_from_numpy(x)
                found = client.infer("echo", [tensor]).as_numpy("y")
            assert found[0, -1].decode() == "täglich"
    assert len(threads) == 4
    assert all((name != "server") == is_long for name in threads), threads


@pytest.mark.parametrize(("numbers", "is_long"), [(8, False), (100_000, True)])
def test_classes_of_a_long_result_are_found_beside_the_event_loop(tmp_path, monkeypatch, numbers, is_long):
    threads: list[str] = []
    plain = ort_serve.inference.classified

    def noting(*arguments):
        threads.append(threading.current_thread().name)
        return plain(*arguments)

    monkeypatch.setattr(ort_serve.inference, "classified", noting)
    path = write_model(echo_text(ECHO_TYPES["FP32"]), tmp_path / "echo.onnx")
    x = np.zeros((1, numbers), np.float32)
    x[0, 5] = 3
    with running_server(path) as running:
        for module, address in ((triton_http, running.http), (triton_grpc, running.grpc)):
            with module.InferenceServerClient(address) as client:
                wanted = [module.InferRequestedOutput("y", class_count=1)]
                for _ in range(3):  # the first runs of a shape are a thread's in any case
                    found = client.infer("echo", [filled(module, "FP32", x)], outputs=wanted).as_numpy("y")
                    assert found[0, 0].decode() == "3.000000:5"
    assert len(threads) == 6
    assert all((name != "server") == is_long for name in threads), threads


def test_trace_settings_of_a_model_are_its_own(triton):
    _, client = triton
    server = values(client.get_trace_settings())
    client.update_trace_settings("doubler", {"trace_level": ["TIMESTAMPS"], "trace_rate": "7"})
    try:
        assert values(client.get_trace_settings("doubler"))["trace_rate"] == ["7"]
        assert values(client.get_trace_settings()) == server
        with pytest.raises(InferenceServerException, match="no meaning here"):
            client.update_trace_settings("doubler", {"trace_rate": "9", "trace_file": "x"})
        assert values(client.get_trace_settings("doubler"))["trace_rate"] == ["7"], "all that is named, or nothing"
    finally:
        client.update_trace_settings("doubler", {"trace_level": None, "trace_rate": None})
    assert values(client.get_trace_settings("doubler"))["trace_level"] == ["OFF"]
    for call in (client.update_trace_settings, client.get_trace_settings):
        with pytest.raises(InferenceServerException, match="there is no model 'nothing'"):
            call("nothing")


def values(settings: object) -> dict[str, list[str]]:
    """Return trace settings as plain lists."""
    if isinstance(settings, dict):
        return settings
    return {name: list(each.value) for name, each in settings.settings.items()}


def test_answers_of_a_stream_say_that_they_are_the_last(server):
    client = triton_grpc.InferenceServerClient(server.grpc)
    found = queue.Queue()
    client.start_stream(lambda result, error: found.put((result, error)))
    tensor = filled(triton_grpc, "FP32", np.ones((1, 4), np.float32))
    client.async_stream_infer("doubler", [tensor], enable_empty_final_response=True)
    result, error = found.get(timeout=30)
    client.stop_stream()
    client.close()
    assert error is None
    assert result.get_response().parameters["triton_final_response"].bool_param
