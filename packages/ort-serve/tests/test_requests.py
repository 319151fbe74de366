"""Requests over HTTP that are no client's: JSON forms, broken bodies, limits, tokens."""

from __future__ import annotations

import json
import re
import socket
import struct
import zlib

import httpx
import numpy as np
import pytest
from serve_fixtures import DOUBLER, ECHO_TYPES, echo_text, running_server, write_model

from ort_serve.server_settings import Limits

X = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_model(DOUBLER, root / "doubler" / "1" / "model.onnx")
    for name in ("BYTES", "INT32", "UINT64", "BOOL", "FP16", "BF16", "UINT8"):
        write_model(echo_text(ECHO_TYPES[name]), root / f"echo_{name}" / "1" / "model.onnx")
    with running_server(root, limits=Limits(body_nbytes=1 << 20, read_s=2.0)) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    with httpx.Client(base_url=f"http://{server.http}", timeout=30) as made:
        yield made


def infer(client, body: object, model: str = "doubler", headers: dict | None = None) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.post(f"/v2/models/{model}/infer", content=content, headers=headers)


def test_nested_and_flat_lists_are_one_tensor(client):
    flat = infer(client, {"inputs": [X], "id": "a"}).json()
    nested = infer(client, {"inputs": [{**X, "data": [[1, 2, 3, 4]]}], "id": "a"}).json()
    assert flat == nested == {
        "model_name": "doubler",
        "model_version": "1",
        "id": "a",
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [1, 4], "data": [2.0, 4.0, 6.0, 8.0]},
            {"name": "total", "datatype": "FP32", "shape": [1], "data": [10.0]},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("UINT64", [2**64 - 1, 1]),
        ("INT32", [-(2**31), 7]),
        ("INT32", [1.0, 2.0]),
        ("BOOL", [True, False]),
        ("BYTES", ["", "ł"]),
        ("FP16", [0.5, -2]),
        ("BF16", [0.5, -2]),
        ("UINT8", [0, 255]),
    ],
)
def test_json_elements_keep_their_values(client, name, data):
    answer = infer(client, {"inputs": [{"name": "x", "datatype": name, "shape": [1, 2], "data": data}]}, f"echo_{name}")
    assert answer.status_code == 200, answer.text
    assert answer.json()["outputs"][0]["data"] == data


def test_nan_and_infinity_pass_as_python_writes_them(client):
    answer = infer(
        client, b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [NaN, 1, -Infinity, 2]}]}'
    )
    assert answer.status_code == 200, answer.text
    found = json.loads(answer.text)["outputs"][0]["data"]
    np.testing.assert_array_equal(found, [np.nan, 2, -np.inf, 4])


def with_input(**changes: object) -> dict:
    return {"inputs": [{**X, **changes}]}


