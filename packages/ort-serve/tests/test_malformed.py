"""Malformed requests by mutation: each gets a 4xx with a sentence, none a 500 or silence, and memory stays.

A few hundred of each kind; 10,000 with ``--every-case``, as ``nox -s serving`` has them.
"""

from __future__ import annotations

import json
import random
import socket
import zlib

import httpx
import numpy as np
import psutil
import pytest
from serve_fixtures import DOUBLER, ECHO_TYPES, echo_text, running_server, write_model

from ort_serve.rpc.messages import MESSAGE_CLASSES

COUNT, EVERY = 400, 10_000
GROWTH = 64 << 20  # bytes: a leak of one body a request would be far more
MODELS = {"doubler": "x", "echo_BYTES": "x", "echo_INT8": "x", "nothing": "x"}
VALUES = (
    None, True, -1, 0, 3.5, 2**31, 2**63, 2**80, 1e308, "", "FP32", "BYTES", "x" * 100, [], {}, [[]], [[1], [1, 2]],
    {"a": 1}, [None], ["a"], [-1, 4], [2**40, 2**40], [0, 4], [1] * 70, float("nan"), float("-inf"),
    [float("nan")] * 4, [[[[[[[[1]]]]]]]], "\ud800", "\0", "../..", 10**400,
)  # fmt: skip
ADDRESSES = (
    "/v2/logging", "/v2/trace/setting", "/v2/models/doubler/trace/setting", "/v2/repository/index",
    "/v2/repository/models/doubler/load", "/v2/systemsharedmemory/region/x/register", "/v2/models/doubler/generate",
    "/v2/models/%00/infer", "/v2/models/doubler/versions/%2e%2e/infer", "/v2/models/doubler/versions/1e9/infer",
)  # fmt: skip
PIECES_S = 10.0  # for the answer to a request that is cut off


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_model(DOUBLER, root / "doubler" / "1" / "model.onnx")
    for name in ("BYTES", "INT8"):
        write_model(echo_text(ECHO_TYPES[name]), root / f"echo_{name}" / "1" / "model.onnx")
    with running_server(root) as running:
        yield running


def sound(generator: random.Random) -> tuple[dict, bytes]:
    """Return a request that is right, and the bytes behind it."""
    parameters = {"binary_data_size": 16} if generator.random() < 0.5 else {}
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "parameters": parameters}
    if not parameters:
        tensor["data"] = [1.0, 2.0, 3.0, 4.0]
    outputs = [{"name": "y", "parameters": {"binary_data": True, "classification": 1}}]
    request = {"id": "1", "parameters": {"priority": 0, "timeout": 10}, "inputs": [tensor], "outputs": outputs}
    return request, np.ones(4, np.float32).tobytes() if parameters else b""


def change(generator: random.Random, value: object) -> object:
    """Return a value with one part replaced, removed or repeated."""
    if isinstance(value, dict) and value and generator.random() < 0.85:
        name = generator.choice(list(value))
        changed = dict(value)
        kind = generator.random()
        if kind < 0.15:
            del changed[name]
        elif kind < 0.25:
            changed[name + "s"] = changed.pop(name)
        else:
            changed[name] = change(generator, value[name])
        return changed
    if isinstance(value, list) and value and generator.random() < 0.8:
        place = generator.randrange(len(value))
        changed = list(value)
        changed[place : place + 1] = generator.choice(([], [change(generator, value[place])], [value[place]] * 2))
        return changed
    return generator.choice(VALUES)


def malformed(generator: random.Random) -> tuple[str, bytes, dict[str, str]]:
    request, behind = sound(generator)
    for _ in range(generator.randint(1, 3)):
        request = change(generator, request)
    text = json.dumps(request).encode()
    if generator.random() < 0.1:  # a name twice, which json.dumps does not write
        text = text.replace(b"{", b'{"name": "x", "inputs": [], "shape": [4], ', generator.randint(1, 3))
    if generator.random() < 0.03:  # lists in lists where numbers stand
        depth = generator.choice((10, 500, 900, 20_000))
        text = text.replace(b"1.0", b"[" * depth + b"1" + b"]" * depth, 1)
    headers = {"Inference-Header-Content-Length": str(len(text))} if behind else {}
    body = text + behind
    kind = generator.random()
    if kind < 0.1:
        body = body[: generator.randrange(len(body) + 1)]
    elif kind < 0.2:
        place = generator.randrange(len(body) + 1)
        body = body[:place] + generator.randbytes(generator.randint(1, 8)) + body[place:]
    elif kind < 0.25:
        headers["Inference-Header-Content-Length"] = generator.choice(("-1", "x", "99999", "0", "5"))
    elif kind < 0.3:
        headers["Content-Encoding"] = generator.choice(("gzip", "deflate", "br"))
        body = zlib.compress(body)[: generator.randrange(40)] if generator.random() < 0.5 else body
    elif kind < 0.33:
        body = b"[" * generator.choice((100, 5000, 100_000))
    return generator.choice(list(MODELS)), body, headers


