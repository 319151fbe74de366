"""CpuExecutionProvider: native programs where operators lower, numpy kernels for the rest."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import platform
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from ort_core.cpu.options import CpuOptions
from ort_core.plugin import (
    Available,
    KernelPartition,
    KernelProvider,
    OrtError,
    Rejection,
    Unavailable,
    raise_interruption,
)

if TYPE_CHECKING:
    from ort_core.cpu.codegen.machine_code.target import Target
    from ort_core.plugin import Capability, CompiledPartition, CompileRequest, GraphView, Pass, Roofline, ThreadOptions

log = logging.getLogger(__name__)


class CpuExecutionProvider(KernelProvider):
    """Runs what nobody else took."""

    name: ClassVar[str] = "CPUExecutionProvider"
    options_type: ClassVar[type] = CpuOptions
    is_last_resort: ClassVar[bool] = True
    is_listed: ClassVar[bool] = True
    priority: ClassVar[int] = 0

    @classmethod
    def check(cls) -> Available | Unavailable:
        """Return what processor this is; always available."""
        return Available(f"{platform.machine()}, {os.cpu_count()} logical processors")

    def get_capability(self, view: GraphView) -> Capability:
        """Claim as every provider of kernels does; meanwhile what says which processor this is may start."""
        with contextlib.suppress(ImportError):  # without llvmlite; ``compile`` says so
            from ort_core.cpu.codegen.machine_code.known_host import ask_early

            ask_early()
        return super().get_capability(view)

    @property
    def fusions(self) -> Sequence[Pass]:
        """The fusions whose operators the compiler lowers; the others would take nodes away from it."""
        from ort_core.cpu.fusions.fusions import chosen_fusions  # a recalled partition has no use for passes

        return chosen_fusions()

    def compile(self, request: CompileRequest) -> CompiledPartition:
        """Compile what lowers to native programs.

        Without llvmlite, or where no machine code can be loaded, everything runs by kernels, with a warning.
        """
        try:
            from ort_core.cpu.codegen.machine_code.known_host import known_host
            from ort_core.cpu.partition.partition import CpuPartition
            from ort_core.cpu.threads.pool import shared_pool

            host = known_host()
            pool = shared_pool(request.threads)
        except ImportError as error:  # without llvmlite, or where no machine code can be loaded
            log.warning("the CPU compiler is not available (%s); operators run by numpy kernels", str(error))
            from ort_core.plugin.kernels import BoundGraph  # only without a compiler

            reason = f"the CPU compiler is not available: {error}"
            return KernelPartition(BoundGraph(request.graph, request.context), reason=reason)
        assert isinstance(self.options, CpuOptions)
        uses_bfloat16 = self.options.precision == "bfloat16"
        if uses_bfloat16:
            _tell_what_is_rounded(host)
        try:
            return CpuPartition(request, host, pool, uses_bfloat16=uses_bfloat16)
        except (OrtError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - a fault of the compiler, at which the model must not fail
            raise_interruption(error)
            from ort_core.plugin.kernels import BoundGraph  # as above

            request.faults.note(
                f"the CPU compiler failed on partition {request.name!r}; it runs by numpy kernels", error
            )
            reason = f"the compiler failed: {type(error).__name__}: {error}"
            return KernelPartition(BoundGraph(request.graph, request.context), reason=reason)

    def load(self, blob: bytes, request: CompileRequest) -> CompiledPartition | Rejection:
        """Lower the graph again and take the machine code for it out of the bytes instead of compiling.

        Nothing of that imports LLVM, unless something is not among the bytes.
        """
        from ort_core.cpu.partition.partition import CpuPartition
        from ort_core.cpu.storage.stored_code import adopted
        from ort_core.cpu.threads.pool import shared_pool

        assert isinstance(self.options, CpuOptions)
        stored = adopted(blob)
        if isinstance(stored, Rejection):
            return stored
        uses_bfloat16 = self.options.precision == "bfloat16"
        compiled = CpuPartition(request, stored.target, shared_pool(request.threads), uses_bfloat16=uses_bfloat16)
        del stored  # held until here: programs own what they use from now on
        return compiled

    def recall(
        self, content: memoryview, threads: ThreadOptions, compile_anew: Callable[[], CompiledPartition]
    ) -> CompiledPartition | Rejection:
        """Take one native program, its constants and its machine code out of the bytes."""
        from ort_core.cpu.storage.stored_partition import decode_partition

        try:
            return decode_partition(content, threads, compile_anew)
        except ImportError as error:  # the threads' own code is nowhere to be found
            return Rejection(f"the CPU compiler is not available: {error}")

    def cache_key(self) -> str:
        """Return the options, and the processor and the settings that machine code must be made for to run here."""
        try:
            from ort_core.cpu.codegen.machine_code.host_key import machine_key

            return f"{super().cache_key()}|{machine_key()}"
        except ImportError:
            return f"{super().cache_key()}|no compiler"

    def measure_roofline(self, threads: ThreadOptions) -> Roofline | None:
        """Measure this processor with that many threads; ``None`` where nothing can be compiled."""
        try:
            from ort_core.cpu.codegen.machine_code.llvm_targets import host_target
            from ort_core.cpu.inspection.roofline import measure_roofline
            from ort_core.cpu.threads.pool import shared_pool

            pool = shared_pool(threads)
        except ImportError as error:
            log.warning("the CPU compiler is not available (%s); the machine's limits cannot be measured", error)
            return None
        return measure_roofline(host_target(), pool)


@functools.cache
def _tell_what_is_rounded(target: Target) -> None:
    """Warn, once for a target, where ``precision=bfloat16`` rounds less than it does elsewhere."""
    from ort_core.cpu.codegen.products.bfloat16_product import rounds_both

    if not rounds_both(target):
        log.warning(
            "precision=bfloat16: %s has no dot products of bfloat16 that are faster than float32; weights of products "
            "are rounded, and everything is computed in float32",
            target.cpu,
        )
