"""The processor out of the cache: what LLVM says of it, and without LLVM where an earlier process asked."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from ort_core.onnx_io.save import model_to_bytes
from ort_core.testing.models import model_of

pytest.importorskip("llvmlite")
TARGETS = "ort_core.cpu.codegen.machine_code.llvm_targets"
LOAD = """
import json, sys
import numpy as np
import ort_core
session = ort_core.InferenceSession(open(sys.argv[1], "rb").read(), providers=["CPUExecutionProvider"])
outputs = session.run(None, {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)})
print(json.dumps(["llvmlite" in sys.modules, outputs[0].tolist()]))
"""
KNOWN = f"""
import json, sys
from ort_core.cpu.codegen.machine_code.known_host import known_host
first = known_host()
asked = "{TARGETS}" in sys.modules
from {TARGETS} import host_target
print(json.dumps([asked, first == host_target(), first.features]))
"""
SPOIL = """
from ort_core.cpu.codegen.machine_code import known_host
known_host.json.dumps = lambda value: "[1, 2"
known_host.known_host()
"""


def last_line(code: str, *arguments: str, cache: Path, target: str = "") -> list[object]:
    variables = {**os.environ, "ORT_CACHE_DIR": str(cache), "ORT_CPU_TARGET": target}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    found: list[object] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="only Linux on x86-64 tells a processor by a file"
)
def test_a_model_whose_machine_code_is_in_the_cache_loads_without_llvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model_to_bytes(model_of("g (float[N,4] x) => (float[N,4] y) { a = Relu(x) y = Softmax(a) }")))
    monkeypatch.setenv("ORT_COMPILER_PROCESS", "0")
    first = last_line(LOAD, str(path), cache=tmp_path / "cache")
    second = last_line(LOAD, str(path), cache=tmp_path / "cache")
    assert (first[0], second[0]) == (True, False)
    assert second[1] == first[1]


def test_the_processor_in_the_cache_is_what_llvm_says(tmp_path: Path) -> None:
    for _ in range(2):
        assert last_line(KNOWN, cache=tmp_path)[1]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="these levels are those of x86-64")
def test_a_lesser_target_is_kept_apart_from_the_machine(tmp_path: Path) -> None:
    found = [last_line(KNOWN, cache=tmp_path, target=target)[2] for target in ("", "x86-64-v2", "", "x86-64-v2")]
    assert found[0] == found[2] != found[1] == found[3]


def test_an_entry_that_cannot_be_read_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_COMPILER_PROCESS", "0")
    variables = {**os.environ, "ORT_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", SPOIL], env=variables, check=True)
    asked, is_same, _ = last_line(KNOWN, cache=tmp_path)
    assert (asked, is_same) == (True, True)
