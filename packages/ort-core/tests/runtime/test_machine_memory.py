"""What the engine takes for the memory of the machine, also where a sandbox hides the files that tell it."""

from __future__ import annotations

import os

import numpy as np
import psutil
import pytest
from onnx import parser

import ort_core
from ort_core import machine_memory
from ort_core.runtime.limits import default_max_allocation


def hidden(*_: object, **__: object) -> None:
    raise FileNotFoundError(2, "No such file or directory", "/proc/meminfo")


@pytest.fixture
def no_proc(monkeypatch):
    default_max_allocation.cache_clear()
    monkeypatch.setattr(psutil, "virtual_memory", hidden)
    yield
    default_max_allocation.cache_clear()


@pytest.mark.skipif(not hasattr(os, "sysconf"), reason="sysconf is POSIX's; psutil needs no files elsewhere")
def test_without_proc_the_c_library_is_asked(monkeypatch):
    told = psutil.virtual_memory().total
    monkeypatch.setattr(psutil, "virtual_memory", hidden)
    assert machine_memory.physical_memory() == pytest.approx(told, rel=0.01)


def test_a_container_bounds_what_may_be_used(monkeypatch):
    monkeypatch.setattr(machine_memory, "container_memory", lambda: None)
    assert machine_memory.usable_memory() == machine_memory.physical_memory()
    monkeypatch.setattr(machine_memory, "container_memory", lambda: 4096)
    assert machine_memory.usable_memory() == 4096
    monkeypatch.setattr(machine_memory, "physical_memory", hidden)
    assert machine_memory.usable_memory() == 4096


def test_where_nothing_is_told_a_warning_says_that_nothing_limits(no_proc, monkeypatch):
    monkeypatch.setattr(machine_memory, "container_memory", lambda: None)
    monkeypatch.setattr(machine_memory, "physical_memory", hidden)
    with pytest.warns(RuntimeWarning, match="max_allocation_bytes"):
        assert default_max_allocation() > 1 << 30


@pytest.mark.skipif(not hasattr(os, "sysconf"), reason="the C library that is asked instead is that of POSIX")
def test_a_model_runs_without_proc(no_proc):
    session = ort_core.InferenceSession(parser.parse_model(MODEL).SerializeToString())
    x = np.array([-1.5, 2.0], np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.abs(x))


MODEL = """
<ir_version: 10, opset_import: ["": 20]>
g (float[n] x) => (float[n] y) { y = Abs(x) }
"""
