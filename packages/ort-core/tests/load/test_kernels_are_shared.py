"""Nodes that differ in numbers, in scales or in what trees hold share compiled code: LLVM takes 50 ms for a kernel."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnxruntime
import pytest
from growing_kinds import MORE

import ort_core
from ort_core.cpu.codegen.machine_code import jit
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.target import Target

NODES, MAX_KERNELS = 400, 64


@pytest.mark.parametrize("name", ["numbers", "scales", "trees", "gathers"])
def test_large_model_compiles_few_kernels(name, tmp_path, monkeypatch):
    kernels: list[int] = []

    def count(texts: Iterable[jit.ModuleText], target: Target | None, *, num_threads: int) -> list[CompiledModule]:
        listed = list(texts)
        kernels.extend(each.text.count("define ") for each in listed)
        return compile_modules(listed, target, num_threads=num_threads)

    compile_modules = jit.compile_modules
    monkeypatch.setattr(jit, "compile_modules", count)
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path))
    session = ort_core.InferenceSession(MORE[name](NODES).proto(), providers=["CPUExecutionProvider"])
    assert sum(kernels) <= MAX_KERNELS, f"{sum(kernels)} kernels for {NODES} nodes"
    assert session


def test_numbers_that_are_read_are_those_that_were_written():
    content = MORE["numbers"](120).proto()
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    (expected,) = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    (found,) = ort_core.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=2e-5)
