"""Users' kernels through a CuPy that is made up: which sources become modules, and how arrays lie in memory."""

from __future__ import annotations

import contextlib
import types
from pathlib import Path

import numpy as np
import pytest

from ort_core.plugin import EPFail
from ort_core.plugin.ir import DataType
from ort_ep_cuda import _sdk
from ort_ep_cuda.cupy_gpu import CupyGpu
from ort_ep_cuda.lowering.program import Kernel
from ort_ep_cuda.lowering.values.views import TensorView
from ort_ep_cuda.lowering.writing.preamble import PREAMBLE
from ort_ep_cuda.options import CudaOptions

OWN = Kernel("scaled_1", "first source", "scaled", "com.acme::First")
OTHER = Kernel("scaled_2", "second source", "scaled", "com.acme::Second")


class FakeModule:
    """Tells of which code a function is."""

    def load(self, code: bytes) -> None:
        self.code = code.decode()

    def get_function(self, name: str) -> tuple[str, str]:
        return self.code, name


class FakeDevice(contextlib.nullcontext):
    """The device that is current inside of a ``with``."""

    compute_capability, id = "90", 0


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CupyGpu:
    """A device whose compiler refuses sources with the word ``nowhere``, and else returns what it is given."""

    def compile_cubin(source: str, architecture: str, *options: str) -> _sdk.Compiled:
        if "nowhere" in source:
            raise RuntimeError("identifier nowhere is undefined")
        return _sdk.Compiled(source.encode(), "")

    cuda = types.SimpleNamespace(
        Device=lambda index: FakeDevice(),
        MemoryPool=lambda: types.SimpleNamespace(set_limit=lambda size: None),
        runtime=types.SimpleNamespace(
            getDeviceProperties=lambda index: {"name": b"made up"}, driverGetVersion=lambda: 13000
        ),
        function=types.SimpleNamespace(Module=FakeModule),
        UnownedMemory=lambda *arguments: arguments,
        MemoryPointer=lambda memory, offset: (memory, offset),
    )
    library = types.SimpleNamespace(cuda=cuda, ndarray=lambda *arguments: arguments)
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(_sdk, "cupy", lambda: library)
    monkeypatch.setattr(_sdk, "nvrtc_version", lambda: "13.0")
    monkeypatch.setattr(_sdk, "compile_cubin", compile_cubin)
    return CupyGpu(CudaOptions())


def test_a_users_source_is_a_module_of_its_own_found_by_its_entry(gpu: CupyGpu) -> None:
    found = gpu.functions([Kernel("map_1", "generated;"), OWN, Kernel("map_2", "likewise;"), OTHER])
    assert found["scaled_1"] == ("first source", "scaled")
    assert found["scaled_2"] == ("second source", "scaled")
    assert found["map_1"] == (PREAMBLE + "generated;likewise;", "map_1")
    assert gpu.functions([OTHER]) == {"scaled_2": ("second source", "scaled")}


def test_a_users_source_that_does_not_compile_is_told_with_its_operator(gpu: CupyGpu) -> None:
    wrong = Kernel("scaled_3", "nowhere", "scaled", "com.acme::Wrong")
    with pytest.raises(EPFail, match=r"kernel 'scaled' of com.acme::Wrong does not compile: identifier nowhere"):
        gpu.functions([OWN, wrong])


def test_an_array_for_a_users_function_lies_in_the_partitions_memory(gpu: CupyGpu) -> None:
    view = TensorView.dense(1, DataType.FLOAT, (2, 3))
    shape, dtype, (memory, offset) = gpu.array(view, 4096)
    assert (shape, dtype, memory[:2], offset) == ((2, 3), np.float32, (4096, 24), 0)
