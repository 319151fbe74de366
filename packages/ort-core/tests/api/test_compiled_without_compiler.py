"""A compiled model loads where there is no compiler: in another process, from another path, its weights outside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from ort_core.compiler import ModelCompiler
from ort_core.cpu.codegen.machine_code import host_key
from ort_core.options import GraphOptimizationLevel, SessionOptions
from ort_core.session import InferenceSession

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere LLVM loads object files, and tells what processor this is"
)
MODEL = """
    <ir_version: 8, opset_import: ["": 17]>
    net (float[batch, 64] x, bool which) => (float[batch, 96] y, float[batch, 96] z) {
        product = MatMul(x, w)
        y = Softmax(product)
        z = If(which) <
            then_branch = then () => (t) { e = Exp(y) t = Mul(e, y) },
            else_branch = other () => (f) { s = Tanh(y) f = Add(s, y) }
        >
    }"""
LOAD = """
import json, sys, warnings
if sys.argv[2] == "absent":
    sys.modules["llvmlite"] = None
warnings.simplefilter("error")
import numpy as np
import ort_core as ort
options = ort.SessionOptions()
options.add_session_config_entry("session.trust_compiled_code", "1")
found = []
for batch in (1, 3, 1, 3, 1, 3):
    session = ort.InferenceSession(sys.argv[1], options) if not found else session
    x = np.linspace(-1, 1, batch * 64, dtype=np.float32).reshape(batch, 64)
    found.append([each.tolist() for each in session.run(None, {"x": x, "which": np.array(batch == 1)})])
found = found[-2:]
print(json.dumps([sys.modules.get("llvmlite") is not None, session.explain().counts(), found]))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    proto = parser.parse_model(MODEL)
    weights = np.random.default_rng(0).standard_normal((64, 96)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(proto, folder / "net.onnx", save_as_external_data=True, location="net.weights", size_threshold=0)
    # Whoever compiles several models keeps the tiles of products from the first one: they belong into each file.
    InferenceSession(folder / "net.onnx", SessionOptions()).close()
    options = SessionOptions()
    compiler = ModelCompiler(
        options, folder / "net.onnx", graph_optimization_level=GraphOptimizationLevel.ORT_ENABLE_ALL
    )
    report = compiler.compile_to_file(folder / "net_ctx.onnx")
    assert not report.refused
    return folder


def expected(folder: Path, batch: int) -> list[np.ndarray]:
    session = InferenceSession(folder / "net.onnx", SessionOptions())
    x = np.linspace(-1, 1, batch * 64, dtype=np.float32).reshape(batch, 64)
    return session.run(None, {"x": x, "which": np.array(batch == 1)})


@pytest.mark.parametrize("compiler", ["absent", "installed"])
def test_it_loads_and_runs_from_another_path_without_a_compiler(compiled: Path, tmp_path: Path, compiler: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in compiled.glob("net_ctx*"):
        shutil.copy(path, elsewhere)
    environment = {**os.environ, "ORT_CACHE_DIR": str(tmp_path / "empty")}
    for _ in range(2):  # the second load may find the first one's entries
        done = subprocess.run(
            [sys.executable, "-c", LOAD, str(elsewhere / "net_ctx.onnx"), compiler],
            capture_output=True, text=True, env=environment, timeout=250,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        imports_llvm, counts, results = json.loads(done.stdout)
        assert not imports_llvm, "LLVM is in the process"
        assert counts == {"CPUExecutionProvider": 1}
        for batch, found in zip((1, 3), results, strict=True):
            for result, wanted in zip(found, expected(compiled, batch), strict=True):
                np.testing.assert_array_equal(np.array(result, np.float32), wanted)


def test_weights_that_lay_outside_stay_outside_and_are_there_once(compiled: Path) -> None:
    sizes = {path.name: path.stat().st_size for path in compiled.glob("net_ctx*")}
    weights_nbytes = 64 * 96 * 4
    assert sizes["net_ctx.onnx"] < weights_nbytes / 2
    assert weights_nbytes <= sizes["net_ctx.onnx.data"] < 1.1 * weights_nbytes


def test_the_key_of_stored_code_names_no_path_of_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    before = host_key.machine_key()
    assert "llvmlite" not in before
    assert os.sep not in before.replace("AMD/", "")
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    assert host_key._compiler() == "no compiler"
