"""KernelCache: machine code of kernels, compiled once per content, architecture and compiler, and kept on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from ort_core.plugin.cache import ArtefactCache, CacheKey
from ort_ep_cuda.lowering.program import MAXIMUM_THREADS, Kernel
from ort_ep_cuda.lowering.writing.preamble import PREAMBLE

KIND = "cuda-kernels"
GENERATED = (f"--maxrregcount={(1 << 16) // MAXIMUM_THREADS}",)  # more, and the largest blocks could not be launched


class KernelCache:
    """Compiles kernels together, and remembers the result.

    Args:
        architecture: such as ``sm_90``.
        compiler: its name and version.
        compile_source: makes machine code of a source for an architecture, with more options of the compiler.
        store: where artefacts lie.
    """

    def __init__(
        self,
        architecture: str,
        compiler: str,
        compile_source: Callable[..., bytes],
        store: ArtefactCache | None = None,
    ) -> None:
        self._architecture, self._compiler = architecture, compiler
        self._compile = compile_source
        self._store = store if store is not None else ArtefactCache()

    def code_of(self, kernels: Sequence[Kernel]) -> bytes:
        """Return the module that holds these kernels."""
        return self._code_of(module_source(kernels), GENERATED)

    def code_of_source(self, source: str) -> bytes:
        """Return the module that a user's source is."""
        return self._code_of(source, ())

    def _code_of(self, source: str, options: Sequence[str]) -> bytes:
        key = self.key_of(source)
        found = self._store.get(key)
        if found is None:
            found = self._compile(source, self._architecture, *options)
            self._store.put(key, found)
        return found

    def key_of(self, source: str) -> CacheKey:
        """Return what the machine code of a source depends on."""
        digest = hashlib.sha256(source.encode()).digest()
        return CacheKey(KIND, digest, (), (("architecture", self._architecture), ("compiler", self._compiler)))


def module_source(kernels: Sequence[Kernel]) -> str:
    """Return the source of a module, the same for the same kernels in any order."""
    return PREAMBLE + "".join(sorted(kernel.source for kernel in kernels))
