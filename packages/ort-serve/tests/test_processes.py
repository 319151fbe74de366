"""`ort serve` as a process: what it prints, how it ends, several workers, TLS."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import onnx
import onnx.parser
import pytest
import tritonclient.grpc
from serve_fixtures import DOUBLER, running_server, write_model

from ort_serve.running import curl_line
from ort_serve.server_settings import Tls

BODY = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}


class Process:
    """An `ort serve` whose standard error is read to its end."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            self.command(*arguments), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @staticmethod
    def command(*arguments: object) -> list[str]:
        given = [*map(str, arguments), "--http-port", "0", "--grpc-port", "0"]
        return [sys.executable, "-m", "ort_core.cli", "serve", *given]

    def _read(self) -> None:
        self.lines.extend(iter(self.process.stderr.readline, ""))

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def address(self) -> str:
        while (found := re.search(r"HTTP at (\S+)", self.text)) is None:
            assert self.process.poll() is None, self.text
            time.sleep(0.01)
        return found[1]

    def end(self) -> int:
        self.process.terminate()
        status = self.process.wait(60)
        self._reader.join()
        self.process.stderr.close()
        return status

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.end()


@pytest.fixture
def model(tmp_path):
    return write_model(DOUBLER, tmp_path / "doubler.onnx")


LOADING = """
import sys, threading
from pathlib import Path
from ort_serve.repository.model_repository import ModelRepository
import asyncio, time
async def load(self):
    print("loading", flush=True)
    await asyncio.to_thread(time.sleep, 600)
ModelRepository.load_all = load
from ort_serve.running import run_server
from ort_serve.server_settings import ServerSettings
run_server(Path(sys.argv[1]), ServerSettings(http_port=0, grpc_port=0, sockets=Path(sys.argv[2])), is_told=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_server_that_still_loads_models(model, number):
    with tempfile.TemporaryDirectory() as folder:  # short enough for a socket's path
        command = [sys.executable, "-c", LOADING, str(model), folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "loading\n"
            process.send_signal(number)
            assert process.wait(60) == 0
        assert list(Path(folder).iterdir()) == []


SIGNALS_ITSELF = """
import signal, sys
from pathlib import Path
from ort_serve import running
from ort_serve.server_settings import ServerSettings

