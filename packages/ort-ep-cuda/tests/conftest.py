"""Makes the modules beside these tests importable by them, and gives a GPU that is this machine's processor."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from emulated_provider import EmulatedCudaProvider

from ort_core.testing.cuda_emulation import find_compiler


@pytest.fixture
def gpu():
    """A fresh emulated GPU that sessions of EmulatedCudaProvider use."""
    if find_compiler() is None:
        pytest.skip("CUDA is emulated by a C++ compiler; none is here")
    from emulated_gpu import EmulatedGpu

    EmulatedCudaProvider.device = EmulatedGpu()
    return EmulatedCudaProvider.device
