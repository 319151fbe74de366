"""Every kernel of every graph compiles to machine code of real GPUs, without spilling registers to memory.

NVRTC compiles without a GPU; where it is not installed nvcc does, and where there is neither these tests are skipped
with the reason. Compilers report per kernel how many registers a thread takes and what it spills.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from acme_formulas import GRAPHS, OPERATORS
from emulated_gpu import EmulatedGpu
from emulated_provider import EmulatedCudaProvider, session_of
from graph_cases import CASES
from library_numbers import FuseEverything
from test_chunked_map import BODY
from test_growing_sizes import DECODER, decode
from test_own_kernels import SOURCE

from ort_core.testing.cuda_emulation import find_compiler, find_shortened
from ort_ep_cuda import _sdk
from ort_ep_cuda.kernel_cache import module_source
from ort_ep_cuda.lowering.libraries.libraries import NOTHING_FUSED
from ort_ep_cuda.lowering.program import Kernel
from ort_ep_cuda.lowering.writing.chunked_map import LEAST_ELEMENTS

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
FIRST = ("sm_75",)  # what is compiled for unless all are asked for
WIDE = {"sm_100": 96, "sm_120": 96}  # where the compiler unrolls windows of pools further: two blocks of 256
TILES = (
    "integer_product_",
    "integer_positions_",
    "many_rows_of_bits_",
    "attend_tiles_",
)  # 32 sums a thread, blocks of 128: three share a multiprocessor
REGISTERS_OF_TILES = 136
REGISTERS = 80  # per thread: three blocks of 256 threads share the 65536 of a multiprocessor; 255 is the most

STACK_NBYTES = 40  # per thread: CUDA's sin, cos and tan of float64 keep pieces of 2 / pi for large angles; others 0


@dataclass(frozen=True)
class KernelResources:
    """What the compiler reports of a kernel, per thread."""

    name: str
    registers: int
    spilled_nbytes: int
    stack_nbytes: int


@pytest.fixture(scope="module")
def kernels(request) -> list[Kernel]:
    """The kernels of each eighth case, or of all with ``--every-case``, and of graphs of a user's formulas."""
    cases = CASES if request.config.getoption("--every-case", default=False) else CASES[::8]
    gpu = EmulatedCudaProvider.device = EmulatedGpu(collects=True)
    for libraries in (NOTHING_FUSED, FuseEverything(is_channels_last=True)):
        gpu.libraries = libraries
        for case in cases:
            session_of(case.body, opset=case.opset).run(None, case.feeds)
    gpu.libraries = NOTHING_FUSED
    decode(session_of(DECODER), 2, 5, np.random.default_rng(7), is_compared=False)
    for text, dtype in (("float", np.float32), ("float16", np.float16), ("double", np.float64)):
        much = np.ones(LEAST_ELEMENTS, dtype)
        session_of(BODY.format(t=text)).run(None, {"a": much, "b": much, "s": much[0]})
    for body, shapes in GRAPHS.values():
        session = session_of(body, operators=OPERATORS)
        session.run(None, {i.name: np.ones(shape, "f4") for i, shape in zip(session.get_inputs(), shapes, strict=True)})
    return list(gpu.collected.values())


def _nvrtc_is_missing() -> str:
    try:
        _sdk.nvrtc_version()
    except (ImportError, OSError, RuntimeError) as error:
        return f"NVRTC is not installed ({str(error).splitlines()[0]}); nox -s cuda installs it"
    return ""


def _report(source: str, architecture: str, folder: Path) -> str:
    """Return what the compiler says of a source that compiles."""
    missing = _nvrtc_is_missing()
    if missing and shutil.which("nvcc") is None:
        pytest.skip(f"{missing}; nor is nvcc on PATH")
    if missing:
        return _report_by_nvcc(source, architecture, folder)
    compiled = _sdk.compile_cubin(source, architecture, "--ptxas-options=-v")
    assert compiled.code[:4] == b"\x7fELF", "machine code is an ELF file; anything else is PTX"
    return compiled.log


def _report_by_nvcc(source: str, architecture: str, folder: Path) -> str:
    text = folder / "kernels.cu"
    text.write_text(source, encoding="utf-8")
    command = ["nvcc", "-std=c++17", f"-arch={architecture}", "-cubin", "-Xptxas", "-v", str(text)]
    done = subprocess.run([*command, "-o", str(folder / "out")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def _resources(report: str) -> list[KernelResources]:
    found = re.findall(
        r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores.*?Used (\d+) registers",
        report,
        re.DOTALL,
    )
    return [KernelResources(name, int(used), int(spilled), int(stack)) for name, stack, spilled, used in found]


def pytest_generate_tests(metafunc) -> None:
    if "architecture" in metafunc.fixturenames:
        is_whole = metafunc.config.getoption("--every-case", default=False)
        metafunc.parametrize("architecture", ARCHITECTURES if is_whole else FIRST)


def test_kernels_compile_and_do_not_spill_for(architecture: str, kernels: list[Kernel], tmp_path: Path) -> None:
    found = _resources(_report(module_source(kernels), architecture, tmp_path))
    assert {each.name for each in found} == {kernel.name for kernel in kernels}
    assert [each for each in found if each.spilled_nbytes] == []
    assert [each for each in found if each.stack_nbytes > STACK_NBYTES] == []
    most = WIDE.get(architecture, REGISTERS)
    limits = {each: REGISTERS_OF_TILES if each.name.startswith(TILES) else most for each in found}
    assert [each for each in found if each.registers > limits[each]] == []


@pytest.mark.skipif(find_compiler() is None, reason="a C++ compiler says what is shortened; none is here")
def test_no_kernel_keeps_a_position_of_64_bits_in_32(kernels: list[Kernel], tmp_path: Path) -> None:
    assert find_shortened(module_source(kernels), [kernel.name for kernel in kernels], tmp_path) == []
    narrow = Kernel("narrow", 'extern "C" __global__ void narrow(long long i, int* at) { const int k = i; *at = k; }')
    assert len(find_shortened(module_source([narrow]), ["narrow"], tmp_path)) == 1


def test_a_users_source_compiles_by_itself_for(architecture: str, tmp_path: Path) -> None:
    (found,) = _resources(_report(SOURCE, architecture, tmp_path))
    assert (found.name, found.spilled_nbytes) == ("scaled", 0)


def test_a_source_that_is_wrong_is_answered_with_the_words_of_the_compiler() -> None:
    missing = _nvrtc_is_missing()
    if missing:
        pytest.skip(missing)
    with pytest.raises(RuntimeError, match="nowhere"):
        _sdk.compile_cubin('extern "C" __global__ void f(int* p) { *p = nowhere; }', "sm_90")
