"""Requests that are answered without a task get what the application would have answered."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import socket
import zlib

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from serve_fixtures import DOUBLER, echo_text, running_server, write_model
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ort_serve import access_log, running
from ort_serve.rest import without_task
from ort_serve.rest.without_task import WithoutTask
from ort_serve.statistics import TalliedHistogram, Tally

TOKEN = ("Authorization: Bearer secret",)
X = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
RAW = np.arange(8, dtype=np.float32).tobytes()
BINARY = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 4], "parameters": {"binary_data_size": 32}}],
    "parameters": {"binary_data_output": True},
}
WIDE = """
<ir_version: 10, opset_import: ["" : 21]>
wide (int64[n] size) => (float[rows] y) { y = ConstantOfShape <value: tensor = float[1] v {1.5}> (size) }
"""


def request(
    model: str, body: object, *headers: str, raw: bytes = b"", version: str = "1.1", keeps: bool = False
) -> bytes:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    length = (f"Inference-Header-Content-Length: {len(text)}",) if raw else ()
    close = () if keeps else ("Connection: close",)
    lines = (f"POST /v2/models/{model}/infer HTTP/{version}", "Host: here", *length, *close, *headers)
    return "\r\n".join([*lines, f"Content-Length: {len(text + raw)}", "", ""]).encode() + text + raw


REQUESTS = {
    "json": (request("doubler", {"inputs": [X]}, *TOKEN), True),
    "id and one output": (request("doubler", {"inputs": [X], "id": "a", "outputs": [{"name": "total"}]}, *TOKEN), True),
    "binary": (request("doubler", BINARY, *TOKEN, raw=RAW), True),
    "gzip back": (request("doubler", {"inputs": [X]}, *TOKEN, "Accept-Encoding: gzip"), True),
    "HTTP/1.0": (request("doubler", {"inputs": [X]}, *TOKEN, version="1.0"), True),
    "a model that fails": (request("wide", {"inputs": [{"name": "size", "datatype": "INT64", "shape": [1], "data": [-1]}]}, *TOKEN), True),  # noqa: E501  # one case a line
    "a long answer": (request("wide", {"inputs": [{"name": "size", "datatype": "INT64", "shape": [1], "data": [100_000]}]}, *TOKEN), True),  # noqa: E501  # one case a line
    "another shape": (request("doubler", {"inputs": [{**X, "shape": [1, 3], "data": [1, 2, 3]}]}, *TOKEN), True),
    "an unknown output": (request("doubler", {"inputs": [X], "outputs": [{"name": "z"}]}, *TOKEN), True),
    "no JSON": (request("doubler", b"{", *TOKEN), False),
    "no token": (request("doubler", {"inputs": [X]}), False),
    "no model": (request("none", {"inputs": [X]}, *TOKEN), False),
    "gzip": (request("doubler", zlib.compress(json.dumps({"inputs": [X]}).encode()), *TOKEN, "Content-Encoding: deflate"), False),  # noqa: E501  # one case a line
    "a version": (request("doubler/versions/1", {"inputs": [X]}, *TOKEN), False),
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, text in (("doubler", DOUBLER), ("wide", WIDE), ("texts", echo_text("string"))):
        write_model(text, root / name / "1" / "model.onnx")
    with running_server(root, token="secret") as found:
        yield found


@pytest.fixture
def taken(monkeypatch):
    """Whether each request was answered without a task; nobody else's settings of logs are in the way."""
    if not hasattr(HttpToolsProtocol, "_start_asgi_task"):
        pytest.skip("this uvicorn begins each request within a larger method: all go through the application")
    monkeypatch.setattr(access_log, "is_wanted", lambda: False)
    found: list[bool] = []
    real = WithoutTask.answer

    def answer(self, *given):
        told = real(self, *given)
        found.append(told[0])
        return told

    monkeypatch.setattr(WithoutTask, "answer", answer)
    return found


def answered(server, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.server.http_port), timeout=30) as connection:
        connection.sendall(sent)
        found = b""
        while part := connection.recv(65536):
            found += part
    return found


