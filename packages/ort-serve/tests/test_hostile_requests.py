"""Requests and clients that mean harm: odd shapes and texts, endless heads, slow senders and readers, full memory."""

from __future__ import annotations

import json
import re
import socket
import time
import tracemalloc
from contextlib import contextmanager, suppress
from multiprocessing import shared_memory

import httpx
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from serve_fixtures import DOUBLER, echo_text, running_server, write_model
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from ort_serve.failures import InvalidRequest
from ort_serve.protocol.datatypes import DATATYPES
from ort_serve.protocol.json_data import array_from_json
from ort_serve.rest.body import BodyBudget
from ort_serve.server_settings import Limits

INFER = "/v2/models/doubler/infer"
X = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
WIDE = """
<ir_version: 10, opset_import: ["" : 21]>
wide (int64[n] size) => (float[rows] y) { y = ConstantOfShape <value: tensor = float[1] v {1.5}> (size) }
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_model(DOUBLER, root / "doubler" / "1" / "model.onnx")
    write_model(echo_text("string"), root / "texts" / "1" / "model.onnx")
    write_model(WIDE, root / "wide" / "1" / "model.onnx")
    write_model(OUTER, root / "outer" / "1" / "model.onnx")
    limits = Limits(body_nbytes=1 << 20, json_nbytes=1 << 18, result_nbytes=1 << 25, read_s=1.0, idle_s=1.0)
    with running_server(root, limits=limits) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    with httpx.Client(base_url=f"http://{server.http}", timeout=30) as made:
        yield made


OUTER = """
<ir_version: 10, opset_import: ["" : 21]>
outer (float[n, k] a, float[k, m] b) => (float[n, m] y) { y = MatMul (a, b) }
"""


@contextmanager
def connected(server):
    with socket.create_connection(("127.0.0.1", server.server.http_port), timeout=30) as connection:
        yield connection


def everything(connection: socket.socket) -> bytes:
    """Read until the server closes; a reset is an end, too."""
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionError:
        pass
    return found


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [0, 2**47, 2**47], "data": []},
        {"shape": [2**47, 2**47], "data": []},
        {"shape": [1] * 65},
        {"shape": [-1, 4]},
        {"shape": [True, 4]},
        {"shape": [1.0, 4]},
        {"shape": [10**30, 4]},
        {"shape": "4"},
        {"data": [[1, 2], [3]]},
        {"data": [[[[1, 2, 3, 4]]], 5]},
        {"data": {"a": 1}},
        {"data": ["1", "2", "3", "4"]},
        {"data": [None, 1, 2, 3]},
        {"data": [1, 2, 3]},
        {"datatype": "FP64"},
        {"datatype": "float"},
        {"datatype": ["FP32"]},
        {"name": "z"},
        {"name": None},
        {"parameters": {"binary_data_size": 16}},
        {"parameters": {"binary_data_size": True}},
        {"parameters": {"shared_memory_region": "none", "shared_memory_byte_size": 16}},
        {"parameters": {"shared_memory_region": ["r"], "shared_memory_byte_size": 16}},
    ],
)
def test_an_input_that_cannot_be_meant_is_the_client_s_fault(client, change):
    answer = client.post(INFER, json={"inputs": [{**X, **change}]})
    assert 400 <= answer.status_code < 500, answer.text
    assert len(answer.json()["error"]) > 10


@pytest.mark.parametrize(
    "more",
    [
        {"outputs": [{"name": "nothing"}]},
        {"outputs": [{"name": "y", "parameters": {"binary_data": "no"}}]},
        {"outputs": [{"name": "y", "parameters": {"classification": -1}}]},
        {"outputs": "y"},
        {"inputs": [X, X]},
        {"id": 7},
        {"parameters": {"binary_data_output": 1}},
        {"parameters": {"priority": 99}},
        {"parameters": {"timeout": -1}},
        {"parameters": {"timeout": "1"}},
    ],
)
def test_a_request_that_cannot_be_meant_is_the_client_s_fault(client, more):
    answer = client.post(INFER, json={"inputs": [X], **more})
    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize("nests", [False, True])
def test_one_long_text_among_numbers_takes_no_memory_for_each_of_them(client, nests):
    text = "A" * 10_000
    data = [[text, 0], [1, 2]] * 1_000 if nests else [text] + [0] * 2_000
    peak = peak_of(lambda: array_from_json("x", DATATYPES["FP32"], (len(data),), data))
    assert peak < 8 << 20
    answer = client.post(INFER, json={"inputs": [{**X, "data": [text, 1, 2, 3]}]})
    assert (answer.status_code, "found others among the elements" in answer.text) == (400, True)


def peak_of(refused) -> int:
    """Return the bytes that a call held at most which refuses its request."""
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest):
            refused()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_timeout_beyond_all_clocks_is_none(client):
    answer = client.post(INFER, json={"inputs": [X], "parameters": {"timeout": 2**62}})
    assert answer.status_code == 200


def test_an_output_may_be_named_twice(client):
    found = client.post(INFER, json={"inputs": [X], "outputs": [{"name": "y"}, {"name": "y"}]}).json()
    assert [output["data"] for output in found["outputs"]] == [[2, 4, 6, 8]] * 2


def test_halves_of_surrogate_pairs_are_refused_wherever_they_stand(client):
    half = '"\\ud83d"'
    text = '{"inputs":[{"name":"x","datatype":"BYTES","shape":[1,1],"data":[HALF]}]}'.replace("HALF", half)
    assert client.post("/v2/models/texts/infer", content=text).status_code == 400
    text = '{"inputs":[{"name":HALF,"datatype":"BYTES","shape":[1,1],"data":["a"]}]}'.replace("HALF", half)
    assert client.post("/v2/models/texts/infer", content=text).status_code == 400
    whole = {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1, 2], "data": ["\U0001f600", "\0é"]}]}
    assert client.post("/v2/models/texts/infer", json=whole).json()["outputs"][0]["data"] == ["\U0001f600", "\0é"]


@pytest.mark.parametrize("digits", ["9" * 5000, "1" * 19, "٣", "-1", "+5", "0x10", ""])
def test_numbers_in_headers_and_addresses_are_bounded(client, server, digits):
    with connected(server) as connection:
        head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n"
        connection.sendall((head + f"Inference-Header-Content-Length: {digits}\r\n\r\n{{}}").encode())
        assert everything(connection).startswith(b"HTTP/1.1 400")
    assert client.get(f"/v2/models/doubler/versions/{digits or 'x'}/ready").status_code == 404


def test_json_is_bounded_before_it_is_read(client):
    answer = client.post(INFER, content=b'{"inputs": [' + b"[]," * 100_000 + b"[]]}")
    assert answer.status_code == 413
    assert "binary data" in answer.json()["error"]


def test_a_head_without_end_is_cut(server):
    with connected(server) as connection:
        with suppress(ConnectionError):
            connection.sendall(b"GET /v2 HTTP/1.1\r\nX-Endless: " + b"a" * 400_000)
        found = everything(connection)
    assert found == b"" or found.startswith(b"HTTP/1.1 431")
    with connected(server) as connection:
        with suppress(ConnectionError):
            connection.sendall(b"GET /v2 HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(40_000)))
        found = everything(connection)
    assert found == b"" or found.startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))


@pytest.mark.parametrize("begun", [b"", b"GET /v2 HTT", b"GET /v2 HTTP/1.1\r\nHost: x\r\n"])
def test_a_head_that_never_ends_in_time_is_cut(server, begun):
    begin = time.monotonic()
    with connected(server) as connection:
        connection.sendall(begun)
        assert everything(connection) == b""
    assert time.monotonic() - begin < 20


def test_trailers_without_end_are_refused(server):
    with connected(server) as connection:
        head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n".encode()
        with suppress(ConnectionError):
            connection.sendall(head + b"".join(b"T%d: y\r\n" % n for n in range(40_000)))
        found = everything(connection)
    assert found == b"" or b" 400 " in found.split(b"\r\n")[0] or b" 431 " in found.split(b"\r\n")[0]


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 2\r\nContent-Length: 3\r\n",
        b"Content-Length: 2, 3\r\n",
        b"Content-Length : 2\r\n",
        b"Transfer-Encoding: xchunked\r\n",
    ],
)
def test_bodies_of_two_lengths_are_refused(server, headers):
    with connected(server) as connection:
        body = b"{}GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
        connection.sendall(f"POST {INFER} HTTP/1.1\r\nHost: x\r\n".encode() + headers + b"\r\n" + body)
        found = everything(connection)
    assert found.startswith(b"HTTP/1.1 4")
    assert b"/smuggled" not in found


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ("Host: x\r\nInference-Header-Content-Length: 1\r\nInference-Header-Content-Length: 2\r\n", "Inference-Header"),
        ("Host: x\r\nContent-Encoding: gzip\r\ncontent-encoding: gzip\r\n", "Content-Encoding"),
        ("Host: x\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n", "Authorization"),
        ("Host: x\r\nHost: y\r\n", "Host"),
        ("", "no Host"),
        ("Host: x\r\nTransfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding"),
    ],
)
@pytest.mark.parametrize("wish", ["", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"])
def test_heads_that_may_be_read_in_two_ways_are_refused(server, headers, told, wish):
    with connected(server) as connection:
        length = "" if "Transfer" in headers else "Content-Length: 2\r\n"
        connection.sendall(f"POST {INFER} HTTP/1.1\r\n{headers}{length}{wish}\r\n{{}}".encode())
        found = everything(connection)
    assert found.startswith(b"HTTP/1.1 400 ")
    assert told in json.loads(found.rpartition(b"\r\n\r\n")[2])["error"]


def test_clients_of_http_1_0_need_no_host(server):
    with connected(server) as connection:
        connection.sendall(b"GET /v2/health/live HTTP/1.0\r\n\r\n")
        assert everything(connection).startswith(b"HTTP/1.1 200 ")


def posted(path: str, body: object) -> bytes:
    text = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text


@pytest.mark.parametrize(
    ("broken", "status"),
    [
        (b"GARBAGE\r\n\r\n", 400),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (f"POST {INFER} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".encode(), 400),
        (f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n".encode(), 400),
    ],
)
@pytest.mark.parametrize("before", [0, 1, 5])
def test_what_is_no_http_is_refused_behind_the_answers_to_requests_before_it(server, broken, status, before):
    size = {"name": "size", "datatype": "INT64", "shape": [1], "data": [40_000]}
    slow, brief = posted("/v2/models/wide/infer", {"inputs": [size]}), posted(INFER, {"inputs": [X]})
    asked = b"".join([slow, brief, brief, slow, brief][:before])
    with connected(server) as connection:
        with suppress(ConnectionError):
            connection.sendall(asked + broken)
        found = everything(connection)
    answers = re.findall(rb"HTTP/1\.1 (\d+)", found)
    assert answers == [b"200"] * before + [str(status).encode()]
    assert len(json.loads(found.rpartition(b"\r\n\r\n")[2])["error"]) > 20


def test_a_request_that_has_its_answer_gets_no_second_one(server):
    with connected(server) as connection:
        connection.sendall(b"DELETE /v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n")
        found = connection.recv(65536)
        connection.sendall(b"x\r\nzz\r\n")
        found += everything(connection)
    assert found.count(b"HTTP/1.1") == 1
    assert found.startswith(b"HTTP/1.1 405")


def test_requests_on_one_connection_are_answered_in_their_order(server):
    body = json.dumps({"inputs": [X]}).encode()
    with connected(server) as connection:
        one = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        last = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        connection.sendall(one * 20 + last)
        found = everything(connection)
    assert found.count(b"HTTP/1.1 200 OK") == 21
    assert found.endswith(b'{"live":true}')


def test_a_wish_for_another_protocol_is_passed_over(server):
    body = json.dumps({"inputs": [X]}).encode()
    wish = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
    one = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{wish}\r\n".encode() + body
    last = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with connected(server) as connection:
        for at in range(0, len(one), 37):  # in pieces, and then at once
            connection.sendall(one[at : at + 37])
        connection.sendall(one + one + last)
        found = everything(connection)
    assert found.count(b"HTTP/1.1 200 OK") == 4
    assert found.endswith(b'{"live":true}')


def test_a_server_is_no_proxy(server):
    with connected(server) as connection:
        connection.sendall(b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n")
        assert everything(connection).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("is_http", [True, False], ids=["too large", "no HTTP"])
def test_a_client_that_still_sends_reads_its_answer(server, is_http):
    nbytes = 200 << 20
    head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {nbytes}\r\n\r\n" if is_http else "no HTTP\r\n\r\n"
    with connected(server) as connection:
        connection.sendall(head.encode())
        for _ in range(64):  # more than the system keeps for a program that does not read
            connection.sendall(bytes(1 << 18))
        assert everything(connection).startswith(b"HTTP/1.1 413" if is_http else b"HTTP/1.1 400")


def test_a_client_that_does_not_read_is_cut_off(server):
    body = json.dumps({"inputs": [{"name": "size", "datatype": "INT64", "shape": [1], "data": [5_000_000]}],
                       "parameters": {"binary_data_output": True}}).encode()  # fmt: skip
    with connected(server) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        head = f"POST /v2/models/wide/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        open_ones = server.server._http.server_state.connections
        until = time.monotonic() + 30
        while not any(each.flow.write_paused for each in open_ones) and time.monotonic() < until:
            time.sleep(0.01)
        assert server.server.state.body_budget.held > 10_000_000, "what waits for a client is counted"
        while any(each.flow.write_paused for each in open_ones) and time.monotonic() < until:
            time.sleep(0.05)  # until the server loses patience
        assert time.monotonic() < until


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize(
    ("model", "inputs", "outputs", "nbytes"),
    [
        ("outer", {"a": np.zeros((5000, 0), np.float32), "b": np.zeros((0, 5000), np.float32)}, ["y"], 4 * 5000**2),
        ("wide", {"size": np.array([9 << 20])}, ["y"], 36 << 20),
        ("wide", {"size": np.array([3 << 20])}, ["y"] * 3, 36 << 20),
    ],
)
def test_a_result_that_is_beyond_the_limit_is_not_written(server, protocol, model, inputs, outputs, nbytes):
    module = tritonclient.grpc if protocol == "grpc" else tritonclient.http
    asked = []
    for name, array in inputs.items():
        asked.append(module.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)))
        asked[-1].set_data_from_numpy(array)
    with module.InferenceServerClient(getattr(server, protocol)) as client:
        with pytest.raises(InferenceServerException, match=f"the result takes {nbytes} bytes; .* at most {1 << 25}"):
            client.infer(model, asked, outputs=[module.InferRequestedOutput(name) for name in outputs])
        assert client.is_server_ready()


@pytest.mark.parametrize(
    ("output", "size", "nbytes"),
    [({"binary_data": False}, 3 << 20, 48 << 20), ({"classification": 1}, 2 << 20, (48 << 20) + 96)],
)
def test_texts_of_a_result_count_as_what_they_take(client, output, size, nbytes):
    request = {
        "inputs": [{"name": "size", "datatype": "INT64", "shape": [1], "data": [size]}],
        "outputs": [{"name": "y", "parameters": output}],
    }
    answer = client.post("/v2/models/wide/infer", json=request)
    assert (answer.status_code, f"takes {nbytes} bytes" in answer.json()["error"]) == (413, True), answer.text


def test_bodies_share_a_budget():
    budget = BodyBudget(1 << 20)
    budget.take(1 << 20)
    with pytest.raises(Exception, match="beyond the 1048576") as refusal:
        budget.take(1)
    assert refusal.value.status == 503
    assert refusal.value.retry_after_s


@pytest.mark.parametrize("output", [{"binary_data": True}, {"binary_data": False}, {"classification": 2}])
@pytest.mark.parametrize("headers", [{}, {"Expect": "100-continue"}])
def test_a_long_result_waits_for_memory_that_others_hold(server, client, monkeypatch, output, headers):
    request = {
        "inputs": [{"name": "size", "datatype": "INT64", "shape": [1], "data": [100_000]}],
        "outputs": [{"name": "y", "parameters": output}],
    }
    budget = server.server.state.body_budget
    with monkeypatch.context() as changed:
        changed.setattr(budget, "nbytes", 100_000)
        answer = client.post("/v2/models/wide/infer", json=request, headers=headers)
    assert (answer.status_code, answer.headers.get("retry-after")) == (503, "1"), answer.text
    answer = client.post("/v2/models/wide/infer", json=request, headers=headers)
    assert answer.status_code == 200
    assert budget.held == 0


def test_the_budget_is_given_back_whatever_happens(server, client):
    state = server.server.state
    client.post(INFER, content=b"x" * 900_000)
    client.post(INFER, content=b"x" * 900_000, headers={"Content-Encoding": "gzip"})
    client.post(INFER, content=b"x" * 100_000)
    with connected(server) as connection:  # it leaves in the middle
        connection.sendall(f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n".encode() + b"x" * 1000)
        until = time.monotonic() + 20
        while not state.body_budget.held and time.monotonic() < until:
            time.sleep(0.01)
    while state.body_budget.held and time.monotonic() < until:
        time.sleep(0.01)
    assert state.body_budget.held == 0


def test_shared_memory_is_not_offered_to_other_machines(tmp_path):
    path = write_model(DOUBLER, tmp_path / "doubler.onnx")
    for settings, status in (
        ({"host": "0.0.0.0"}, 403),
        ({"host": "0.0.0.0", "shared_memory": True}, 200),
        ({"shared_memory": False}, 403),
        ({"shares_ports": True}, 403),
    ):
        memory = shared_memory.SharedMemory(create=True, size=64)
        try:
            with running_server(path, grpc_port=None, **settings) as running:
                asked = f"http://127.0.0.1:{running.server.http_port}/v2/systemsharedmemory/region/r/register"
                assert httpx.post(asked, json={"key": memory.name, "byte_size": 64}).status_code == status
        finally:
            memory.close()
            memory.unlink()


@pytest.mark.parametrize("change", [{"byte_size": True}, {"offset": False}, {"byte_size": 64.0}, {"offset": "0"}])
def test_sizes_of_shared_memory_are_integers(client, change):
    memory = shared_memory.SharedMemory(create=True, size=64)
    try:
        body = {"key": memory.name, "byte_size": 64, **change}
        answer = client.post("/v2/systemsharedmemory/region/r/register", json=body)
        assert answer.status_code == 400, answer.text
    finally:
        memory.close()
        memory.unlink()


@pytest.mark.parametrize("key", ["../etc/passwd", "/../x", "a/b", ".", "", "/", "a\0b", "x" * 5000, "\ud83d"])
def test_a_key_of_shared_memory_is_one_name(client, key):
    asked = "/v2/systemsharedmemory/region/r/register"
    answer = client.post(asked, content=json.dumps({"key": key, "byte_size": 4}))
    assert answer.status_code == 400, answer.text


def test_memory_must_be_there_and_large_enough(client):
    asked = "/v2/systemsharedmemory/region/r/register"
    memory = shared_memory.SharedMemory(create=True, size=64)
    try:
        for key, nbytes, told in (("/ort-serve-absent", 4, "cannot be opened"), (memory.name, 1 << 20, "smaller")):
            answer = client.post(asked, json={"key": key, "byte_size": nbytes})
            assert (answer.status_code, told in answer.text) == (400, True), answer.text
    finally:
        memory.close()
        memory.unlink()


def test_memory_that_is_cut_short_is_the_client_s_fault(client, tmp_path):
    import os

    posix = pytest.importorskip("_posixshmem")
    name = f"/ort-serve-test-{os.getpid()}"
    descriptor = posix.shm_open(name, os.O_CREAT | os.O_RDWR, mode=0o600)
    try:
        os.ftruncate(descriptor, 8192)
        asked = "/v2/systemsharedmemory/region/cut"
        assert client.post(f"{asked}/register", json={"key": name, "byte_size": 8192}).status_code == 200
        os.ftruncate(descriptor, 4)
        shared = {"shared_memory_region": "cut", "shared_memory_byte_size": 16}
        x = {"name": "x", "datatype": "FP32", "shape": [1, 4]}
        for body in (
            {"inputs": [{**x, "parameters": shared}]},
            {"inputs": [X], "outputs": [{"name": "y", "parameters": shared}]},
        ):
            assert client.post(INFER, json=body).status_code == 400
        assert client.post(f"{asked}/unregister").status_code == 200
    finally:
        os.close(descriptor)
        posix.shm_unlink(name)


def test_numbers_are_written_as_short_as_their_type_allows(client):
    found = client.post(INFER, json={"inputs": [{**X, "data": [0.05, 1e30, -1e38, 0.1]}]}).text
    assert '"data":[0.1,2e30,' in found.replace("e+", "e")
    assert np.float32(0.2) == np.float32(json.loads(found)["outputs"][0]["data"][3])