def test_malformed_requests_get_a_sentence_over_http(server, request):
    count = EVERY if request.config.getoption("--every-case", default=False) else COUNT
    generator = random.Random(20261123)
    process = psutil.Process()
    refused = 0
    with httpx.Client(base_url=f"http://{server.http}", timeout=60) as client:
        for number in range(count):
            model, body, headers = malformed(generator)
            is_other = generator.random() < 0.1
            address = generator.choice(ADDRESSES) if is_other else f"/v2/models/{model}/infer"
            answer = client.post(address, content=body, headers=headers)
            allowed = (200, 501, 504)  # 501: a setting without a meaning here; 504: the request's own timeout
            assert answer.status_code in allowed or 400 <= answer.status_code < 500, (
                number, body[:500], headers, answer.text,
            )  # fmt: skip
            if answer.status_code != 200:
                refused += 1
                assert len(answer.json()["error"]) > 10, (number, answer.text)
            if number == count // 4:
                before = process.memory_info().rss
        assert client.get("/v2/health/live").status_code == 200
    assert refused > count // 2
    assert process.memory_info().rss - before < GROWTH


def test_requests_of_a_wrong_length_get_an_answer_or_an_end(server, request):
    count = EVERY // 10 if request.config.getoption("--every-case", default=False) else COUNT // 10
    generator = random.Random(20261125)
    host, port = server.http.split(":")
    for number in range(count):
        model, body, headers = malformed(generator)
        said = generator.choice((len(body) + 1, len(body) * 1000, 2**40, 2**64, -1, 0, len(body) // 2))
        lines = [f"POST /v2/models/{model}/infer HTTP/1.1", "Host: x", f"Content-Length: {said}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        head = "\r\n".join([*lines, "", ""]).encode()
        with socket.create_connection((host, int(port)), timeout=PIECES_S) as connection:
            whole = head + body
            connection.sendall(whole if generator.random() < 0.7 else whole[: generator.randrange(len(whole))])
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            try:
                while part := connection.recv(1 << 16):
                    answer += part
            except ConnectionResetError:
                continue  # it closed while bytes were left to read
        status = answer.partition(b" ")[2][:3]
        assert not answer or status == b"200" or status[:1] == b"4", (number, whole[:300], answer)
    assert httpx.get(f"http://{server.http}/v2/health/live").status_code == 200


def outcome(call, wire: bytes) -> tuple[str, str]:
    """Return a call's status and what it says."""
    import grpc

    try:
        call(wire)
    except grpc.RpcError as error:
        return error.code().name, error.details()
    return "OK", ""


def test_malformed_requests_get_a_status_over_grpc(server, request):
    import grpc

    count = EVERY if request.config.getoption("--every-case", default=False) else COUNT
    generator = random.Random(20261124)
    process = psutil.Process()
    with grpc.insecure_channel(server.grpc) as channel:
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        raw_call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for number in range(count):
            message = MESSAGE_CLASSES.get("ModelInferRequest")(model_name=generator.choice(list(MODELS)))
            name = generator.choice(("FP32", "BYTES", "INT8", "", "FP16", "?"))
            shape = generator.choice(([1, 4], [], [0, 4], [-1], [2**60, 2**60], [1] * 99))
            tensor = message.inputs.add(name=generator.choice(("x", "", "z")), datatype=name, shape=shape)
            if generator.random() < 0.5:
                message.raw_input_contents.append(generator.randbytes(generator.choice((0, 3, 16))))
            else:
                tensor.contents.fp32_contents.extend([1.0] * generator.choice((0, 4, 5)))
            if generator.random() < 0.3:
                tensor.parameters["shared_memory_region"].string_param = "none"
            if generator.random() < 0.2:
                message.outputs.add(name="y").parameters["classification"].int64_param = generator.choice((-1, 2**40))
            if generator.random() < 0.1:
                message.inputs.append(tensor)  # a name twice
            if generator.random() < 0.2:
                message.parameters[generator.choice(("timeout", "priority"))].int64_param = generator.choice(
                    (-1, 2**62)
                )
            wire = message.SerializeToString()
            if generator.random() < 0.2:
                wire = wire[: generator.randrange(len(wire) + 1)]
            if generator.random() < 0.3:
                place = generator.randrange(len(wire) + 1)
                wire = wire[:place] + generator.randbytes(3) + wire[place:]
            code, details = outcome(raw_call, wire)
            assert code not in ("UNKNOWN", "UNAVAILABLE", "INTERNAL"), (number, details, wire)
            assert code == "OK" or len(details) > 10, (number, code, details)
            if number == count // 4:
                before = process.memory_info().rss
        assert live(b"")
    assert process.memory_info().rss - before < GROWTH
