"""Models, folders of models, and a server in a thread, for the tests of this folder."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onnx import parser, save

from ort_serve.server import Server
from ort_serve.server_settings import ServerSettings

DOUBLER = """
<ir_version: 10, opset_import: ["" : 21]>
doubler (float[batch, 4] x) => (float[batch, 4] y, float[batch] total) {
  y = Add (x, x)
  axes = Constant <value_ints = [1]> ()
  total = ReduceSum <keepdims = 0> (x, axes)
}
"""
ECHO_TYPES = {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "INT8": "int8",
    "INT16": "int16", "INT32": "int32", "INT64": "int64", "FP16": "float16", "FP32": "float", "FP64": "double",
    "BYTES": "string", "BF16": "bfloat16",
}  # fmt: skip


def write_model(text: str, path: Path) -> Path:
    """Write the model of an ONNX text, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save(parser.parse_model(text), path)
    return path


def echo_text(element: str) -> str:
    """Return a model that gives back its one input of any two sizes."""
    return f"""
    <ir_version: 10, opset_import: ["" : 21]>
    echo ({element}[rows, columns] x) => ({element}[rows, columns] y) {{ y = Identity (x) }}
    """


def scaler_text(factor: float) -> str:
    """Return a model that multiplies by a number: versions of it can be told apart."""
    return f"""
    <ir_version: 10, opset_import: ["" : 21]>
    scaler (float[batch, 2] x) => (float[batch, 2] y) {{
      factor = Constant <value_float = {factor!r}> ()
      y = Mul (x, factor)
    }}
    """


class RunningServer:
    """A server in a thread of its own. ``call`` runs a coroutine in its event loop."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self._loop = loop

    @property
    def http(self) -> str:
        return f"127.0.0.1:{self.server.http_port}"

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.server.grpc_port}"

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)


@contextmanager
def running_server(root: Path, tracing: object = None, **settings: object) -> Iterator[RunningServer]:
    """Run a server at free ports until the body ends."""
    chosen = ServerSettings(**{"http_port": 0, "grpc_port": 0, **settings})
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="server")
    thread.start()
    try:
        server = Server(root, chosen, tracing)
        running = RunningServer(server, loop)
        running.call(server.start())
        try:
            yield running
        finally:
            running.call(server.stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
