"""Every kernel of every graph compiles to machine code of real GPUs, without spilling registers to memory.

NVRTC or ptxas compile without a GPU; where neither is installed these tests are skipped, and the reason is shown.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from emulated_gpu import EmulatedGpu
from emulated_provider import EmulatedCudaProvider, session_of
from graph_cases import CASES

from ort_ep_cuda import _sdk
from ort_ep_cuda.kernel_cache import module_source
from ort_ep_cuda.lowering.program import Kernel

ARCHITECTURES = ("sm_80", "sm_90")
SPILLED_NBYTES = 0  # per thread; a kernel that spills is fused too far


@pytest.fixture(scope="module")
def kernels() -> list[Kernel]:
    """All kernels of the cases."""
    gpu = EmulatedCudaProvider.device = EmulatedGpu(collects=True)
    for case in CASES:
        session_of(case.body, opset=case.opset).run(None, case.feeds)
    return list(gpu.collected.values())


def _nvrtc_is_missing() -> str:
    try:
        _sdk.nvrtc_version()
    except (ImportError, OSError, RuntimeError) as error:
        return str(error).splitlines()[0]
    return ""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_compile_by_nvrtc_for(architecture: str, kernels: list[Kernel]) -> None:
    missing = _nvrtc_is_missing()
    if missing:
        pytest.skip(f"NVRTC is not installed: {missing}")
    code = _sdk.compile_cubin(module_source(kernels), architecture)
    assert code[:4] == b"\x7fELF", "machine code is an ELF file; anything else is PTX"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_do_not_spill_for(architecture: str, kernels: list[Kernel], tmp_path: Path) -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc, which reports registers and spills, is not on PATH")
    source = tmp_path / "kernels.cu"
    source.write_text(module_source(kernels), encoding="utf-8")
    command = ["nvcc", "-std=c++17", f"-arch={architecture}", "-cubin", "-Xptxas", "-v", str(source)]
    done = subprocess.run([*command, "-o", str(tmp_path / "out")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    spilled = [int(n) for n in re.findall(r"(\d+) bytes spill stores", done.stderr)]
    assert len(spilled) == len(kernels)
    assert max(spilled) <= SPILLED_NBYTES


def test_a_source_that_is_wrong_is_answered_with_the_words_of_the_compiler() -> None:
    missing = _nvrtc_is_missing()
    if missing:
        pytest.skip(f"NVRTC is not installed: {missing}")
    with pytest.raises(RuntimeError, match="nowhere"):
        _sdk.compile_cubin('extern "C" __global__ void f(int* p) { *p = nowhere; }', "sm_90")
