"""Malformed requests by mutation: each gets a 4xx with a sentence, none a 500, and memory stays."""

from __future__ import annotations

import json
import random
import zlib

import httpx
import numpy as np
import psutil
import pytest
from serve_fixtures import DOUBLER, ECHO_TYPES, echo_text, running_server, write_model

COUNT, EVERY = 400, 10_000
GROWTH = 64 << 20  # bytes: a leak of one body a request would be far more
MODELS = {"doubler": "x", "echo_BYTES": "x", "echo_INT8": "x", "nothing": "x"}
VALUES = (
    None, True, -1, 0, 3.5, 2**31, 2**63, 2**80, 1e308, "", "FP32", "BYTES", "x" * 100, [], {}, [[]], [[1], [1, 2]],
    {"a": 1}, [None], ["a"], [-1, 4], [2**40, 2**40], [0, 4], [1] * 70,
)  # fmt: skip


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
            answer = client.post(f"/v2/models/{model}/infer", content=body, headers=headers)
            assert answer.status_code == 200 or 400 <= answer.status_code < 500 or answer.status_code == 504, (
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
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    count = EVERY if request.config.getoption("--every-case", default=False) else COUNT
    generator = random.Random(20261124)
    with grpc.insecure_channel(server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        raw_call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for number in range(count):
            message = service_pb2.ModelInferRequest(model_name=generator.choice(list(MODELS)))
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
            wire = message.SerializeToString()
            if generator.random() < 0.3:
                place = generator.randrange(len(wire) + 1)
                wire = wire[:place] + generator.randbytes(3) + wire[place:]
            code, details = outcome(raw_call, wire)
            assert code not in ("UNKNOWN", "UNAVAILABLE", "INTERNAL"), (number, details, wire)
        assert stub.ServerLive(service_pb2.ServerLiveRequest()).live
