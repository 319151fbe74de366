"""Nodes that differ in numbers, in scales or in what trees hold share compiled code: LLVM takes 50 ms for a kernel."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnxruntime
import pytest
from exported_kinds import EXPORTED
from growing_kinds import MORE
from growing_models import GROWING

import ort_core
from ort_core.cpu.codegen.machine_code import jit
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.loops.scalar import structure

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


@pytest.mark.parametrize("name", ["nested functions", "images", "growing sizes", "convolutions"])
def test_equal_epilogues_and_copies_are_written_as_text_once(name, tmp_path, monkeypatch):
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path))
    kind = {**GROWING, **MORE, **EXPORTED}[name]
    written = []
    for count in (NODES, 2 * NODES):
        structure.cache_clear()
        ort_core.InferenceSession(kind(count).proto(), providers=["CPUExecutionProvider"])
        written.append(structure.cache_info().misses)
    assert written[1] - written[0] <= NODES // 4, f"{written} texts for {NODES} and {2 * NODES} nodes"


def test_numbers_that_are_read_are_those_that_were_written():
    content = MORE["numbers"](120).proto()
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    (expected,) = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    (found,) = ort_core.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=2e-5)
