"""OpenTelemetry's spans, and the access log."""

from __future__ import annotations

import asyncio
import json
import logging
import time

import httpx
import numpy as np
import pytest
from serve_fixtures import DOUBLER, running_server, write_model
from starlette.applications import Starlette
from starlette.routing import Mount
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from ort_serve.asgi import asgi_app
from ort_serve.failures import Cancelled
from ort_serve.scheduling.job import Job
from ort_serve.server_settings import ServerSettings
from ort_serve.statistics import Metrics, ModelStatistics
from ort_serve.tracing import Tracing

X = {"name": "x", "datatype": "FP32", "shape": [2, 4], "data": [1] * 8}
REGION = {"shared_memory_region": "nowhere", "shared_memory_byte_size": 8}
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
def spans():
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter, Tracing(provider)


def asked_by_grpc(server, columns: int, metadata: dict[str, str]):
    with InferenceServerClient(server.grpc) as client:
        tensor = InferInput("x", [2, columns], "FP32")
        tensor.set_data_from_numpy(np.ones((2, columns), np.float32))
        return client.infer("doubler", [tensor], headers=metadata)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_request_s_spans_hang_below_its_traceparent(tmp_path, spans, protocol):
    exporter, tracing = spans
    path = write_model(DOUBLER, tmp_path / "doubler.onnx")
    with running_server(path, tracing=tracing) as running:
        if protocol == "http":
            asked = f"http://{running.http}/v2/models/doubler/infer"
            httpx.post(asked, json={"inputs": [X]}, headers={"traceparent": TRACEPARENT}).raise_for_status()
        else:
            asked_by_grpc(running, 4, {"traceparent": TRACEPARENT})
    queue, run, request = exporter.get_finished_spans()
    assert (queue.name, run.name, request.name) == ("queue", "run", "infer doubler")
    assert format(request.context.trace_id, "032x") == TRACE
    assert format(request.parent.span_id, "016x") == PARENT
    assert queue.parent.span_id == run.parent.span_id == request.context.span_id
    assert request.start_time <= queue.start_time + 1_000_000
    assert queue.start_time <= queue.end_time == run.start_time <= run.end_time <= request.end_time + 1_000_000
    assert run.attributes["ort.batch.rows"] == 2
    assert dict(request.attributes) == {
        "ort.model": "doubler", "network.protocol.name": protocol, "ort.model.version": "1"
    }  # fmt: skip
    assert request.status.is_ok or request.status.status_code.name == "UNSET"


def test_spans_keep_their_lengths_when_the_clock_is_set(tmp_path, spans, monkeypatch):
    exporter, tracing = spans
    path = write_model(DOUBLER, tmp_path / "doubler.onnx")
    with running_server(path, tracing=tracing) as running:
        hands = iter(range(10**18, 0, -(10**15)))  # each look at the clock finds it eleven days earlier
        monkeypatch.setattr(time, "time_ns", lambda: next(hands))
        begun = time.monotonic_ns()
        httpx.post(f"http://{running.http}/v2/models/doubler/infer", json={"inputs": [X]}).raise_for_status()
        asked_by_grpc(running, 4, {})
        lasted = time.monotonic_ns() - begun
    for span in exporter.get_finished_spans():
        assert 0 <= span.end_time - span.start_time <= lasted, span.name


def test_a_span_says_what_went_wrong(tmp_path, spans):
    exporter, tracing = spans
    path = write_model(DOUBLER, tmp_path / "doubler.onnx")
    with running_server(path, tracing=tracing) as running:
        assert httpx.post(f"http://{running.http}/v2/models/doubler/infer", content=b"{").status_code == 400
        with pytest.raises(InferenceServerException):
            asked_by_grpc(running, 5, {})
        assert httpx.get(f"http://{running.http}/v2/health/live").status_code == 200
    broken, unfit = exporter.get_finished_spans()
    assert (broken.status.status_code.name, broken.attributes["error.type"]) == ("ERROR", "invalid")
    assert "not JSON" in broken.status.description
    assert "takes shape" in unfit.status.description


def test_the_access_log_has_one_line_of_json_for_every_request(tmp_path, caplog):
    path = write_model(DOUBLER, tmp_path / "doubler.onnx")
    with caplog.at_level(logging.INFO, "ort_serve.access"), running_server(path) as running:
        httpx.post(f"http://{running.http}/v2/models/doubler/infer", json={"inputs": [X]})
        httpx.get(f"http://{running.http}/v2/models/a%0Ab%22c")
        asked_by_grpc(running, 4, {})
        with pytest.raises(InferenceServerException):
            asked_by_grpc(running, 5, {})
    lines = [json.loads(each.getMessage()) for each in caplog.records if each.name == "ort_serve.access"]
    rpc = "/inference.GRPCInferenceService/ModelInfer"
    assert [(line["protocol"], line["path"], line["status"]) for line in lines] == [
        ("http", "/v2/models/doubler/infer", 200),
        ("http", "/v2/models/a%0Ab%22c", 404),
        ("grpc", rpc, "OK"),
        ("grpc", rpc, "INVALID_ARGUMENT"),
    ]
    assert all(line["ms"] > 0 and line["client"] and line["time"] for line in lines)