BROKEN = {
    "no JSON": (b"{", "not JSON"),
    "no object": (b"[1]", "must be a JSON object"),
    "not UTF-8": (b'{"id": "\xff"}', "not JSON"),
    "deep": (b'{"a": ' + b"[" * 20000, "not JSON"),
    "deep data": (
        json.dumps(with_input(data=0)).encode().replace(b'"data": 0', b'"data": ' + b"[" * 900 + b"]" * 900),
        "",
    ),
    "no inputs": ({}, "input 'x' is missing"),
    "inputs no list": ({"inputs": 3}, "must be a list"),
    "input no object": ({"inputs": [3]}, "must be an object"),
    "no name": ({"inputs": [{"datatype": "FP32", "shape": [1], "data": [1]}]}, "must be a string"),
    "unknown name": ({"inputs": [X, {**X, "name": "z"}]}, "has no input 'z'"),
    "twice": ({"inputs": [X, X]}, "given twice"),
    "unknown type": (with_input(datatype="FP128"), "not one of the protocol's"),
    "type no text": (with_input(datatype=[]), "not one of the protocol's"),
    "other type": (with_input(datatype="INT32"), "the model takes FP32"),
    "other rank": (with_input(shape=[4]), "takes shape"),
    "other size": (with_input(shape=[1, 3], data=[1, 2, 3]), "takes shape"),
    "negative size": (with_input(shape=[-1, 4]), "where a size is expected"),
    "fraction of a size": (with_input(shape=[1.0, 4]), "where a size is expected"),
    "true as a size": (with_input(shape=[True, 4]), "where a size is expected"),
    "huge size": (with_input(shape=[2**62, 4]), "where a size is expected"),
    "huge shape": (with_input(shape=[2**40, 2**40]), "shape"),
    "shape no list": (with_input(shape="4"), "must be a list of sizes"),
    "too few": (with_input(data=[1, 2]), "2 elements"),
    "too many": (with_input(data=[1] * 5), "5 elements"),
    "ragged": (with_input(data=[[1, 2], [3]]), "not one tensor"),
    "text for a number": (with_input(data=["1", "2", "3", "4"]), "takes numbers"),
    "null": (with_input(data=[None, 1, 2, 3]), "takes numbers"),
    "object": (with_input(data=[{}, 1, 2, 3]), "takes numbers"),
    "data no list": (with_input(data="AAAA"), "must be a list"),
    "no data": ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4]}]}, "has neither data"),
    "unknown output": ({"inputs": [X], "outputs": [{"name": "q"}]}, "has no output 'q'"),
    "output no object": ({"inputs": [X], "outputs": ["y"]}, "an object with a name"),
    "bad classes": (
        {"inputs": [X], "outputs": [{"name": "y", "parameters": {"classification": -1}}]},
        "must be a count",
    ),
    "bad id": ({"inputs": [X], "id": 3}, "id must be a string"),
    "bad priority": ({"inputs": [X], "parameters": {"priority": -1}}, "priority"),
    "high priority": ({"inputs": [X], "parameters": {"priority": 9}}, "has 1 levels"),
    "bad timeout": ({"inputs": [X], "parameters": {"timeout": "soon"}}, "timeout"),
    "parameters no object": ({"inputs": [X], "parameters": []}, "must be an object"),
    "no region": (
        with_input(parameters={"shared_memory_region": "r", "shared_memory_byte_size": 16}),
        "not registered",
    ),
    "bad region": (with_input(parameters={"shared_memory_region": 3}), "shared memory needs"),
    "bytes missing": (with_input(parameters={"binary_data_size": 16}), "bytes left"),
    "negative bytes": (with_input(parameters={"binary_data_size": -1}), "must be a count of bytes"),
}


@pytest.mark.parametrize("case", list(BROKEN))
def test_a_broken_request_gets_a_sentence(client, case):
    body, expected = BROKEN[case]
    answer = infer(client, body)
    assert 400 <= answer.status_code < 500, answer.text
    assert expected in answer.json()["error"]
    assert infer(client, {"inputs": [X]}).status_code == 200  # and the server goes on


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("INT32", [1.5, 2], "takes integers"),
        ("INT32", [2**31, 0], "beyond INT32's"),
        ("INT32", [2**80, 0], "beyond"),
        ("UINT8", [-1, 0], "beyond UINT8's"),
        ("UINT8", [256, 0], "beyond UINT8's"),
        ("BOOL", [0.5, 1], "takes booleans"),
        ("BYTES", [1, 2], "takes strings"),
    ],
)
def test_an_element_that_does_not_fit_is_refused(client, name, data, expected):
    answer = infer(client, {"inputs": [{"name": "x", "datatype": name, "shape": [1, 2], "data": data}]}, f"echo_{name}")
    assert answer.status_code == 400
    assert expected in answer.json()["error"]


def binary(raw: bytes, declared: int | None = None, name: str = "FP32", shape: object = (1, 4)) -> tuple[bytes, dict]:
    tensor = {"name": "x", "datatype": name, "shape": list(shape),
              "parameters": {"binary_data_size": len(raw) if declared is None else declared}}  # fmt: skip
    header = json.dumps({"inputs": [tensor]}).encode()
    return header + raw, {"Inference-Header-Content-Length": str(len(header))}


@pytest.mark.parametrize(
    ("request_", "model", "expected"),
    [
        (binary(b"\0" * 15), "doubler", "takes 16 bytes; found 15"),
        (binary(b"\0" * 16, declared=8), "doubler", "takes 16 bytes; found 8"),
        (binary(b"\0" * 16, declared=99), "doubler", "16 bytes left"),
        (binary(struct.pack("<I", 99) + b"abc", name="BYTES", shape=(1, 1)), "echo_BYTES", "says 99 bytes, 3 are left"),
        (binary(b"\1\0", name="BYTES", shape=(1, 1)), "echo_BYTES", "2 bytes are left"),
        (binary(struct.pack("<I", 1) + b"\xff", name="BYTES", shape=(1, 1)), "echo_BYTES", "not UTF-8"),
        (binary(struct.pack("<II", 0, 0), name="BYTES", shape=(1, 1)), "echo_BYTES", "more than the 1 elements"),
        (binary(struct.pack("<I", 0), name="BYTES", shape=(1, 2)), "echo_BYTES", "1 elements"),
    ],
)  # fmt: skip
def test_broken_binary_tensors_get_a_sentence(client, request_, model, expected):
    body, headers = request_
    answer = infer(client, body, model, headers)
    assert answer.status_code == 400
    assert expected in answer.json()["error"]


