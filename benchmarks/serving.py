"""What a server costs: a request beside the run itself, and requests a second beside other servers.

    python benchmarks/serving.py FOLDER [--python PYTHON ...] [--seconds 3] [--rows FILE]

FOLDER holds mlp.onnx, resnet50.onnx and bert_base.onnx; what is not there is left out. Servers run one at a time under
1, 8 and 64 clients of wrk (Debian has it), ours with and without joined requests; FastAPI, LitServe and MLServer with
onnxruntime run where an interpreter has them: this one, or one that ``--python`` names. One row of JSON a measurement
goes to FILE (by default benchmarks/results/DATE-serving.jsonl), a table to the screen. It takes about eight minutes.
On a busy machine, start it by ``chrt -f 10``: other programs are out of the way of clients and servers then.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import numpy as np
import psutil
from onnx import ModelProto, numpy_helper, parser, save
from rich.console import Console
from rich.table import Table
from serving_programs import PROGRAMS, Feeds, Question, datatype_of, environment, interpreter_with

TINY = """
<ir_version: 10, opset_import: ["" : 21]>
tiny (float[batch, 64] x) => (float[batch, 4] y) <float[64, 4] w> { sums = MatMul (x, w) y = Relu (sums) }
"""  # with 1 KB of weights
CASES = (  # a model, what its later open sizes become, and whether others run it, too
    ("mlp", 1, True),
    ("resnet50", 1, True),
    ("bert_base", 128, True),
    ("bert_base", 16, True),  # short sequences: does joining double the rate?
)
CLIENTS = (1, 8, 64)
HTTP_PORT, GRPC_PORT = 18000, 18001
START_S = 120.0
LONGEST_S = 10.0  # of one measurement: slow models need time for 64 clients, twice
Row = dict[str, object]


class Rows:
    """Measurements, written as they come."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.found: list[Row] = []

    def add(self, row: Row) -> None:
        """Keep one."""
        row = {**row, "load": round(os.getloadavg()[0], 1)}
        self.found.append(row)
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


def measure_overhead(rows: Rows) -> None:
    """Measure a request of 256 bytes beside the run: gRPC, binary HTTP, and servers of both that do nothing.

    What those take, their slowest hundredth as well, is the client's, the libraries' and the machine's share.
    """
    import tritonclient.grpc as triton_grpc
    import tritonclient.http as triton_http

    import ort_core

    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "tiny.onnx"
        save(tiny_model(), model)
        x = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
        session = ort_core.InferenceSession(str(model))
        calls: dict[str, Callable[[], object]] = {"run": lambda: session.run(None, {"x": x})}
        with our_server(model, None), empty_method() as nothing, empty_http() as empty_port:
            clients = []
            for name, module, port in (
                ("gRPC", triton_grpc, GRPC_PORT),
                ("binary HTTP", triton_http, HTTP_PORT),
                ("binary HTTP, one constant answer", triton_http, empty_port),
            ):
                client = module.InferenceServerClient(f"127.0.0.1:{port}")
                tensor = module.InferInput("x", [1, 64], "FP32")
                tensor.set_data_from_numpy(x)
                calls[name] = lambda client=client, tensor=tensor: client.infer("tiny", [tensor])
                clients.append(client)
            calls["gRPC, empty method"] = lambda: nothing(bytes(300))
            for name, taken in in_turns(calls).items():
                rows.add({
                    "kind": "overhead", "call": name, "p50_ms": round(statistics.median(taken), 4),
                    "p99_ms": round(float(np.percentile(taken, 99)), 4),
                })  # fmt: skip
            for client in clients:
                client.close()


def tiny_model() -> ModelProto:
    """Return a model of 1 KB."""
    made = parser.parse_model(TINY)
    del made.graph.initializer[:]
    weights = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
    made.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return made


def in_turns(calls: Mapping[str, Callable[[], object]], turns: int = 12, count: int = 200) -> dict[str, list[float]]:
    """Return the milliseconds of calls that take turns, so that a busy minute falls on all of them."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 1):
        for name, call in calls.items():
            for _ in range(count):
                begin = time.perf_counter()
                call()
                if turn:  # the first warms up
                    taken[name].append((time.perf_counter() - begin) * 1e3)
    return taken


EMPTY = """
import asyncio, sys
import grpc, grpc.aio
async def empty(raw, context):
    return raw
async def main():
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(empty)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("empty", {"Ask": handler}),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()
try:
    import uvloop as loops
except ImportError:
    loops = asyncio
loops.run(main())
"""


CONSTANT = """
import asyncio, json, sys
import httptools
HEAD = json.dumps({"model_name": "tiny", "model_version": "1", "outputs": [
    {"name": "y", "datatype": "FP32", "shape": [1, 4], "parameters": {"binary_data_size": 16}}]}).encode()
FIELDS = ("HTTP/1.1 200 OK", "content-type: application/octet-stream",
    f"inference-header-content-length: {len(HEAD)}", f"content-length: {len(HEAD) + 16}")