def parted(answer: bytes) -> tuple[bytes, set[bytes], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *headers = head.lower().split(b"\r\n")
    return status, {line for line in headers if not line.startswith(b"date:")}, body


@pytest.mark.parametrize("case", REQUESTS)
def test_an_answer_is_the_application_s_own(server, taken, monkeypatch, case):
    sent, is_plain = REQUESTS[case]
    found = answered(server, sent)
    assert taken == [is_plain], "whether the request goes without a task"
    monkeypatch.setattr(WithoutTask, "answer", lambda *given: (False, None))
    assert parted(found) == parted(answered(server, sent))


def test_what_nobody_foresaw_is_told_by_the_application(server, taken, monkeypatch):
    def fail(*given):
        raise ZeroDivisionError

    monkeypatch.setattr(without_task, "decode_infer", fail)
    assert b" 200 " in answered(server, REQUESTS["json"][0]), "whose own reading does not fail"
    assert taken == [False]


def test_a_line_in_the_log_is_the_application_s_matter(server, taken, monkeypatch):
    monkeypatch.setattr(access_log, "is_wanted", lambda: True)
    assert b" 200 " in answered(server, REQUESTS["json"][0])
    assert taken == [False]


def test_requests_of_one_connection_are_answered_in_their_order(server, taken):
    sent = [request("doubler", {"inputs": [X], "id": str(number)}, *TOKEN, keeps=True) for number in range(19)] + [
        request("doubler", {"inputs": [X], "id": "19"}, *TOKEN)
    ]
    found = answered(server, b"".join(sent))
    assert [int(each) for each in re.findall(rb'"id":"(\d+)"', found)] == list(range(20))
    assert taken[0] is True


def test_a_request_in_pieces_goes_to_the_application(server, taken):
    sent = request("doubler", {"inputs": [X]}, *TOKEN)
    with socket.create_connection(("127.0.0.1", server.server.http_port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head, _, body = sent.partition(b"\r\n\r\n")
        connection.sendall(head.replace(b"Host: here", b"Host: here\r\nExpect: 100-continue") + b"\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 100 "), "it waits for the rest"
        connection.sendall(body)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
    assert taken == []


def test_tallies_tell_prometheus_what_each_value_would_have():
    bounds, values = (0.001, 0.01, 1.0), (0.0, 0.001, 0.0011, 0.01, 0.5, 1.0, 7.0)
    texts = []
    for tallied in (False, True):
        registry = CollectorRegistry()
        histogram = (TalliedHistogram if tallied else Histogram)("h", "h", ("m",), buckets=bounds, registry=registry)
        tally = Tally(bounds)
        for value in values:
            (tally.add if tallied else histogram.labels("a").observe)(value)
        for _ in range(2 if tallied else 0):  # the second has nothing to tell
            tally.give(histogram.labels("a"))
        texts.append([line for line in generate_latest(registry).decode().splitlines() if "_created" not in line])
    assert texts[0] == texts[1]


def test_models_rest_while_nothing_changes(monkeypatch):
    class Changing:
        changes = 0
        repository = None

    changing = Changing()
    changing.repository = changing
    collected = []
    monkeypatch.setattr(running, "_REST_S", 0)  # each turn of the loop
    monkeypatch.setattr(running.gc, "collect", lambda: collected.append(changing.changes))

    async def live():
        task = asyncio.create_task(running._keep_at_rest(changing))
        for changes in (0, 0, 1):
            changing.changes = changes
            for _ in range(3):
                await asyncio.sleep(0)
        task.cancel()

    try:
        asyncio.run(live())
        assert collected == [0, 1], "once at the start, and once for each change"
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_requests_of_the_same_json_have_each_their_own_bytes(server):
    for start in range(5):
        raw = np.arange(start, start + 8, dtype=np.float32)
        _, _, body = parted(answered(server, request("doubler", BINARY, *TOKEN, raw=raw.tobytes())))
        assert body[-40:-8] == (2 * raw).tobytes(), "y, and the sums of two rows behind it"
    for raw in (RAW[:-1], RAW + b"x"):  # the JSON is known, the bytes are wrong
        assert answered(server, request("doubler", BINARY, *TOKEN, raw=raw)).startswith(b"HTTP/1.1 400 ")
