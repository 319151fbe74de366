"""How random graphs are run by CUDA kernels in emulation: ``nox -s graphs -- FIRST COUNT OUT 1 low THIS``."""

from emulated_gpu import EmulatedGpu
from emulated_provider import EmulatedCudaProvider
from random_graphs.on_provider import GraphsProvider

from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import plugin_of

_INSTALLED = installed(plugin_of(EmulatedCudaProvider, name="emulated_cuda"))  # for the rest of the process


def prepare() -> None:
    """Let sessions see the provider, on a processor that emulates its device."""
    EmulatedCudaProvider.device = EmulatedGpu()
    _INSTALLED.__enter__()


PROVIDER = GraphsProvider(EmulatedCudaProvider.name, prepare=prepare, is_repeatable=True)