ANSWER = "\\r\\n".join((*FIELDS, "", "")).encode() + HEAD + bytes(16)
class Connection(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.parser = transport, httptools.HttpRequestParser(self)
    def data_received(self, data):
        self.parser.feed_data(data)
    def on_message_complete(self):
        self.transport.write(ANSWER)
async def main():
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
try:
    import uvloop as loops
except ImportError:
    loops = asyncio
loops.run(main())
"""


@contextmanager
def empty_http() -> Iterator[int]:
    """Run an HTTP server that reads a request and gives one constant answer; give its port."""
    process = subprocess.Popen([sys.executable, "-c", CONSTANT], stdout=subprocess.PIPE, text=True)
    try:
        yield int(process.stdout.readline())
    finally:
        end(process)


@contextmanager
def empty_method() -> Iterator[Callable[[bytes], bytes]]:
    """Run a gRPC server that does nothing, in its own process; give what asks it."""
    import grpc

    process = subprocess.Popen([sys.executable, "-c", EMPTY], stdout=subprocess.PIPE, text=True)
    try:
        with grpc.insecure_channel(f"127.0.0.1:{process.stdout.readline().strip()}") as channel:
            yield channel.unary_unary("/empty/Ask")
    finally:
        end(process)


def measure_rates(rows: Rows, model: Path, size: int, seconds: float, pythons: list[str] | None) -> None:
    """Measure requests a second of one model: ours, ours without joined requests, and the others' for ``pythons``."""
    feeds = feeds_of(model, size)
    case = f"{model.stem}, {size}" if size > 1 else model.stem
    for name, limit in (("ort-serve", None), ("ort-serve, never joined", 0)):
        with our_server(model, limit) as process:
            question = our_question(model.stem, feeds)
            drive(rows, case, name, HTTP_PORT, question, process, seconds)
    for program in PROGRAMS if pythons is not None else ():
        python = interpreter_with(program.needs, pythons)
        if python is None:
            print(f"{program.name} is left out: no interpreter has {program.needs} and onnxruntime", flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            command = [python, *program.write(Path(folder), model.resolve(), HTTP_PORT, size)]
            with running(command, f"http://127.0.0.1:{HTTP_PORT}{program.ready}", environment(Path(folder))) as process:
                drive(rows, case, program.name, HTTP_PORT, program.ask(feeds), process, seconds)


def feeds_of(model: Path, size: int) -> Feeds:
    """Return inputs of one row; later open sizes are ``size``."""
    import ort_core

    generator = np.random.default_rng(0)
    feeds: dict[str, np.ndarray] = {}
    for one in ort_core.InferenceSession(str(model)).get_inputs():
        shape = [n if isinstance(n, int) else size if place else 1 for place, n in enumerate(one.shape)]
        is_float = one.type == "tensor(float)"
        feeds[one.name] = (
            generator.standard_normal(shape).astype(np.float32) if is_float else generator.integers(0, 2, shape)
        )
    return feeds


def our_question(name: str, feeds: Feeds) -> Question:
    """Return a request with its tensors as bytes."""
    inputs = [
        {
            "name": key,
            "shape": array.shape,
            "datatype": datatype_of(array),
            "parameters": {"binary_data_size": array.nbytes},
        }
        for key, array in feeds.items()
    ]
    text = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(text))}
    raw = b"".join(array.tobytes() for array in feeds.values())
    return Question(f"/v2/models/{name}/infer", text + raw, headers)


def drive(
    rows: Rows, case: str, server: str, port: int, question: Question, process: psutil.Process, seconds: float
) -> None:
    """Let wrk ask a server, and note requests a second, latencies and the server's processor time."""
    address = f"http://127.0.0.1:{port}{question.path}"
    answer = httpx.post(address, content=question.body, headers=dict(question.headers), timeout=60)
    if answer.status_code != 200:
        sys.exit(f"{server} answers {answer.status_code}: {answer.text[:500]}")
    with tempfile.TemporaryDirectory() as folder:
        content, script = Path(folder) / "body", Path(folder) / "script.lua"
        content.write_bytes(question.body)
        headers = "".join(f'wrk.headers["{name}"] = "{value}"\n' for name, value in question.headers.items())
        script.write_text(
            f'local file = io.open("{content}", "rb")\nwrk.body = file:read("*a")\nwrk.method = "POST"\n{headers}'
        )
        lasts = seconds
        for clients in CLIENTS:
            command = ["wrk", "-t1", f"-c{clients}", "--timeout", "60s", "--latency", "-s", str(script), address]
            subprocess.run([*command, "-d1s"], capture_output=True, check=True)  # shapes that joining brings
            settle(process)
            before = processor_s(process)
            found = subprocess.run(
                [*command, f"-d{math.ceil(lasts)}s"], capture_output=True, text=True, check=True
            ).stdout
            spent = processor_s(process) - before
            if "Non-2xx" in found:
                sys.exit(f"{server} refused requests:\n{found}")
            settle(process)
            count = int(re.search(r"(\d+) requests in", found)[1])
            lasts = min(max(seconds, 2 * CLIENTS[-1] * seconds / max(count, 1)) if clients == 1 else lasts, LONGEST_S)
            rows.add({
                "kind": "rate", "case": case, "server": server, "clients": clients,
                "per_second": float(re.search(r"Requests/sec:\s+([\d.]+)", found)[1]),
                "p50_ms": milliseconds(re.search(r"^ +50%\s+(\S+)", found, re.MULTILINE)[1]),
                "p99_ms": milliseconds(re.search(r"^ +99%\s+(\S+)", found, re.MULTILINE)[1]),
                "server_us": round(spent / max(count, 1) * 1e6),
            })  # fmt: skip


