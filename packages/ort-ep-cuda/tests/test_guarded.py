"""Every program on guarded memory: nothing reads or writes beyond a buffer, or reads what nobody has written.

Each runs twice: buffers meet a page that cannot be touched at their end, then where they begin, with another pattern in
memory, and with threads, warps and blocks in the other order. All bits must be equal.
"""

from __future__ import annotations

import numpy as np
import pytest
from emulated_gpu import EmulatedGpu, compile_together
from emulated_provider import EmulatedCudaProvider, session_of
from graph_cases import CASES, GraphCase, chosen_cases
from library_numbers import FuseEverything

from ort_core.testing.cuda_checks_posix import HAS_CHECKS
from ort_core.testing.cuda_emulation import find_compiler
from ort_ep_cuda.lowering.libraries.libraries import NOTHING_FUSED

pytestmark = [
    pytest.mark.skipif(find_compiler() is None, reason="CUDA is emulated by a C++ compiler; none is here"),
    pytest.mark.skipif(not HAS_CHECKS, reason="kernels are checked on Linux alone"),
]
LIBRARIES = {"nothing fused": NOTHING_FUSED, "fused": FuseEverything(is_channels_last=True)}


@pytest.fixture(scope="module")
def _compiled(request) -> None:
    """Lower every case that runs once without running it, and compile all kernels by one call of the compiler."""
    collecting = EmulatedCudaProvider.device = EmulatedGpu(collects=True)
    for case, libraries in chosen_cases(request):
        collecting.libraries = LIBRARIES[libraries]
        session_of(case.body, opset=case.opset).run(None, case.feeds)
    compile_together(list(collecting.collected.values()), is_checked=True)


@pytest.mark.sweep(parts=16)
@pytest.mark.usefixtures("_compiled")
@pytest.mark.parametrize("libraries", LIBRARIES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_program_touches_its_own_memory_in_any_order(case: GraphCase, libraries: str) -> None:
    found: list[list[np.ndarray]] = []
    for guard in ("end", "begin"):
        EmulatedCudaProvider.device = EmulatedGpu(guard=guard, libraries=LIBRARIES[libraries])
        found.append(session_of(case.body, opset=case.opset).run(None, case.feeds))
    for first, second in zip(*found, strict=True):
        assert first.tobytes() == second.tobytes(), "an element depends on the order, or on what memory held before"