def test_bytes_that_belong_to_nothing_are_refused(client):
    body, headers = binary(b"\0" * 16)
    answer = infer(client, body + b"\0", headers=headers)
    assert answer.status_code == 400
    assert "belong to no input" in answer.json()["error"]
    assert "body has" in infer(client, body, headers={"Inference-Header-Content-Length": "9999"}).json()["error"]


def test_a_byte_that_is_no_boolean_is_true(client):
    body, headers = binary(b"\0\2", name="BOOL", shape=(1, 2))
    assert infer(client, body, "echo_BOOL", headers).json()["outputs"][0]["data"] == [False, True]


def test_bodies_are_limited_before_they_are_read(client):
    assert infer(client, b"x" * ((1 << 20) + 1)).status_code == 413
    bomb = zlib.compress(b"\0" * (64 << 20), 9)
    answer = infer(client, bomb, headers={"Content-Encoding": "deflate"})
    assert answer.status_code == 413
    assert "decompressed" in answer.json()["error"]
    for encoding, content in (("gzip", b"no gzip"), ("br", b"x"), ("deflate", zlib.compress(b"{}" * 1000)[:9])):
        assert infer(client, content, headers={"Content-Encoding": encoding}).status_code == 400


def test_a_body_that_never_comes_is_given_up(server):
    with socket.create_connection(("127.0.0.1", server.server.http_port), timeout=30) as connection:
        connection.sendall(b"POST /v2/models/doubler/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert b" 408 " in connection.recv(4096).split(b"\r\n")[0]


def test_unknown_addresses_and_methods_are_json(client):
    assert client.get("/v3").status_code == 404
    assert "error" in client.get("/v3").json()
    answer = client.get("/v2/models/doubler/infer")
    assert answer.status_code == 405
    assert "does not take GET" in answer.json()["error"]
    assert client.get("/v2/models/nothing").status_code == 404
    assert "models are: doubler" in client.get("/v2/models/nothing").json()["error"]
    assert client.get("/v2/models/doubler/versions/7").status_code == 404
    assert client.post("/v2/repository/models/doubler/unload").status_code == 403
    assert client.post("/v2/repository/models/..%2Fetc/load").status_code in (403, 404)


def test_explanation_and_metrics_are_given(client):
    infer(client, {"inputs": [X]})
    explained = client.get("/v2/models/doubler/explain").json()
    assert explained["providers"] == ["CPUExecutionProvider"]
    assert "rows" in explained["batching"]["reason"]
    text = client.get("/metrics").text
    assert 'ort_requests_total{model="doubler",outcome="success",version="1"}' in text
    assert "ort_queue_seconds_bucket" in text
    nbytes = re.search(r'ort_model_bytes\{model="doubler",version="1"\} (\S+)', text)
    assert float(nbytes[1]) > 100


def test_the_page_is_one_file(client):
    answer = client.get("/")
    assert answer.headers["content-type"].startswith("text/html")
    assert "http://" not in answer.text
    assert "https://" not in answer.text


def test_requests_need_the_token_where_there_is_one(tmp_path):
    path = write_model(DOUBLER, tmp_path / "doubler.onnx")
    with running_server(path, token="secret") as running, httpx.Client(base_url=f"http://{running.http}") as client:
        assert infer(client, {"inputs": [X]}).status_code == 401
        assert infer(client, {"inputs": [X]}, headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert infer(client, {"inputs": [X]}, headers={"Authorization": "Bearer secret"}).status_code == 200
        assert client.get("/v2/health/live").status_code == 200
        assert client.get("/metrics").status_code == 401
        assert client.get("/").status_code == 200  # it holds nothing, and asks for the token
        from tritonclient.grpc import InferenceServerClient, InferInput
        from tritonclient.utils import InferenceServerException

        with InferenceServerClient(running.grpc) as rpc:
            tensor = InferInput("x", [1, 4], "FP32")
            tensor.set_data_from_numpy(np.ones((1, 4), np.float32))
            assert rpc.is_server_live()
            with pytest.raises(InferenceServerException, match="needs"):
                rpc.infer("doubler", [tensor])
            rpc.infer("doubler", [tensor], headers={"authorization": "Bearer secret"})
