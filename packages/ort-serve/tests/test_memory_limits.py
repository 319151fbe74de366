"""What holds much memory: results that clients of gRPC do not read, and runs of models."""

from __future__ import annotations

import socket
import struct
import time

import httpx
import numpy as np
import psutil
import pytest
import tritonclient.grpc
import tritonclient.utils
from serve_fixtures import running_server, write_model

from ort_core.machine_memory import usable_memory
from ort_serve import server_settings
from ort_serve.rpc.messages import MESSAGE_CLASSES
from ort_serve.rpc.schema import SERVICE, STREAM
from ort_serve.server_settings import Limits

COUNT = 5_000_000
NBYTES = 4 * COUNT
WIDE = """
<ir_version: 10, opset_import: ["" : 21]>
wide (int64[n] size) => (float[rows] y) { y = ConstantOfShape <value: tensor = float[1] v {1.5}> (size) }
"""
HEADERS, DATA, SETTINGS = 1, 0, 4
END_HEADERS, END_STREAM = 4, 1


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_model(WIDE, root / "wide" / "1" / "model.onnx")
    with running_server(root, limits=Limits(read_s=60.0, run_nbytes=2 * NBYTES)) as running:
        yield running


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return a frame of HTTP/2 (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """Return a header field that no table keeps (RFC 7541, section 6.2.2)."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def call(method: str, stream: int, ends: bool) -> bytes:
    """Return the frames that ask for a long result. No window is ever opened for it beyond the first 65,535 bytes."""
    asked = MESSAGE_CLASSES.get("ModelInferRequest")(model_name="wide", raw_input_contents=[struct.pack("<q", COUNT)])
    asked.inputs.add(name="size", datatype="INT64", shape=[1])
    raw = asked.SerializeToString()
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", f"/{SERVICE}/{method}".encode()),
              (b":authority", b"x"), (b"content-type", b"application/grpc"), (b"te", b"trailers")]  # fmt: skip
    head = frame(HEADERS, END_HEADERS, stream, b"".join(literal(*field) for field in fields))
    return head + frame(DATA, END_STREAM if ends else 0, stream, b"\0" + struct.pack(">I", len(raw)) + raw)


def wait_until(condition, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


@pytest.mark.parametrize(("method", "ends"), [("ModelInfer", True), (STREAM, False)])
def test_what_waits_for_a_client_that_does_not_read_is_counted_until_it_leaves(server, method, ends):
    budget = server.server.state.body_budget
    with socket.create_connection(("127.0.0.1", server.server.grpc_port), timeout=30) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b""))
        connection.sendall(call(method, 1, ends) + call(method, 3, ends))
        wait_until(lambda: budget.held >= 2 * NBYTES)
        time.sleep(0.3)
        assert budget.held >= 2 * NBYTES, "neither has read more than a window"
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(budget, "nbytes", 2 * NBYTES)
            with pytest.raises(Exception, match="requests in flight hold"):
                infer(server)
    wait_until(lambda: budget.held == 0)
    assert infer(server).sum() == 1.5 * COUNT
    wait_until(lambda: budget.held == 0)


def infer(server, count: int = COUNT) -> np.ndarray:
    asked = tritonclient.grpc.InferInput("size", [1], "INT64")
    asked.set_data_from_numpy(np.array([count]))
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        return client.infer("wide", [asked]).as_numpy("y")


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_run_that_would_hold_more_than_it_may_is_refused_before_it_does(server, protocol):
    sizes = {"name": "size", "datatype": "INT64", "shape": [1], "data": [2 * COUNT + 1]}
    peak = psutil.Process().memory_info().rss
    if protocol == "http":
        answer = httpx.post(f"http://{server.http}/v2/models/wide/infer", json={"inputs": [sizes]}, timeout=60)
        assert answer.status_code == 413
        told = answer.json()["error"]
    else:
        with pytest.raises(tritonclient.utils.InferenceServerException, match="INVALID_ARGUMENT") as refused:
            infer(server, 2 * COUNT + 1)
        told = str(refused.value)
    assert "the run takes too much memory (--max-run)" in told
    assert str(4 * (2 * COUNT + 1)) in told
    assert psutil.Process().memory_info().rss < peak + NBYTES
    assert infer(server).sum() == 1.5 * COUNT


@pytest.mark.parametrize(("given", "most"), [(1 << 20, 1 << 20), (None, usable_memory() // 4)])
def test_a_run_may_hold_a_quarter_of_the_memory_unless_another_limit_is_given(given, most):
    assert Limits(run_nbytes=given).most_run_nbytes == most


def test_where_nobody_tells_how_much_memory_there_is_a_run_has_no_limit(monkeypatch):
    def untold() -> int:
        raise OSError("not told")

    monkeypatch.setattr(server_settings, "usable_memory", untold)
    assert Limits().most_run_nbytes is None
