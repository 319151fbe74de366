"""What a server costs: a request beside the run itself, requests a second beside FastAPI with onnxruntime.

    python benchmarks/serving.py overhead                 p50 and p99 of a tiny model: run, gRPC, binary HTTP
    python benchmarks/serving.py throughput MODEL.onnx    requests a second under 1, 8 and 64 clients

Servers run one at a time, in turns. `throughput` needs fastapi, uvicorn and onnxruntime beside ort-serve, and wrk,
the program that asks (Debian has it).
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from onnx import parser, save

TINY = """
<ir_version: 10, opset_import: ["" : 21]>
tiny (float[batch, 64] x) => (float[batch, 64] y) { y = Relu (x) }
"""
REFERENCE = """
import json, sys
import numpy as np, onnxruntime
from fastapi import Body, FastAPI, Response
options = onnxruntime.SessionOptions()
session = onnxruntime.InferenceSession(sys.argv[1], options)
taken = session.get_inputs()
app = FastAPI()

@app.post("/infer")
def infer(body: bytes = Body()):
    feeds, at = {}, 0
    for one in taken:
        dtype = {"tensor(float)": np.float32, "tensor(int64)": np.int64}[one.type]
        open_sizes = [1] + [int(sys.argv[3])] * len(one.shape)
        shape = [size if isinstance(size, int) else instead for size, instead in zip(one.shape, open_sizes)]
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        feeds[one.name] = np.frombuffer(body[at:at + count], dtype).reshape(shape)
        at += count
    found = b"".join(array.tobytes() for array in session.run(None, feeds))
    return Response(found, media_type="application/octet-stream")

import uvicorn
uvicorn.run(app, port=int(sys.argv[2]), log_level="warning")
"""
CLIENTS = (1, 8, 64)
SECONDS = 6
TURNS = 3
HTTP_PORT, GRPC_PORT, REFERENCE_PORT = 18000, 18001, 18002
SEQUENCE = 128  # what an open size other than the first becomes


def overhead() -> None:
    """Print latencies of a tiny model."""
    import tritonclient.grpc as triton_grpc
    import tritonclient.http as triton_http

    import ort_core

    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "tiny.onnx"
        save(parser.parse_model(TINY), model)
        x = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
        session = ort_core.InferenceSession(str(model))
        report("run", lambda: session.run(None, {"x": x}))
        with our_server(model):
            for name, module, port in (("gRPC", triton_grpc, GRPC_PORT), ("binary HTTP", triton_http, HTTP_PORT)):
                client = module.InferenceServerClient(f"127.0.0.1:{port}")
                tensor = module.InferInput("x", [1, 64], "FP32")
                tensor.set_data_from_numpy(x)
                report(name, lambda client=client, tensor=tensor: client.infer("tiny", [tensor]))
                client.close()


def report(name: str, call: Callable[[], object], count: int = 3000) -> None:
    """Print the median and the 99th percentile of a call, in milliseconds."""
    for _ in range(200):
        call()
    taken = []
    for _ in range(count):
        begin = time.perf_counter()
        call()
        taken.append((time.perf_counter() - begin) * 1e3)
    print(f"{name:12} p50 {statistics.median(taken):.3f} ms   p99 {np.percentile(taken, 99):.3f} ms", flush=True)


def throughput(model: Path) -> None:
    """Print requests a second, ours with and without joined requests, and the reference's."""
    import onnxruntime

    inputs = onnxruntime.InferenceSession(str(model)).get_inputs()
    generator = np.random.default_rng(0)
    header, raw = {"inputs": [], "parameters": {"binary_data_output": True}}, b""
    for one in inputs:
        shape = [n if isinstance(n, int) else SEQUENCE if place else 1 for place, n in enumerate(one.shape)]
        is_float = one.type == "tensor(float)"
        array = generator.standard_normal(shape).astype(np.float32) if is_float else generator.integers(0, 2, shape)
        header["inputs"].append({
            "name": one.name, "shape": shape, "datatype": "FP32" if is_float else "INT64",
            "parameters": {"binary_data_size": array.nbytes},
        })  # fmt: skip
        raw += array.tobytes()
    text = json.dumps(header).encode()
    rows: dict[str, dict[int, list[float]]] = {}
    for _ in range(TURNS):
        for name, limit in (("ort-serve", None), ("ort-serve, never joined", 0)):
            with our_server(model, limit):
                address = f"http://127.0.0.1:{HTTP_PORT}/v2/models/{model.stem}/infer"
                drive(rows, name, address, text + raw, len(text))
        with reference_server(model):
            drive(rows, "FastAPI, onnxruntime", f"http://127.0.0.1:{REFERENCE_PORT}/infer", raw, None)
    for name, found in rows.items():
        told = "   ".join(f"{count} clients {statistics.median(rates):.0f}/s" for count, rates in found.items())
        print(f"{name:26} {told}", flush=True)


def drive(rows: dict[str, dict[int, list[float]]], name: str, address: str, body: bytes, header: int | None) -> None:
    """Let wrk ask a server, and note the requests a second."""
    with tempfile.TemporaryDirectory() as folder:
        content, script = Path(folder) / "body", Path(folder) / "script.lua"
        content.write_bytes(body)
        extra = "" if header is None else f'wrk.headers["Inference-Header-Content-Length"] = "{header}"\n'
        script.write_text(
            f'local file = io.open("{content}", "rb")\nwrk.body = file:read("*a")\nwrk.method = "POST"\n'
            f'wrk.headers["Content-Type"] = "application/octet-stream"\n{extra}'
        )
        for count in CLIENTS:
            command = ["wrk", "-t1", f"-c{count}", f"-d{SECONDS}s", "--timeout", "30s", "-s", str(script), address]
            found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            if "Non-2xx" in found:
                sys.exit(f"{name} refused requests:\n{found}")
            rate = float(re.search(r"Requests/sec:\s+([\d.]+)", found)[1])
            rows.setdefault(name, {}).setdefault(count, []).append(rate)


@contextmanager
def our_server(model: Path, limit: int | None = None) -> Iterator[None]:
    """Run ort-serve; ``limit`` is its largest batch."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / model.stem
        (place / "1").mkdir(parents=True)
        (place / "1" / "model.onnx").symlink_to(model.resolve())
        if limit is not None:
            (place / "model.toml").write_text(f"[batching]\nmax_batch_size = {limit}\n")
        command = [
            sys.executable,
            "-m",
            "ort_core.cli",
            "serve",
            folder,
            "--http-port",
            str(HTTP_PORT),
            "--grpc-port",
            str(GRPC_PORT),
        ]
        with running(command, f"http://127.0.0.1:{HTTP_PORT}/v2/health/ready"):
            yield


@contextmanager
def reference_server(model: Path) -> Iterator[None]:
    """Run the FastAPI program."""
    command = [sys.executable, "-c", REFERENCE, str(model), str(REFERENCE_PORT), str(SEQUENCE)]
    with running(command, f"http://127.0.0.1:{REFERENCE_PORT}/docs"):
        yield


@contextmanager
def running(command: list[str], address: str) -> Iterator[None]:
    """Run a server until the body ends; it begins when the address answers."""
    import httpx

    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            try:
                if httpx.get(address).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    if sys.argv[1:] == ["overhead"]:
        overhead()
    elif len(sys.argv) == 3 and sys.argv[1] == "throughput":
        throughput(Path(sys.argv[2]))
    else:
        sys.exit(__doc__)
