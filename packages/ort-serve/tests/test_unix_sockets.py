"""A server that listens at sockets of the file system instead of ports."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import httpx
import numpy as np
import pytest
import tritonclient.grpc
from serve_fixtures import DOUBLER, running_server, write_model

X = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this system has no Unix sockets")


@pytest.fixture
def model(tmp_path):
    return write_model(DOUBLER, tmp_path / "doubler.onnx")


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory() as found:  # pytest's own folders are longer than a socket's path may be
        yield Path(found)


def asked(folder: Path) -> list[float]:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(folder / "http.sock"))) as client:
        found = client.post("http://here/v2/models/doubler/infer", json={"inputs": [X]})
    return found.json()["outputs"][0]["data"]


def test_http_and_grpc_answer_at_sockets_and_leave_none(folder, model):
    with running_server(model, sockets=folder) as running:
        assert (running.server.http_port, running.server.grpc_port) == (None, None)
        assert asked(folder) == [2.0, 4.0, 6.0, 8.0]
        with tritonclient.grpc.InferenceServerClient(f"unix:{folder / 'grpc.sock'}") as client:
            tensor = tritonclient.grpc.InferInput("x", [1, 4], "FP32")
            tensor.set_data_from_numpy(np.ones((1, 4), np.float32))
            assert client.infer("doubler", [tensor]).as_numpy("total").tolist() == [4.0]
    assert list(folder.iterdir()) == []


def test_what_a_killed_server_left_is_taken_over_and_a_living_one_s_is_not(folder, model):
    for name in ("http.sock", "grpc.sock"):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(folder / name))
    with running_server(model, sockets=folder):
        with pytest.raises(OSError, match="another server does"), running_server(model, sockets=folder):
            pass
        assert asked(folder) == [2.0, 4.0, 6.0, 8.0], "the first goes on"


def test_a_file_is_never_removed(folder, model):
    (folder / "http.sock").write_text("mine")
    with pytest.raises(OSError, match="something else"), running_server(model, sockets=folder):
        pass
    assert (folder / "http.sock").read_text() == "mine"