def settle(process: psutil.Process) -> None:
    """Wait until a server rests: it may still run what clients asked that have left."""
    ends = time.monotonic() + LONGEST_S
    before = processor_s(process)
    while time.monotonic() < ends:
        time.sleep(0.2)
        now = processor_s(process)
        if now - before < 0.05:
            return
        before = now


def milliseconds(text: str) -> float | None:
    """Return one of wrk's times, such as ``350.00us``; None where nothing was answered (``-nanus``)."""
    found = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text)
    if found is None:
        return None
    number, unit = found.groups()
    return round(float(number) * {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}[unit], 3)


def processor_s(process: psutil.Process) -> float:
    """Return the processor time of a process and its children, in seconds."""
    return sum(sum(each.cpu_times()[:2]) for each in (process, *process.children(recursive=True)))


@contextmanager
def our_server(model: Path, limit: int | None) -> Iterator[psutil.Process]:
    """Run ort-serve; ``limit`` is its largest batch."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / model.stem
        (place / "1").mkdir(parents=True)
        (place / "1" / "model.onnx").symlink_to(model.resolve())
        weights = model.with_suffix(".weights").resolve()
        if weights.exists():
            (place / "1" / weights.name).symlink_to(weights)
        if limit is not None:
            (place / "model.toml").write_text(f"[batching]\nmax_batch_size = {limit}\n")
        ports = ["--http-port", str(HTTP_PORT), "--grpc-port", str(GRPC_PORT)]
        command = [sys.executable, "-m", "ort_core.cli", "serve", folder, *ports]
        with running(command, f"http://127.0.0.1:{HTTP_PORT}/v2/health/ready", dict(os.environ)) as process:
            yield process


@contextmanager
def running(command: list[str], address: str, variables: Mapping[str, str]) -> Iterator[psutil.Process]:
    """Run a server until the body ends; it begins when the address answers."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=variables)
        try:
            ends = time.monotonic() + START_S
            while not is_ready(address):
                if process.poll() is not None or time.monotonic() > ends:
                    log.seek(0)
                    sys.exit(f"{command[:4]} does not serve:\n{log.read().decode(errors='replace')[-3000:]}")
                time.sleep(0.05)
            yield psutil.Process(process.pid)
        finally:
            end(process)


def end(process: subprocess.Popen) -> None:
    """End a server and what it started."""
    children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in children:
        if child.is_running():
            child.kill()


def is_ready(address: str) -> bool:
    """Return whether an address answers 200."""
    try:
        return httpx.get(address).status_code == 200
    except httpx.TransportError:
        return False


def tell(found: list[Row]) -> None:
    """Print rates as a table, a row for each server of a model."""
    table = Table("case", "server", *(f"{clients} clients" for clients in CLIENTS))
    rates = [row for row in found if row["kind"] == "rate"]
    for case, server in dict.fromkeys((row["case"], row["server"]) for row in rates):
        own = {row["clients"]: row for row in rates if (row["case"], row["server"]) == (case, server)}
        cells = [f"{own[n]['per_second']:.1f}/s, p99 {own[n]['p99_ms']} ms" if n in own else "" for n in CLIENTS]
        table.add_row(str(case), str(server), *cells)
    Console(width=130).print(table)


def main() -> None:
    """Measure what the arguments ask for."""
    now = datetime.now(UTC)
    taken = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    taken.add_argument("folder", type=Path)
    taken.add_argument(
        "--python", action="append", default=[], help="an interpreter with fastapi, litserve or mlserver"
    )
    taken.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    taken.add_argument("--cases", nargs="*", default=[name for name, _, _ in CASES])
    default = Path(__file__).parent / "results" / f"{now:%Y-%m-%d}-serving.jsonl"
    taken.add_argument("--rows", type=Path, default=default)
    given = taken.parse_args()
    rows = Rows(given.rows)
    rows.add({
        "kind": "machine", "date": now.isoformat(timespec="seconds"), "cores": os.cpu_count(),
        "python": platform.python_version(), "system": platform.platform(),
    })  # fmt: skip
    measure_overhead(rows)
    for name, size, has_others in CASES:
        model = given.folder / f"{name}.onnx"
        if name in given.cases and model.exists():
            measure_rates(rows, model, size, given.seconds, given.python if has_others else None)
    tell(rows.found)


if __name__ == "__main__":
    main()