running._tell = lambda server: signal.raise_signal(getattr(signal, sys.argv[2]))
running.run_server(Path(sys.argv[1]), ServerSettings(http_port=0, grpc_port=0), is_told=True)
print("ended in order")
"""


@pytest.mark.parametrize("name", [each for each in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, each)])
def test_a_signal_ends_a_server_in_order_also_on_windows(model, name):
    command = [sys.executable, "-c", SIGNALS_ITSELF, str(model), name]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert (ended.returncode, ended.stdout) == (0, "ended in order\n"), ended.stderr


@pytest.mark.skipif(os.name == "nt", reason="ends a process as POSIX does")
def test_a_server_tells_what_to_try_and_ends_with_its_requests_answered(model):
    with Process(model, "--access-log") as server:
        address = server.address()
        assert httpx.post(f"{address}/v2/models/doubler/infer", json=BODY).status_code == 200
        while "curl" not in server.text:
            time.sleep(0.01)
        line = next(line for line in server.lines if "curl" in line)
        asked = re.search(r"curl (\S+) -d '(.*)'", line)
        assert httpx.post(asked[1], content=asked[2]).json()["outputs"][0]["data"] == [0, 0, 0, 0]
        assert server.end() == 0
    assert "doubler" in server.text
    assert '"path":"/v2/models/doubler/infer","status":200' in server.text


@pytest.mark.skipif(os.name == "nt", reason="a shell of POSIX reads the line")
def test_the_line_to_try_is_one_of_the_shell_whatever_names_say(tmp_path):
    model = onnx.parser.parse_model(DOUBLER)
    model.graph.input[0].name = odd = 'it\'s "x" $HOME'
    for node in model.graph.node:
        node.input[:] = [odd if name == "x" else name for name in node.input]
    path = tmp_path / "a b%c's é.onnx"
    onnx.save(model, path)
    with running_server(path) as running:
        (version,) = running.server.repository.loaded()
        _, address, flag, body = shlex.split(curl_line(version, f"http://{running.http}"))
        assert flag == "-d"
        answer = httpx.post(address, content=body).json()
    assert answer["model_name"] == path.stem
    assert answer["outputs"][0]["data"] == [0, 0, 0, 0]


def test_what_cannot_be_served_is_told_in_one_line(tmp_path, model):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [
            sys.executable,
            "-m",
            "ort_core.cli",
            "serve",
            str(model),
            "--http-port",
            str(taken.getsockname()[1]),
        ]
        found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 1
    assert "cannot listen" in found.stderr
    assert "Traceback" not in found.stderr
    found = subprocess.run([*command[:4], str(tmp_path / "no.onnx")], capture_output=True, text=True)
    assert found.returncode == 2
    assert "there is no" in found.stderr


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="several processes share ports on POSIX only")
def test_workers_that_all_have_nothing_to_serve_end_the_server(tmp_path):
    (tmp_path / "text.onnx").write_text("hello")
    command = [sys.executable, "-m", "ort_core.cli", "serve", "text.onnx", "--http-port", "0", "--grpc-port", "0"]
    found = subprocess.run([*command, "--workers", "2"], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert found.returncode == 1
    assert found.stderr.endswith("ort serve: text.onnx cannot be served: the lines above say why\n")
    assert re.search(r"worker 0 text\.onnx cannot be served: .*are no ONNX model", found.stderr)
    assert "Traceback" not in found.stderr


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="several processes share ports on POSIX only")
def test_a_worker_that_is_killed_comes_back_and_the_others_go_on(model):
    with Process(model, "--workers", "2") as server:
        address = server.address()
        children = children_of(server.process.pid)
        while len(children) < 2:
            time.sleep(0.05)
            children = children_of(server.process.pid)
        answered, ends = [0, 0], threading.Event()

        def load() -> None:
            while not ends.is_set():
                try:
                    answered[httpx.post(f"{address}/v2/models/doubler/infer", json=BODY).status_code != 200] += 1
                except httpx.TransportError:
                    answered[1] += 1  # those in flight in the killed process

        thread = threading.Thread(target=load)
        thread.start()
        while answered[0] < 5:
            time.sleep(0.01)
        os.kill(children[0], signal.SIGKILL)
        while "started again" not in server.text or len(children_of(server.process.pid)) < 2:
            time.sleep(0.05)
        before = answered[0]
        while answered[0] < before + 20:
            time.sleep(0.01)
        ends.set()
        thread.join()
        assert answered[1] <= 2  # one client: one request in flight, and one connection that was waiting
        text = httpx.get(f"{address}/metrics").text
        counted = re.search(r'ort_requests_total\{model="doubler",outcome="success",version="1"\} (\S+)', text)
        assert float(counted[1]) >= 20  # of both processes, also of the dead one
        assert server.end() == 0


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no Unix sockets")
def test_workers_share_sockets_and_one_that_is_killed_takes_only_its_own_connections(model):
    with tempfile.TemporaryDirectory() as folder, Process(model, "--workers", "2", "--sockets", folder) as server:
        while len(children := children_of(server.process.pid)) < 2 or "gRPC at" not in server.text:
            assert server.process.poll() is None, server.text
            time.sleep(0.05)
        http, rpc = Path(folder) / "http.sock", Path(folder) / "grpc.sock"
        long_body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [9000, 4], "data": [1] * 36000}]}
        for _ in range(8):  # over connections of their own: either worker may take one
            assert answer_at(http, BODY) == [2, 4, 6, 8]
            assert len(answer_at(http, long_body)) == 36000
            assert total_at(rpc, 1) == 4
            assert total_at(rpc, 300_000) == 4  # more than a socket's buffers hold: both sides of the relay wait
        for place in (0, 1):
            os.kill(children[place], signal.SIGKILL)
            for _ in range(8):
                assert answer_at(http, BODY) == [2, 4, 6, 8]
                assert total_at(rpc, 1) == 4
            while server.text.count("started again") <= place or len(children_of(server.process.pid)) < 2:
                time.sleep(0.05)
        command = [*Process.command(model), "--sockets", folder, "--workers", "2"]
        second = subprocess.run(command, capture_output=True, text=True)
        assert (second.returncode, "another server does" in second.stderr) == (1, True), second.stderr
        assert answer_at(http, BODY) == [2, 4, 6, 8], "the first goes on"
        assert server.end() == 0, server.text
        assert list(Path(folder).iterdir()) == []


def answer_at(path: Path, body: object) -> list[float]:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=60) as client:
        return client.post("http://here/v2/models/doubler/infer", json=body).json()["outputs"][0]["data"]


def total_at(path: Path, rows: int) -> float:
    """Return the first total of rows of ones that gRPC gives."""
    with tritonclient.grpc.InferenceServerClient(f"unix:{path}") as client:
        tensor = tritonclient.grpc.InferInput("x", [rows, 4], "FP32")
        tensor.set_data_from_numpy(np.ones((rows, 4), np.float32))
        found = client.infer("doubler", [tensor])
        assert found.as_numpy("y").shape == (rows, 4)
        return found.as_numpy("total")[0]


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no SIGHUP")
@pytest.mark.parametrize("workers", [1, 2])
def test_sighup_looks_for_new_models_and_ends_nothing(model, workers):
    root = model.parent / "models"
    write_model(DOUBLER, root / "doubler" / "1" / "model.onnx")
    with Process(root, "--workers", str(workers)) as server:
        address = server.address()
        write_model(DOUBLER, root / "another" / "1" / "model.onnx")
        server.process.send_signal(signal.SIGHUP)
        ends = time.monotonic() + 60
        while "another" not in httpx.post(f"{address}/v2/repository/index", json={"ready": True}).text:
            assert time.monotonic() < ends, server.text
            time.sleep(0.05)
        assert httpx.post(f"{address}/v2/models/doubler/infer", json=BODY).status_code == 200
        assert server.end() == 0


def children_of(parent: int) -> list[int]:
    import psutil

    names = [process for process in psutil.Process(parent).children() if "spawn_main" in " ".join(process.cmdline())]
    return [process.pid for process in names]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")
def test_tls_and_certificates_of_clients(model, tmp_path):
    authority, server, client = (make_certificate(tmp_path, name) for name in ("authority", "server", "client"))
    tls = Tls(server[0], server[1], client[0])
    with running_server(model, tls=tls) as running:
        url = f"https://localhost:{running.server.http_port}/v2/models/doubler/infer"
        trust = ssl.create_default_context(cafile=server[0])
        with pytest.raises(httpx.TransportError):
            httpx.post(url.replace("localhost", "127.0.0.1"), json=BODY, verify=trust)
        shown = ssl.create_default_context(cafile=server[0])
        shown.load_cert_chain(client[0], client[1])
        assert httpx.post(url.replace("localhost", "127.0.0.1"), json=BODY, verify=shown).status_code == 200
        stranger = ssl.create_default_context(cafile=server[0])
        stranger.load_cert_chain(authority[0], authority[1])
        with pytest.raises(httpx.TransportError):
            httpx.post(url.replace("localhost", "127.0.0.1"), json=BODY, verify=stranger)
        check_grpc(running, server, client)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")
def test_certificates_are_renewed_while_the_server_runs(model, tmp_path, caplog):
    old, new, other = (make_certificate(tmp_path, name) for name in ("old", "new", "other"))
    used = tmp_path / "used.pem", tmp_path / "used.key"
    for source, target in zip(old, used):
        copy_with_one_time(source, target)
    with running_server(model, tls=Tls(*used)) as running:

        def is_served(certificate) -> bool:
            trust = ssl.create_default_context(cafile=certificate)
            url = f"https://{running.http}/v2/models/doubler/infer"
            try:
                is_http = httpx.post(url, json=BODY, verify=trust).status_code == 200
            except httpx.TransportError:
                is_http = False
            assert is_grpc_served(running, certificate) == is_http
            return is_http

        assert is_served(old[0])
        copy_with_one_time(new[0], used[0])  # the key is not there yet
        running.call(running.server.reload())
        assert "cannot be used" in caplog.text
        assert is_served(old[0])
        copy_with_one_time(new[1], used[1])
        running.call(running.server.reload())
        assert is_served(new[0])
        assert not is_served(old[0])
        assert not is_served(other[0])


def copy_with_one_time(source: Path, target: Path) -> None:
    """Write over a file in place, and give it one and the same time, as reproducible builds of images do."""
    shutil.copyfile(source, target)
    os.utime(target, ns=(10**18, 10**18))


def is_grpc_served(running, certificate) -> bool:
    import grpc

    with grpc.secure_channel(running.grpc, grpc.ssl_channel_credentials(certificate.read_bytes())) as channel:
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        try:
            return live(b"", timeout=5) == b"\x08\x01"
        except grpc.RpcError:
            return False


def check_grpc(running, server, client) -> None:
    import grpc
    from tritonclient.grpc import InferenceServerClient, InferInput

    credentials = grpc.ssl_channel_credentials(server[0].read_bytes(), client[1].read_bytes(), client[0].read_bytes())
    with InferenceServerClient(running.grpc, creds=credentials) as rpc:
        tensor = InferInput("x", [1, 4], "FP32")
        tensor.set_data_from_numpy(np.ones((1, 4), np.float32))
        assert rpc.infer("doubler", [tensor]).as_numpy("total").tolist() == [4]


def make_certificate(folder, name: str) -> tuple:
    """Make a certificate that signs itself, for 127.0.0.1."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key
