"""What ``serving.py`` measures beside ort-serve: small programs that serve a model by onnxruntime, as guides show them.

Each takes the model, its port, and what an open size other than the first becomes. They run one request at a time, but
for FastAPI, whose requests run in threads.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FASTAPI = """
import sys
import numpy as np, onnxruntime, uvicorn
from fastapi import Body, FastAPI, Response
session = onnxruntime.InferenceSession(sys.argv[1])
taken, app = session.get_inputs(), FastAPI()

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

uvicorn.run(app, port=int(sys.argv[2]), log_level="warning")
"""
LITSERVE = """
import base64, sys
import litserve, numpy as np, onnxruntime

class Api(litserve.LitAPI):
    def setup(self, device):
        self.session = onnxruntime.InferenceSession(sys.argv[1])
    def decode_request(self, request):
        return {name: np.frombuffer(base64.b64decode(data), dtype).reshape(shape)
                for name, (dtype, shape, data) in request.items()}
    def predict(self, feeds):
        return self.session.run(None, feeds)
    def encode_response(self, found):
        return {"outputs": [base64.b64encode(array.tobytes()).decode() for array in found]}

if __name__ == "__main__":
    litserve.LitServer(Api(api_path="/infer"), accelerator="cpu", timeout=60).run(
        port=int(sys.argv[2]), log_level="error", generate_client_file=False)
"""
MLSERVER = """
import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse

class Model(MLModel):
    async def load(self):
        self.session = onnxruntime.InferenceSession(self.settings.parameters.uri)
        return True
    async def predict(self, payload):
        feeds = {one.name: NumpyCodec.decode_input(one) for one in payload.inputs}
        found = self.session.run(None, feeds)
        outputs = [NumpyCodec.encode_output(one.name, array) for one, array in zip(self.session.get_outputs(), found)]
        return InferenceResponse(model_name=self.name, outputs=outputs)
"""
Feeds = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Question:
    """One request, as a load generator sends it."""

    path: str
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Program:
    """A server beside ours.

    Attributes:
        name: in tables.
        needs: the module that its interpreter must have.
        write: given a folder, model, port and open size: files, and the command that starts it.
        ready: the path that answers 200 once it serves.
        ask: the request of some inputs.
    """

    name: str
    needs: str
    write: Callable[[Path, Path, int, int], list[str]]
    ready: str
    ask: Callable[[Feeds], Question]


def question_of_bytes(feeds: Feeds) -> Question:
    """Return inputs one behind the other."""
    raw = b"".join(array.tobytes() for array in feeds.values())
    return Question("/infer", raw, {"Content-Type": "application/octet-stream"})


def question_of_base64(feeds: Feeds) -> Question:
    """Return inputs as texts of JSON."""
    items = {
        name: (array.dtype.str, array.shape, base64.b64encode(array.tobytes()).decode())
        for name, array in feeds.items()
    }
    return Question("/infer", json.dumps(items).encode(), {"Content-Type": "application/json"})


def question_of_lists(feeds: Feeds) -> Question:
    """Return inputs as the protocol's JSON: MLServer refuses its binary form."""
    inputs = [
        {"name": name, "shape": array.shape, "datatype": datatype_of(array), "data": array.ravel().tolist()}
        for name, array in feeds.items()
    ]
    body = json.dumps({"inputs": inputs}).encode()
    return Question("/v2/models/model/infer", body, {"Content-Type": "application/json"})


def datatype_of(array: np.ndarray) -> str:
    """Return the protocol's name of an element type."""
    return {"float32": "FP32", "int64": "INT64"}[array.dtype.name]


def _script(text: str) -> Callable[[Path, Path, int, int], list[str]]:
    def write(folder: Path, model: Path, port: int, size: int) -> list[str]:
        (folder / "program.py").write_text(text)
        return [str(folder / "program.py"), str(model), str(port), str(size)]

    return write


def _mlserver(folder: Path, model: Path, port: int, size: int) -> list[str]:
    (folder / "serving_model.py").write_text(MLSERVER)
    settings = {"http_port": port, "grpc_port": port + 1, "metrics_port": port + 2, "parallel_workers": 0}
    (folder / "settings.json").write_text(json.dumps({**settings, "debug": False}))
    (folder / "model-settings.json").write_text(
        json.dumps({"name": "model", "implementation": "serving_model.Model", "parameters": {"uri": str(model)}})
    )
    return [
        "-c",
        f"from mlserver.cli import main; import sys; sys.argv = ['mlserver', 'start', {str(folder)!r}]; main()",
    ]


PROGRAMS = (
    Program("FastAPI, onnxruntime", "fastapi", _script(FASTAPI), "/docs", question_of_bytes),
    Program("LitServe, onnxruntime", "litserve", _script(LITSERVE), "/health", question_of_base64),
    Program("MLServer, onnxruntime", "mlserver", _mlserver, "/v2/models/model/ready", question_of_lists),
)


def environment(folder: Path) -> dict[str, str]:
    """Return what a program finds its files by."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}


def interpreter_with(module: str, candidates: list[str]) -> str | None:
    """Return the first interpreter that can import a module."""
    import subprocess

    for python in (*candidates, sys.executable):
        found = subprocess.run([python, "-c", f"import {module}, onnxruntime"], capture_output=True, check=False)
        if found.returncode == 0:
            return python
    return None
