"""The example clients in JavaScript and Java, run where these languages are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from serve_fixtures import DOUBLER, running_server, write_model

EXAMPLES = Path(__file__).parents[3] / "examples" / "serve"
ADDER = """
<ir_version: 10, opset_import: ["" : 21]>
adder (float[batch, 4] x) => (float[batch, 4] y) { y = Cos (x) }
"""


@pytest.fixture
def server(tmp_path):
    write_model(ADDER, tmp_path / "adder" / "1" / "model.onnx")
    write_model(DOUBLER, tmp_path / "doubler" / "1" / "model.onnx")
    with running_server(tmp_path, grpc_port=None) as running:
        yield f"http://{running.http}"


def told(*command: str) -> str:
    plain = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, env=plain)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_javascript_gets_what_json_and_bytes_say(server):
    version = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    if int(version.removeprefix("v").split(".")[0]) < 18:
        pytest.skip(f"node {version.strip()} has no fetch")
    assert told("node", str(EXAMPLES / "client.mjs"), server, "adder") == "y [1,4]: 1 1 1 1\n"
    assert told("node", str(EXAMPLES / "client.mjs"), server, "doubler") == "y [1,4]: 0 0 0 0\ntotal [1]: 0\n"


@pytest.mark.skipif(shutil.which("javac") is None, reason="no JDK is installed")
def test_java_gets_bytes(server):
    header, numbers = told("java", str(EXAMPLES / "Client.java"), server, "adder", "x", "2,4").splitlines()
    assert json.loads(header)["outputs"][0]["shape"] == [2, 4]
    assert [float(number) for number in numbers.split()] == [1.0] * 8
