"""A warmed cache serves after a copy: at another path, read-only, for a model elsewhere. Entries say whose they are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from ort_core.cache.about import About
from ort_core.cache.store import ArtefactCache

LOAD = """
import logging, sys
logging.basicConfig(level="INFO", format="%(message)s", stream=sys.stdout)
import numpy as np
import ort_core as ort
from ort_core.cpu.codegen.machine_code import jit
if sys.argv[2] == "warmed":
    def refuse(*arguments, **named):
        raise AssertionError("it compiles what the cache holds")
    jit.compile_modules = refuse
session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
x = np.ones((3, 32), np.float32)
for _ in range(4):
    print("sum", float(session.run(None, {"x": x})[0].sum()))
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    proto = parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        dense (float[N, 32] x) => (float[N, 48] y) {
            product = MatMul(x, w)
            y = Tanh(product)
        }""")
    weights = np.random.default_rng(0).standard_normal((32, 48)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    path = tmp_path / "dense.onnx"
    onnx.save(proto, path)
    return path


def load(model: Path, cache: Path, kind: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(model), kind], capture_output=True, text=True, timeout=250,
        env={**os.environ, "ORT_CACHE_DIR": str(cache)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def results(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("sum ")]


def test_a_copied_cache_compiles_nothing_and_the_first_load_says_that_it_does(model: Path, tmp_path: Path) -> None:
    first = load(model, tmp_path / "cache", "first")
    assert first.count("compiling dense.onnx for this processor") == 1
    assert str(tmp_path / "cache") in first
    elsewhere = tmp_path / "image" / "models"
    elsewhere.mkdir(parents=True)
    shutil.copy(model, elsewhere)
    shipped = shutil.copytree(tmp_path / "cache", tmp_path / "image" / "cache")
    for path in (shipped, *shipped.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        second = load(elsewhere / model.name, shipped, "warmed")
    finally:
        for path in (shipped, *shipped.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert "compiling" not in second
    assert results(second) == results(first)


def test_entries_say_which_model_they_were_made_for(model: Path, tmp_path: Path) -> None:
    load(model, tmp_path / "cache", "first")
    found = {entry.kind: About.from_text(entry.about) for entry in ArtefactCache(tmp_path / "cache").entries()}
    assert found["cpu-object"] == About(str(model), "ORT_ENABLE_ALL")
    assert About.from_text("no JSON") == About()
    assert len(About("/" + "é" * 500, "ORT_ENABLE_ALL").to_text().encode()) <= 384
    assert About.from_text(About("x" * 500).to_text()).model.endswith("x" * 100)