def test_other_servers_may_hold_the_application(tmp_path):
    write_model(DOUBLER, tmp_path / "doubler" / "1" / "model.onnx")
    app = asgi_app(tmp_path)

    async def ask() -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://models") as client:
            answers = [await client.post("/v2/models/doubler/infer", json={"inputs": [X]}) for _ in range(3)]
            assert answers[-1].json()["outputs"][1]["data"] == [4.0, 4.0]
            answers.append(await client.get("/v2/models/none"))
            answers.append(
                await client.post("/v2/systemsharedmemory/region/r/register", json={"key": "k", "byte_size": 4})
            )
        await app.close()
        return [answer.status_code for answer in answers]

    assert asyncio.run(ask()) == [200, 200, 200, 404, 403]


def test_the_application_begins_and_ends_with_its_server(tmp_path):
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    told: list[str] = []

    async def receive():
        return messages.pop(0)

    async def send(message):
        told.append(message["type"])

    path = write_model(DOUBLER, tmp_path / "doubler.onnx")
    asyncio.run(asgi_app(path)({"type": "lifespan"}, receive, send))
    assert told == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_all_addresses_are_there_where_the_application_is_mounted_in_another(tmp_path):
    write_model(DOUBLER, tmp_path / "doubler" / "1" / "model.onnx")
    app = asgi_app(tmp_path, ServerSettings(token="secret", shared_memory=False))
    whole = Starlette(routes=[Mount("/ml/models", app=app)])
    bearer = {"Authorization": "Bearer secret"}
    body = {"inputs": [X]}

    async def ask() -> None:
        transport = httpx.ASGITransport(whole)
        async with httpx.AsyncClient(transport=transport, base_url="http://server/ml/models") as client:
            assert (await client.get("/v2/health/ready")).status_code == 200, "open, as without a prefix"
            assert (await client.get("/")).status_code == 200
            assert (await client.post("/v2/models/doubler/infer", json=body)).status_code == 401
            answer = await client.post("/v2/models/doubler/infer", json=body, headers=bearer)
            assert answer.status_code == 200, answer.text
            assert (await client.get("/v2/cudasharedmemory/status", headers=bearer)).json() == []
        await app.close()

    asyncio.run(ask())


def test_each_request_is_counted_once_as_what_its_client_was_told(tmp_path):
    path = write_model(DOUBLER, tmp_path / "doubler.onnx")
    whole = {"inputs": [X]}
    odd = [
        {"inputs": [{**X, "shape": [4, 2]}]},
        {"inputs": [X], "outputs": [{"name": "z"}]},
        {"inputs": [X], "outputs": [{"name": "y", "parameters": REGION}]},
    ]
    told: list[int] = []
    with running_server(path) as running:
        for headers in ({}, {"content-encoding": "identity", "expect": ""}):  # by a call alone, and by a task
            for body in (whole, *odd, whole, *odd):
                asked = f"http://{running.http}/v2/models/doubler/infer"
                told.append(httpx.post(asked, json=body, headers=headers).status_code)
        for columns in (4, 5, 4):
            try:
                asked_by_grpc(running, columns, {})
                told.append(200)
            except InferenceServerException:
                told.append(400)
        stats = httpx.get(f"http://{running.http}/v2/models/doubler/stats").json()["model_stats"][0]
        text = httpx.get(f"http://{running.http}/metrics").text
    times = stats["inference_stats"]
    assert told.count(200) == 6
    assert {times[name]["count"] for name in ("success", "queue", "compute_infer")} == {6}
    assert times["fail"]["count"] == len(told) - 6
    counts = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith("ort_requests_total{")]
    assert sum(map(float, counts)) == len(told)
    assert 'ort_requests_total{model="doubler",outcome="success",version="1"} 6.0' in text
    assert 'ort_requests_in_flight{model="doubler",version="1"} 0.0' in text


def test_a_client_that_left_during_its_run_is_no_success():
    async def counted() -> ModelStatistics:
        loop, found = asyncio.get_running_loop(), ModelStatistics("m", "1", Metrics())
        jobs = [Job({}, (), 1, None, loop, loop.create_future()) for _ in range(2)]
        for _ in jobs:
            found.began()
        found.ran(jobs, 1, 2, 3, 4)
        found.failed(Cancelled("the client left"), 5)
        found.answered(jobs[1])
        return found

    found = asyncio.run(counted())
    assert (found.success.count, found.fail.count, found.compute_infer.count, found.executions) == (1, 1, 1, 1)
